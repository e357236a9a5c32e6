// Starts the sample of a web page with tickets: `samples/web-page`.

import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { ROOT, freeAddress } from './deployment.mjs';

// Starts the server of the sample in `dir`, with this key. `group` ends it. Returns the origin of its page.
export async function startWebPage(group, dir, { key, url, env = {} }) {
  const site = path.join(dir, 'web-page');
  cpSync(path.join(ROOT, 'samples/web-page'), site, { recursive: true });
  const page = path.join(site, 'index.html');
  writeFileSync(page, readFileSync(page, 'utf8').replace('https://ip.example', url));
  const [, port] = (await freeAddress()).split(':');
  const settings = { ...env, IPSEITY_KEY: key, IPSEITY_URL: url, PORT: port };
  await group.start(['node', path.join(site, 'server.mjs')], { cwd: site, env: settings });
  return `http://localhost:${port}`;
}
