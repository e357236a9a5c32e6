// What the tests run against: the service with PostgreSQL and Redis, and an SMTP server. All of it ends with the tests.

import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { ProcessGroup, ROOT, TARGET, freeAddress, writeSealingKeys } from '../deployment.mjs';
import { Mailbox } from './mailbox.mjs';
import { CONNECTION_HEADERS } from './steps/public_pages.mjs';

export { TARGET };

// Of the portal and the admin console at the provider.
const CLIENT_SECRET = 'a secret of tests';

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
    const webhooks = path.join(folder, 'webhooks');
    mkdirSync(webhooks);
    const receiver = ['python3', path.join(ROOT, 'tools/e2e/webhook.py'), webhooks];
    const webhookPort = Number(await deployment.start(receiver, options('webhooks')));
    const adminAddress = await freeAddress();
    deployment.console = `http://localhost:${adminAddress.split(':')[1]}`;
    const issuer = `${await deployment.start(['node', path.join(ROOT, 'tools/oidc/provider.mjs')], options('oidc'))}/company`;
    const secretFile = writeSecret(folder);
    const provider = (section, client) => [
      `${section}.oidc_name=Company`,
      `${section}.oidc_issuer=${issuer}`,
      `${section}.oidc_client_id=${client}`,
      `${section}.oidc_client_secret_file=${secretFile}`,
    ];
    const settings = [
      `admin.listen=${adminAddress}`,
      ...provider('admin', 'console'),
      ...provider('portal', 'portal'),
      `public.sealing_key_file=${writeSealingKeys(folder)}`,
      `mail.smtp_url=smtp://127.0.0.1:${smtpPort}`,
      'mail.from=Ipseity <ipseity@example.com>',
      'alerts.allowed_networks=127.0.0.0/8',
      // All steps come from one network.
      'mail.emails_per_subnet_per_10_min_max=1000',
      // A browser and a debug build keep the machine busy. These tests are not about timeouts under load.
      'ledger.timeout_ms=1000',
      ...CONNECTION_HEADERS.map((setting) => `edge.${setting}`),
    ];
    const dev = [path.join(TARGET, 'debug/dev'), '--json', ...settings.flatMap((setting) => ['--set', setting])];
    const info = JSON.parse(await deployment.start(dev, options('dev')));
    deployment.http = info.http;
    deployment.portal = info.portal;
    await deployment.#registerClients(issuer);
    deployment.nodeLog = info.log;
    deployment.keys = info.keys;
    deployment.folder = folder;
    deployment.caFile = info.ca;
    deployment.ca = readFileSync(info.ca);
    deployment.storeUrl = info.env.IPSEITY__STORE__URL;
    deployment.env = info.env;
    deployment.mailbox = new Mailbox(emails);
    Object.assign(deployment, { webhooks, webhookUrl: `http://127.0.0.1:${webhookPort}/hook` });
    return deployment;
  }

  // Registers the portal and the admin console with the OpenID Connect provider.
  async #registerClients(issuer) {
    const client = (id, site) => ({ client_id: id, client_secret: CLIENT_SECRET, redirect_uris: [`${site}/signin/callback/oidc`] });
    const clients = [client('console', this.console), client('portal', this.portal)];
    const accounts = { ada: { email: 'ada@example.com', email_verified: true } };
    const response = await fetch(issuer, { method: 'PUT', body: JSON.stringify({ clients, accounts }) });
    if (!response.ok) throw new Error(`the provider responded with ${response.status}`);
  }

  // Runs `ipseity` with these arguments.
  async cli(...args) {
    const options = { env: { ...process.env, ...this.env } };
    const { stdout } = await promisify(execFile)(path.join(TARGET, 'debug/ipseity'), args, options);
    return stdout;
  }

  // Runs a statement in PostgreSQL. Rows are arrays of text.
  async sql(statement) {
    const options = ['-X', '-q', '-A', '-t', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-c', statement, this.storeUrl];
    const { stdout } = await promisify(execFile)('psql', options, { maxBuffer: 64 << 20 });
    return stdout.split('\n').filter(Boolean).map((line) => line.split('\t'));
  }
}

function writeSecret(folder) {
  const file = path.join(folder, 'client-secret');
  writeFileSync(file, `${CLIENT_SECRET}\n`);
  return file;
}
