// Runs every sample whose language is installed against the real service. Checks its output and its number of requests.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import https from 'node:https';
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

// The programs on the page of a new key. Rust is only compiled: its file has the placeholders.
const SNIPPETS = {
  'curl.sh': RUNS.curl,
  'javascript.mjs': RUNS.node,
  'python.py': RUNS.python,
  'go.go': RUNS.go,
  'php.php': { command: ['php'], needs: ['php', '--version'] },
};

async function checkSnippets(deployment, proxy) {
  for (const [name, runs] of Object.entries(SNIPPETS).filter(([, runs]) => isInstalled(runs))) {
    const text = readFileSync(path.join(ROOT, 'crates/portal/snippets', name), 'utf8');
    const file = path.join(deployment.dir, name);
    writeFileSync(file, text.replaceAll('https://ip.example', proxy.url).replaceAll('ips_…', deployment.keys.ip));
    proxy.requestCount = 0;
    const result = await runInShell(runs, file, {});
    assert.ok(result.ok && result.out.includes(CLIENT), `${name}: ${JSON.stringify(result)}`);
    assert.equal(proxy.requestCount, 1, name);
  }
}

// What each recipe prints for a caller in the United States, and without an answer or a service.
const RECIPES = {
  'currency.mjs': [/^\$10\.00$/, /^\$10\.00$/],
  'consent.mjs': [/^No banner$/, /^Show the banner$/],
  'time_zone.mjs': [/^\d+:\d\d [AP]M \(America\/\w+\)$/, /^\d+:\d\d [AP]M \(UTC\)$/],
};

async function checkRecipes(deployment, proxy) {
  for (const [name, outputs] of Object.entries(RECIPES)) {
    const text = readFileSync(path.join(ROOT, 'samples/recipes', name), 'utf8');
    const [answered, unanswered] = outputs;
    for (const [url, key, output, requests] of [
      [proxy.url, deployment.keys.geo, answered, 1],
      [proxy.url, UNKNOWN_KEY, unanswered, 1],
      ['https://127.0.0.1:1', UNKNOWN_KEY, unanswered, 0],
    ]) {
      const file = path.join(deployment.dir, name);
      writeFileSync(file, text.replaceAll('https://ip.example', url).replaceAll('ips_…', key));
      proxy.requestCount = 0;
      const result = await runInShell({ command: ['node'] }, file, {});
      assert.ok(result.ok && output.test(result.out), `${name}: ${JSON.stringify(result)}`);
      assert.equal(proxy.requestCount, requests, name);
    }
  }
}

// The commands of the reference. This deployment has no host names for one address family, so it gives no tokens for pairing.
async function checkReference(deployment, proxy) {
  const page = await readPage(deployment, '/reference');
  const characters = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#x27;': "'", '&#39;': "'", '&amp;': '&' };
  const unescape = (html) => html.replace(/<[^>]+>/g, '').replace(/&[^;]+;/g, (name) => characters[name]);
  const commands = [...page.matchAll(/<code id="(?:curl-\w+|code-lookup-curl)"[^>]*>(.*?)<\/code>/gs)].map(([, html]) => unescape(html));
  assert.ok(commands.length >= 8, `${commands.length} commands`);
  const file = path.join(deployment.dir, 'reference.sh');
  for (const command of commands.filter((command) => !command.endsWith('/api/v1/pair'))) {
    writeFileSync(file, command.replaceAll(deployment.portal, proxy.url).replaceAll('<API_KEY>', deployment.keys.geo));
    const result = await runInShell(RUNS.curl, file, {});
    assert.ok(result.ok && result.out.length > 20 && !result.out.startsWith('{"error":'), `${command}: ${JSON.stringify(result)}`);
  }
}

async function readPage(deployment, target) {
  const [response] = await once(https.get(new URL(target, deployment.portal), { ca: readFileSync(deployment.ca) }), 'response');
  return text(response);
}

// It runs the command when the address is new, again after the command failed, and not while the address stays.
async function checkDynamicDns(deployment, proxy) {
  const env = { IPSEITY_KEY: deployment.keys.ip, IPSEITY_URL: proxy.url, XDG_STATE_HOME: path.join(deployment.dir, 'state') };
  const script = path.join(ROOT, 'samples/recipes/dynamic_dns.sh');
  const run = (command, changed = {}) => runInShell({ command: ['bash', script, ...command], program: 'home' }, '', { ...env, ...changed });
  assert.equal((await run(['false'])).ok, false, 'a failure of the command is a failure');
  const unknown = await run(['echo'], { IPSEITY_KEY: UNKNOWN_KEY });
  assert.deepEqual([unknown.ok, unknown.out], [false, ''], 'without an address, the command does not run');
  for (const out of [`home ${CLIENT}`, '']) {
    const result = await run(['echo']);
    assert.deepEqual(result, { out, err: '', ok: true });
  }
}

const isInstalled = ({ needs: [name, ...args] }) => spawnSync(name, args, { stdio: 'ignore' }).status === 0;
const samples = JSON.parse(readFileSync(path.join(ROOT, 'samples/index.json'), 'utf8'));
assert.deepEqual(samples.map(({ id }) => id), Object.keys(RUNS), 'index.json and this script list the same samples');
const installed = samples.filter(({ id }) => isInstalled(RUNS[id]));
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
  await checkSnippets(deployment, proxy);
  console.log('programs on the page of a new key: passed');
  await checkRecipes(deployment, proxy);
  if (isInstalled(RUNS.curl)) await checkDynamicDns(deployment, proxy);
  await checkReference(deployment, proxy);
  console.log('recipes and commands of the reference: passed');
  const names = skipped.map(({ title }) => title).join(', ') || 'none';
  console.log(`samples: ${installed.length} passed, 0 failed; not installed: ${names}`);
} finally {
  proxy.close();
  proxy.closeAllConnections();
  await launched?.then((browser) => browser.close());
  await deployment.stop();
}
