// Everything that the tour runs against: the service with its own PostgreSQL and Redis, and a mail server. All of it ends with the tour.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Mailbox } from './mailbox.mjs';
import { REPORTED } from './steps/front.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.resolve(HERE, '../..');
const START_MAX_MS = 120_000;

// The folder that a build's files go to.
export const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? 'target');

export class House {
  #children = [];

  // Starts it all; its files go into `folder`, and how to end it into `ends`.
  static async start(folder, ends) {
    const house = new House();
    ends.push(() => house.end());
    const mails = path.join(folder, 'mails');
    mkdirSync(mails);
    const python = ['python3', path.join(HERE, 'smtp.py'), mails];
    const smtpPort = Number(await house.#begin('the mail server', python, path.join(folder, 'smtp.log')));
    const settings = [
      `mail.smtp_url=smtp://127.0.0.1:${smtpPort}`,
      'mail.from=Ipseity <ipseity@example.com>',
      // A browser beside an unoptimised build keeps the machine busy; how the service bears that is not the tour's question.
      'ledger.timeout_ms=1000',
      ...REPORTED.map((setting) => `edge.${setting}`),
    ];
    const dev = [path.join(TARGET, 'debug/dev'), '--json', ...settings.flatMap((setting) => ['--set', setting])];
    const shown = JSON.parse(await house.#begin('the service', dev, path.join(folder, 'dev.log')));
    house.portal = shown.portal;
    house.keys = shown.keys;
    house.authority = readFileSync(shown.ca);
    house.storeUrl = shown.env.IPSEITY__STORE__URL;
    house.mailbox = new Mailbox(mails);
    return house;
  }

  // Asks PostgreSQL; rows come back as arrays of text.
  async sql(statement) {
    const options = ['-X', '-q', '-A', '-t', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-c', statement, this.storeUrl];
    const { stdout } = await promisify(execFile)('psql', options, { maxBuffer: 64 << 20 });
    return stdout.split('\n').filter(Boolean).map((line) => line.split('\t'));
  }

  async end() {
    for (const child of this.#children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      await ended;
    }
  }

  // Starts a program that cannot outlive the tour, and waits for its first line.
  async #begin(name, command, log) {
    const errors = openSync(log, 'a');
    // Away from the project's own folder, where real geo data may lie: the tour knows what the small database says.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', ...command], { cwd: path.dirname(log), stdio: ['ignore', 'pipe', errors] });
    closeSync(errors);
    this.#children.push(child);
    const line = once(createInterface({ input: child.stdout }), 'line', { signal: AbortSignal.timeout(START_MAX_MS) });
    const early = once(child, 'exit').then(() => Promise.reject(new Error('it ended')));
    try {
      return (await Promise.race([line, early]))[0];
    } catch (error) {
      throw new Error(`${name} did not start (${error.message}); it says:\n${readFileSync(log, 'utf8')}`);
    } finally {
      early.catch(() => {});
      line.catch(() => {});
    }
  }
}
