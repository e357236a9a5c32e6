// The real service for checks that are written in JavaScript: `dev --json` on free ports, keys in every state, and a
// node that can only fail.

import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const START_MAX_MS = 120_000;
const POLL_MS = 50;
const BURST_MAX = 300;
const CLOSED = '127.0.0.1:1';

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
// The folder that a build's files go to.
export const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target');

export class House {
  // An empty one, so that no geo data of the checkout changes an answer.
  folder = mkdtempSync(path.join(tmpdir(), 'ipseity-house-'));
  #children = [];

  static async start() {
    const house = new House();
    try {
      // How the service bears a busy machine is not the question here.
      const settings = ['ledger.timeout_ms=5000', 'store.timeout_ms=10000', 'edge.request_timeout_ms=20000'];
      const dev = house.#begin('dev', ['--json', ...settings.flatMap((setting) => ['--set', setting])], {});
      const line = once(createInterface({ input: dev.stdout }), 'line', { signal: AbortSignal.timeout(START_MAX_MS) });
      const early = once(dev, 'exit').then(() => Promise.reject(new Error('the service did not start')));
      const [shown] = await Promise.race([line, early]);
      early.catch(() => {});
      Object.assign(house, JSON.parse(shown));
      return house;
    } catch (error) {
      await house.end();
      throw error;
    }
  }

  // Runs `ipseity` with these arguments on this house.
  async cli(...words) {
    const env = { ...process.env, ...this.env };
    const { stdout } = await promisify(execFile)(path.join(TARGET, 'debug/ipseity'), words, { env, cwd: this.folder });
    return stdout;
  }

  // A key that nobody else uses, with its id and its account.
  async issue(scope, plan = 'free') {
    const account = `${randomUUID()}@example.com`;
    await this.cli('account', 'create', '--email', account, '--plan', plan);
    const shown = await this.cli('key', 'issue', '--account', account, '--scope', scope, '--name', 'check', '--json');
    return { ...JSON.parse(shown), account };
  }

  async deactivated(scope) {
    const issued = await this.issue(scope);
    await this.cli('key', 'deactivate', issued.id);
    return issued;
  }

  // A key that has made all the requests that a minute allows: its next one pauses it.
  async hurried(scope) {
    const issued = await this.issue(scope);
    for (let sent = 0; sent < BURST_MAX; sent++) await this.#spend(issued);
    return issued;
  }

  async paused(scope) {
    const issued = await this.hurried(scope);
    await this.#spend(issued);
    return issued;
  }

  // A key whose day is used up.
  async spent(scope) {
    const plan = `p${randomUUID().slice(0, 8)}`;
    await this.cli('plan', 'add', plan, '--daily-limit', '1');
    const issued = await this.issue(scope, plan);
    await this.#spend(issued);
    return issued;
  }

  // Asks for the demo until its day is used up.
  async spendDemo() {
    while ((await this.#read(await fetch(`${this.http}/api/v1/ip/demo`))) === 200);
  }

  // The address of one more node, which reaches neither store and so answers every lookup with 500.
  async failing() {
    const [http, https, ops] = await Promise.all([freePort(), freePort(), freePort()]);
    this.#begin('ipseity', ['serve'], {
      ...this.env,
      IPSEITY__EDGE__HTTP: http,
      IPSEITY__EDGE__HTTPS: https,
      IPSEITY__OPS__LISTEN: ops,
      IPSEITY__LEDGER__URL: `redis://${CLOSED}`,
      IPSEITY__LEDGER__TIMEOUT_MS: '50',
      IPSEITY__STORE__URL: `postgres://${CLOSED}/none`,
      IPSEITY__STORE__TIMEOUT_MS: '50',
    });
    const deadline = Date.now() + START_MAX_MS;
    while (!(await fetch(`http://${ops}/live`).then((answer) => answer.ok, () => false))) {
      if (Date.now() > deadline) throw new Error('the node without stores did not start');
      await pause(POLL_MS);
    }
    return `http://${http}`;
  }

  async end() {
    for (const child of this.#children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #spend({ key }) {
    return this.#read(await fetch(`${this.http}/api/v1/ip`, { headers: { authorization: `Bearer ${key}` } }));
  }

  // Takes the whole answer, so that its connection is free again.
  async #read(answer) {
    await answer.text();
    return answer.status;
  }

  // Starts a program of the build that cannot outlive this one.
  #begin(program, words, env) {
    const command = ['--pdeathsig', 'TERM', path.join(TARGET, 'debug', program), ...words];
    // `dev` tells its steps, and a node its log, in which a failing one has nothing new to say.
    const stdio = ['ignore', program === 'dev' ? 'pipe' : 'ignore', program === 'dev' ? 'inherit' : 'ignore'];
    const child = spawn('setpriv', command, { cwd: this.folder, env: { ...process.env, ...env }, stdio });
    this.#children.push(child);
    return child;
  }
}

// An address of this machine on which nothing listens.
async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return `127.0.0.1:${port}`;
}
