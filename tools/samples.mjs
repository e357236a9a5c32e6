// Runs every sample whose language is installed against the real service. Checks its output and its number of requests.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';

import { PROGRAM, launch } from './chromium.mjs';
import { Deployment, ROOT, TARGET } from './deployment.mjs';
import { startWebPage } from './web_page_sample.mjs';

const RUN_MAX_MS = 60_000;
const CLIENT = '73.162.0.7'; // in the United States, in the small geo database
const UNKNOWN_KEY = 'ips_000000000000000000000000000000000000000000000000';

// The command that runs a sample, and a check whether its language is installed.
const RUNS = {
  curl: { command: ['bash'], needs: ['jq', '--version'] },
  browser: { run: runInBrowser, needs: [PROGRAM, '--version'] },
  node: { command: ['node'], needs: ['node', '--version'] },
  python: { command: ['python3'], needs: ['python3', '--version'] },
  go: { command: ['go', 'run'], needs: ['go', 'version'] },
  rust: { command: [], program: path.join(TARGET, 'debug/examples/lookup'), needs: ['cargo', '--version'] },
  php: { command: ['php'], needs: ['php', '-r', 'exit((int) !extension_loaded("curl"));'] },
  ruby: { command: ['ruby'], needs: ['ruby', '--version'] },
  java: { command: ['java'], needs: ['javac', '--version'] },
  csharp: { command: ['dotnet', 'run'], needs: ['sh', '-c', 'test "$(dotnet --version | cut -d . -f 1)" -ge 10'] },
};

// Starts a proxy in front of the service that counts requests and sends them from an address with a known country.
async function startProxy(deployment) {
  const server = createServer((incoming, reply) => {
    if (incoming.method === 'GET') server.requestCount += 1;
    const headers = { ...incoming.headers, 'x-forwarded-for': CLIENT };
    const outgoing = request(deployment.http + incoming.url, { method: incoming.method, headers }, (response) => {
      reply.writeHead(response.statusCode, response.rawHeaders);
      response.pipe(reply);
    });
    incoming.pipe(outgoing);
  });
  server.requestCount = 0;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.url = `http://127.0.0.1:${server.address().port}`;
  return server;
}

async function runInShell({ command, program }, file, env) {
  const [name, ...args] = [...command, program ?? file];
  const options = { env: { ...process.env, ...env }, timeout: RUN_MAX_MS, stdio: ['ignore', 'pipe', 'pipe'] };
  const child = spawn(name, args, options);
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { out: out.trim(), err: err.trim(), ok: code === 0 };
}

// Serves the page from another origin than the service.
async function runInBrowser(_, file, { IPSEITY_KEY, IPSEITY_URL }) {
  const page = readFileSync(file, 'utf8').replace('ips_…', IPSEITY_KEY).replace('https://ip.example', IPSEITY_URL);
  const site = createServer((_request, response) => response.setHeader('content-type', 'text/html').end(page));
  await once(site.listen(0, '127.0.0.1'), 'listening');
  try {
    const { text } = await openPage(`http://127.0.0.1:${site.address().port}/`);
    return text.startsWith(CLIENT) ? { out: text, err: '', ok: true } : { out: '', err: text, ok: false };
  } finally {
    site.close();
  }
}

// Opens a page, and returns what it shows and everything that the browser received.
async function openPage(url) {
  const tab = await (await browser()).newPage();
  const bodies = [];
  tab.on('response', (response) => bodies.push(response.text().catch(() => '')));
  try {
    await tab.goto(url);
    await tab.waitForFunction(() => document.querySelector('#me').textContent !== '…', null, { timeout: RUN_MAX_MS });
    return { text: await tab.textContent('#me'), received: (await Promise.all(bodies)).join('\n') };
  } finally {
    await tab.close();
  }
}

