// What the tests run against: the service with PostgreSQL and Redis, and an SMTP server. All of it ends with the tests.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Mailbox } from './mailbox.mjs';
import { CONNECTION_HEADERS } from './steps/public_pages.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.resolve(HERE, '../..');
const START_MAX_MS = 120_000;

// The build directory.
export const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target');

export class Deployment {
  #children = [];

  // Starts everything. Files go into `folder`; the function that stops it is added to `cleanups`.
  static async start(folder, cleanups) {
    const deployment = new Deployment();
    cleanups.push(() => deployment.stop());
    const emails = path.join(folder, 'emails');
    mkdirSync(emails);
    const python = ['python3', path.join(HERE, 'smtp.py'), emails];
    const smtpPort = Number(await deployment.#spawn('the SMTP server', python, path.join(folder, 'smtp.log')));
    const settings = [
      `mail.smtp_url=smtp://127.0.0.1:${smtpPort}`,
      'mail.from=Ipseity <ipseity@example.com>',
      // A browser and a debug build keep the machine busy. These tests are not about timeouts under load.
      'ledger.timeout_ms=1000',
      ...CONNECTION_HEADERS.map((setting) => `edge.${setting}`),
    ];
    const dev = [path.join(TARGET, 'debug/dev'), '--json', ...settings.flatMap((setting) => ['--set', setting])];
    const info = JSON.parse(await deployment.#spawn('the service', dev, path.join(folder, 'dev.log')));
    deployment.portal = info.portal;
    deployment.keys = info.keys;
    deployment.ca = readFileSync(info.ca);
    deployment.storeUrl = info.env.IPSEITY__STORE__URL;
    deployment.mailbox = new Mailbox(emails);
    return deployment;
  }

  // Runs a statement in PostgreSQL. Rows are arrays of text.
  async sql(statement) {
    const options = ['-X', '-q', '-A', '-t', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-c', statement, this.storeUrl];
    const { stdout } = await promisify(execFile)('psql', options, { maxBuffer: 64 << 20 });
    return stdout.split('\n').filter(Boolean).map((line) => line.split('\t'));
  }

  async stop() {
    for (const child of this.#children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
    }
  }

  // Starts a program that cannot outlive the tests, and waits for its first line.
  async #spawn(name, command, log) {
    const errors = openSync(log, 'a');
    // Outside the checkout, which may contain real geo data. The tests expect the records of the small database.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', ...command], { cwd: path.dirname(log), stdio: ['ignore', 'pipe', errors] });
    closeSync(errors);
    this.#children.push(child);
    const line = once(createInterface({ input: child.stdout }), 'line', { signal: AbortSignal.timeout(START_MAX_MS) });
    const early = once(child, 'exit').then(() => Promise.reject(new Error('it exited')));
    try {
      return (await Promise.race([line, early]))[0];
    } catch (error) {
      throw new Error(`${name} did not start (${error.message}). Its log:\n${readFileSync(log, 'utf8')}`);
    } finally {
      early.catch(() => {});
      line.catch(() => {});
    }
  }
}
