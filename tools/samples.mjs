// Runs every sample whose language is on this machine against the real service, and compares what it prints and how
// often it asks.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';

import { PROGRAM, launch } from './chromium.mjs';
import { House, ROOT, TARGET } from './house.mjs';

const RUN_MAX_MS = 60_000;
const CLIENT = '73.162.0.7'; // known to the small geo database: in the United States
const NOWHERE = 'ips_000000000000000000000000000000000000000000000000';

// How a sample is run, and what must succeed for its language to be there.
const RUNS = {
  curl: { command: ['bash'], needs: ['jq', '--version'] },
  browser: { run: inBrowser, needs: [PROGRAM, '--version'] },
  node: { command: ['node'], needs: ['node', '--version'] },
  python: { command: ['python3'], needs: ['python3', '--version'] },
  go: { command: ['go', 'run'], needs: ['go', 'version'] },
  rust: { command: [], program: path.join(TARGET, 'debug/examples/lookup'), needs: ['cargo', '--version'] },
  php: { command: ['php'], needs: ['php', '-r', 'exit((int) !extension_loaded("curl"));'] },
  ruby: { command: ['ruby'], needs: ['ruby', '--version'] },
  java: { command: ['java'], needs: ['javac', '--version'] },
  csharp: { command: ['dotnet', 'run'], needs: ['sh', '-c', 'test "$(dotnet --version | cut -d . -f 1)" -ge 10'] },
};

// Stands before the service: callers on this machine come from an address that has a country, and are counted.
async function gate(house) {
  const server = createServer((asked, answer) => {
    if (asked.method === 'GET') server.asked += 1;
    const headers = { ...asked.headers, 'x-forwarded-for': CLIENT };
    const passed = request(house.http + asked.url, { method: asked.method, headers }, (told) => {
      answer.writeHead(told.statusCode, told.rawHeaders);
      told.pipe(answer);
    });
    passed.end();
  });
  server.asked = 0;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.url = `http://127.0.0.1:${server.address().port}`;
  return server;
}

async function inShell({ command, program }, file, env) {
  const [name, ...words] = [...command, program ?? file];
  const options = { env: { ...process.env, ...env }, timeout: RUN_MAX_MS, stdio: ['ignore', 'pipe', 'pipe'] };
  const child = spawn(name, words, options);
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { out: out.trim(), err: err.trim(), ok: code === 0 };
}

// A page that somebody else serves: the service is another origin.
async function inBrowser(_, file, { IPSEITY_KEY, IPSEITY_URL }) {
  const page = readFileSync(file, 'utf8').replace('ips_…', IPSEITY_KEY).replace('https://ip.example', IPSEITY_URL);
  const site = createServer((_asked, answer) => answer.setHeader('content-type', 'text/html').end(page));
  await once(site.listen(0, '127.0.0.1'), 'listening');
  const tab = await (await browser()).newPage();
  try {
    await tab.goto(`http://127.0.0.1:${site.address().port}/`);
    await tab.waitForFunction(() => document.querySelector('#me').textContent !== '…', null, { timeout: RUN_MAX_MS });
    const told = await tab.textContent('#me');
    return told.startsWith(CLIENT) ? { out: told, err: '', ok: true } : { out: '', err: told, ok: false };
  } finally {
    await tab.close();
    site.close();
  }
}

// The one browser, started when it is first asked for.
let started;
const browser = () => (started ??= launch());

// What a sample must print for each key; each asks exactly once, whatever it is told.
async function cases(house) {
  const made = [house.paused('geo'), house.spent('geo'), house.deactivated('geo')];
  const [paused, spent, inactive] = await Promise.all(made);
  return [
    { name: 'geo', key: house.keys.geo, out: `${CLIENT} US` },
    { name: 'ip', key: house.keys.ip, out: CLIENT },
    { name: 'unknown key', key: NOWHERE, err: /^invalid_api_key: .*does not exist/s },
    { name: 'deactivated key', key: inactive.key, err: /^inactive_api_key: .*deactivated/s },
    { name: 'paused key', key: paused.key, err: /^inactive_api_key: (?!.*Try again).*waiting does not help/s },
    { name: 'spent day', key: spent.key, err: /^rate_limit_exceeded: .*Try again in \d+ s\.$/sm },
  ];
}

async function check(sample, runs, expected, door) {
  const run = runs.run ?? inShell;
  const file = path.join(ROOT, sample.file);
  for (const { name, key, out, err } of expected) {
    door.asked = 0;
    const told = await run(runs, file, { IPSEITY_KEY: key, IPSEITY_URL: door.url });
    const where = `${sample.title}, ${name}: ${JSON.stringify(told)}`;
    assert.equal(told.out, out ?? '', where);
    assert.equal(told.ok, !err, where);
    if (err) assert.match(told.err, err, where);
    assert.equal(door.asked, 1, `${where} asked ${door.asked} times`);
  }
}

const samples = JSON.parse(readFileSync(path.join(ROOT, 'samples/index.json'), 'utf8'));
assert.deepEqual(samples.map(({ id }) => id), Object.keys(RUNS), 'index.json and this runner name the same samples');
const runs = ({ id }) => spawnSync(RUNS[id].needs[0], RUNS[id].needs.slice(1), { stdio: 'ignore' }).status === 0;
const present = samples.filter(runs);
const absent = samples.filter((sample) => !present.includes(sample));

const house = await House.start();
const door = await gate(house);
try {
  const expected = await cases(house);
  for (const sample of present) {
    const start = performance.now();
    await check(sample, RUNS[sample.id], expected, door);
    console.log(`${sample.title}: ${expected.length} runs in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  }
  const skipped = absent.map(({ title }) => title).join(', ') || 'none';
  console.log(`samples: ${present.length} passed, 0 failed; not on this machine: ${skipped}`);
} finally {
  door.close();
  door.closeAllConnections();
  await started?.then((own) => own.close());
  await house.end();
}