// The key makes no lookups itself, creates tickets with curl and for a page, and is not in the page.
async function checkWebPage(deployment, proxy) {
  const { key, id } = await deployment.issueKey('geo');
  await deployment.cli('key', 'restrict', id, '--tickets-only');
  const env = { IPSEITY_KEY: key, IPSEITY_URL: proxy.url };
  const lookup = (secret) => fetch(`${proxy.url}/api/v1/ip`, { headers: { authorization: `Bearer ${secret}` } });
  assert.equal((await lookup(key)).status, 403);
  const created = await runInShell({ command: ['bash'] }, path.join(ROOT, 'samples/web-page/create_ticket.sh'), env);
  assert.ok(created.ok, JSON.stringify(created));
  const { ticket } = JSON.parse(created.out);
  assert.deepEqual([(await lookup(ticket)).status, (await lookup(ticket)).status], [200, 401], 'it works once');

  const site = await startWebPage(deployment, deployment.dir, { key, url: proxy.url });
  const { text, received } = await openPage(`${site}/`);
  assert.equal(text, `${CLIENT} US`);
  assert.ok(received.includes('ipt_') && !received.includes(key));
  await deployment.cli('key', 'deactivate', id);
  assert.equal((await openPage(`${site}/`)).text, 'No ticket. Try again later.');
}

// One browser for all samples, launched on first use.
let launched;
const browser = () => (launched ??= launch());

// What a sample must print for each key. It sends exactly one request, whatever the response.
async function createCases(deployment) {
  const keys = [deployment.pausedKey('geo'), deployment.exhaustedKey('geo'), deployment.deactivatedKey('geo')];
  const [paused, exhausted, inactive] = await Promise.all(keys);
  return [
    { name: 'geo', key: deployment.keys.geo, out: `${CLIENT} US` },
    { name: 'ip', key: deployment.keys.ip, out: CLIENT },
    { name: 'unknown key', key: UNKNOWN_KEY, err: /^invalid_api_key: .*does not exist/s },
    { name: 'deactivated key', key: inactive.key, err: /^inactive_api_key: .*deactivated/s },
    { name: 'paused key', key: paused.key, err: /^inactive_api_key: (?!.*Try again).*won't resume on its own/s },
    { name: 'exhausted daily quota', key: exhausted.key, err: /^rate_limit_exceeded: .*Try again in \d+ s\.$/sm },
  ];
}

async function check(sample, runs, cases, proxy) {
  const run = runs.run ?? runInShell;
  const file = path.join(ROOT, sample.file);
  for (const { name, key, out, err } of cases) {
    proxy.requestCount = 0;
    const result = await run(runs, file, { IPSEITY_KEY: key, IPSEITY_URL: proxy.url });
    const where = `${sample.title}, ${name}: ${JSON.stringify(result)}`;
    assert.equal(result.out, out ?? '', where);
    assert.equal(result.ok, !err, where);
    if (err) assert.match(result.err, err, where);
    assert.equal(proxy.requestCount, 1, `${where}: ${proxy.requestCount} requests`);
  }
}

const samples = JSON.parse(readFileSync(path.join(ROOT, 'samples/index.json'), 'utf8'));
assert.deepEqual(samples.map(({ id }) => id), Object.keys(RUNS), 'index.json and this script list the same samples');
const isInstalled = ({ id }) => spawnSync(RUNS[id].needs[0], RUNS[id].needs.slice(1), { stdio: 'ignore' }).status === 0;
const installed = samples.filter(isInstalled);
const skipped = samples.filter((sample) => !installed.includes(sample));

const deployment = await Deployment.start();
const proxy = await startProxy(deployment);
try {
  const cases = await createCases(deployment);
  for (const sample of installed) {
    const start = performance.now();
    await check(sample, RUNS[sample.id], cases, proxy);
    console.log(`${sample.title}: ${cases.length} runs in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  }
  if (installed.some(({ id }) => id === 'browser')) {
    await checkWebPage(deployment, proxy);
    console.log('Web page with tickets: passed');
  }
  const names = skipped.map(({ title }) => title).join(', ') || 'none';
  console.log(`samples: ${installed.length} passed, 0 failed; not installed: ${names}`);
} finally {
  proxy.close();
  proxy.closeAllConnections();
  await launched?.then((browser) => browser.close());
  await deployment.stop();
}
