// Measures the whole package, bundled, minified and compressed. Fails above the limit.

import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';

const BYTES_MAX = 3000;

const options = { entryPoints: ['dist/index.js'], bundle: true, minify: true, format: 'esm', target: 'es2022' };
const { outputFiles } = await build({ ...options, write: false });
const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
console.log(`bundle: ${outputFiles[0].contents.length} bytes, ${bytes} compressed (limit ${BYTES_MAX})`);
process.exitCode = bytes <= BYTES_MAX ? 0 : 1;
