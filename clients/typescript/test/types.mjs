// The compiler rejects fields outside the scope.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';

const HERE = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const FILE = 'fields.ts';

export function types() {
  test('only fields outside the scope are compile errors', () => {
    const tsc = path.join(HERE, '../node_modules/.bin/tsc');
    const { stdout, status } = spawnSync(tsc, ['--project', '.', '--pretty', 'false'], { cwd: HERE, encoding: 'utf8' });
    assert.notEqual(status, 0);
    const errors = stdout.matchAll(/^(\S+)\((\d+),\d+\): error (TS\d+)/gm);
    const found = Array.from(errors, ([, file, line, code]) => `${file}:${line} ${code}`);
    const lines = readFileSync(path.join(HERE, FILE), 'utf8').split('\n');
    const expected = lines.flatMap((line, number) => {
      const [, code] = line.match(/\/\/ (TS\d+)$/) ?? [];
      return code ? [`${FILE}:${number + 1} ${code}`] : [];
    });
    assert.equal(expected.length, 11);
    assert.deepEqual(found, expected, stdout);
  });
}
