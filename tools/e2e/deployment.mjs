// What the tests run against: the service with PostgreSQL and Redis, and an SMTP server. All of it ends with the tests.

import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { ProcessGroup, ROOT, TARGET, writeSealingKeys } from '../deployment.mjs';
import { Mailbox } from './mailbox.mjs';
import { CONNECTION_HEADERS } from './steps/public_pages.mjs';

export { TARGET };

export class Deployment extends ProcessGroup {
  // Starts everything. Files go into `folder`; the function that stops it is added to `cleanups`.
  static async start(folder, cleanups) {
    const deployment = new Deployment();
    cleanups.push(() => deployment.stop());
    const emails = path.join(folder, 'emails');
    mkdirSync(emails);
    // Outside the checkout, which may contain real geo data. The tests expect the records of the small database.
    const options = (name) => ({ cwd: folder, log: path.join(folder, `${name}.log`) });
    const smtp = ['python3', path.join(ROOT, 'tools/e2e/smtp.py'), emails];
    const smtpPort = Number(await deployment.start(smtp, options('smtp')));
    const settings = [
      `public.sealing_key_file=${writeSealingKeys(folder)}`,
      `mail.smtp_url=smtp://127.0.0.1:${smtpPort}`,
      'mail.from=Ipseity <ipseity@example.com>',
      // All steps come from one network.
      'mail.emails_per_subnet_per_10_min_max=1000',
      // A browser and a debug build keep the machine busy. These tests are not about timeouts under load.
      'ledger.timeout_ms=1000',
      ...CONNECTION_HEADERS.map((setting) => `edge.${setting}`),
    ];
    const dev = [path.join(TARGET, 'debug/dev'), '--json', ...settings.flatMap((setting) => ['--set', setting])];
    const info = JSON.parse(await deployment.start(dev, options('dev')));
    deployment.portal = info.portal;
    deployment.keys = info.keys;
    deployment.folder = folder;
    deployment.caFile = info.ca;
    deployment.ca = readFileSync(info.ca);
    deployment.storeUrl = info.env.IPSEITY__STORE__URL;
    deployment.env = info.env;
    deployment.mailbox = new Mailbox(emails);
    return deployment;
  }

  // Runs `ipseity` with these arguments.
  async cli(...args) {
    await promisify(execFile)(path.join(TARGET, 'debug/ipseity'), args, { env: { ...process.env, ...this.env } });
  }

  // Runs a statement in PostgreSQL. Rows are arrays of text.
  async sql(statement) {
    const options = ['-X', '-q', '-A', '-t', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-c', statement, this.storeUrl];
    const { stdout } = await promisify(execFile)('psql', options, { maxBuffer: 64 << 20 });
    return stdout.split('\n').filter(Boolean).map((line) => line.split('\t'));
  }
}
