// Starts the service for JavaScript checks: `dev --json` on free ports, with keys in every state and a failing node.

import { execFile, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const START_MAX_MS = 120_000;
const POLL_MS = 50;
const BURST_MAX = 300;
const CLOSED_PORT = '127.0.0.1:1';
// Checks do not test timeouts, so a busy machine must not cause any.
const LONG_TIMEOUTS = ['ledger.timeout_ms=5000', 'store.timeout_ms=10000', 'edge.request_timeout_ms=20000'];

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
// Cargo's target directory.
export const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target');

// Child processes that end with this one.
export class ProcessGroup {
  #children = [];

  // Starts a program. `stderr` is 'ignore', 'inherit' or a file descriptor.
  spawn(command, { cwd, env, stderr = 'ignore' }) {
    const options = { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', stderr] };
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', ...command], options);
    this.#children.push(child);
    return child;
  }

  // Starts a program and returns the first line that it prints. Its standard error goes to the file `log`, if given.
  async start(command, { log, ...options }) {
    const stderr = log ? openSync(log, 'a') : options.stderr;
    const child = this.spawn(command, { ...options, stderr });
    if (log) closeSync(stderr);
    const line = once(createInterface({ input: child.stdout }), 'line', { signal: AbortSignal.timeout(START_MAX_MS) });
    const exit = once(child, 'exit').then(() => Promise.reject(new Error('it exited')));
    exit.catch(() => {});
    line.catch(() => {});
    try {
      return (await Promise.race([line, exit]))[0];
    } catch (error) {
      const output = log ? `. Its log:\n${readFileSync(log, 'utf8')}` : '';
      throw new Error(`${command[0]} did not start: ${error.message}${output}`);
    }
  }

  // Ends the programs, the last one first.
  async stop() {
    for (const child of this.#children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exit = once(child, 'exit');
      child.kill('SIGTERM');
      await exit;
    }
  }
}

// What `dev --json` prints is assigned to the instance: http, https, portal, ca, keys, env.
export class Deployment extends ProcessGroup {
  // An empty directory, because geo databases in the checkout would change responses.
  dir = mkdtempSync(path.join(tmpdir(), 'ipseity-deployment-'));

  static async start({ settings = LONG_TIMEOUTS, stderr = 'inherit' } = {}) {
    const deployment = new Deployment();
    try {
      const sealing = `public.sealing_key_file=${writeSealingKeys(deployment.dir)}`;
      const dev = [path.join(TARGET, 'debug/dev'), '--json', ...[sealing, ...settings].flatMap((setting) => ['--set', setting])];
      return Object.assign(deployment, JSON.parse(await deployment.start(dev, { cwd: deployment.dir, stderr })));
    } catch (error) {
      await deployment.stop();
      throw error;
    }
  }

  async stop() {
    await super.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }

  // Runs `ipseity` with these arguments.
  async cli(...args) {
    const options = { env: { ...process.env, ...this.env }, cwd: this.dir };
    const { stdout } = await promisify(execFile)(path.join(TARGET, 'debug/ipseity'), args, options);
    return stdout;
  }

  // Issues a key on a new account: its key, id and account.
  async issueKey(scope, plan = 'free') {
    const account = `${randomUUID()}@example.com`;
    await this.cli('account', 'create', '--email', account, '--plan', plan);
    const json = await this.cli('key', 'issue', '--account', account, '--scope', scope, '--name', 'check', '--json');
    return { ...JSON.parse(json), account };
  }

  async deactivatedKey(scope) {
    const issued = await this.issueKey(scope);
    await this.cli('key', 'deactivate', issued.id);
    return issued;
  }

  // A key whose next request exceeds the burst limit and pauses it.
  async keyAtBurstLimit(scope) {
    const issued = await this.issueKey(scope);
    for (let sent = 0; sent < BURST_MAX; sent++) await this.#lookup(issued);
    return issued;
  }

  async pausedKey(scope) {
    const issued = await this.keyAtBurstLimit(scope);
    await this.#lookup(issued);
    return issued;
  }

  // A key that has used up its daily quota of one request.
  async exhaustedKey(scope) {
    const plan = `p${randomUUID().slice(0, 8)}`;
    await this.cli('plan', 'add', plan, '--daily-limit', '1');
    const issued = await this.issueKey(scope, plan);
    await this.#lookup(issued);
    return issued;
  }

  async exhaustDemo() {
    while ((await readStatus(await fetch(`${this.http}/api/v1/ip/demo`))) === 200);
  }

  // Starts a node without Redis and PostgreSQL, which responds to every lookup with 500. Returns its base URL.
  async startFailingNode() {
    const [http, https, ops] = await Promise.all([freeAddress(), freeAddress(), freeAddress()]);
    const env = {
      ...this.env,
      IPSEITY__EDGE__HTTP: http,
      IPSEITY__EDGE__HTTPS: https,
      IPSEITY__OPS__LISTEN: ops,
      IPSEITY__ADMIN__LISTEN: "",
      IPSEITY__LEDGER__URL: `redis://${CLOSED_PORT}`,
      IPSEITY__LEDGER__TIMEOUT_MS: '50',
      IPSEITY__STORE__URL: `postgres://${CLOSED_PORT}/none`,
      IPSEITY__STORE__TIMEOUT_MS: '50',
    };
    this.spawn([path.join(TARGET, 'debug/ipseity'), 'serve'], { cwd: this.dir, env }).stdout.resume();
    const deadline = Date.now() + START_MAX_MS;
    while (!(await fetch(`http://${ops}/live`).then((response) => response.ok, () => false))) {
      if (Date.now() > deadline) throw new Error('the failing node did not start');
      await sleep(POLL_MS);
    }
    return `http://${http}`;
  }

  async #lookup({ key }) {
    return readStatus(await fetch(`${this.http}/api/v1/ip`, { headers: { authorization: `Bearer ${key}` } }));
  }
}

// Writes the keys that seal tickets, and returns the path of the file.
export function writeSealingKeys(dir) {
  const file = path.join(dir, 'sealing-keys');
  writeFileSync(file, `seal ${randomBytes(32).toString('hex')}\n`);
  return file;
}

// Reads the whole response, so that its connection can be reused.
async function readStatus(response) {
  await response.text();
  return response.status;
}

// An address on which nothing listens.
export async function freeAddress() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return `127.0.0.1:${port}`;
}
