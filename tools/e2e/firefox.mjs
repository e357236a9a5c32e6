// Checks keys and tickets in web pages once more, in the Firefox of Debian. Playwright needs a patched Firefox, so
// Puppeteer controls this one.
//
// Usage: node firefox.mjs. `just e2e-firefox` builds and installs what it needs first.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

import puppeteer from 'puppeteer-core';

import { Deployment } from './deployment.mjs';
import { Report } from './report.mjs';
import { webKeys } from './steps/web_keys.mjs';
import { webPage } from './steps/web_page.mjs';

async function main() {
  const folder = mkdtempSync(path.join(tmpdir(), 'ipseity-e2e-'));
  const cleanups = [() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 })];
  try {
    const deployment = await Deployment.start(folder, cleanups);
    const env = { ...process.env, HOME: folder, TMPDIR: folder };
    const firefox = await puppeteer.launch({ browser: 'firefox', executablePath: '/usr/bin/firefox-esr', acceptInsecureCerts: true, env });
    cleanups.push(() => firefox.close());
    console.log(await firefox.version());
    const report = new Report(async () => {});
    const context = { report, deployment, browser: { context: () => firefox.createBrowserContext() } };
    await report.group('a key in a web page', () => webKeys(context));
    await report.group('a web page with tickets', () => webPage(context));
    return report.finish();
  } finally {
    for (const act of cleanups.reverse()) await act();
  }
}

process.exitCode = (await main()) ? 0 : 1;
