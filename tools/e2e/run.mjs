// Browser tests of the portal against the built service: once with the keyboard only, once without scripts.
//
// Usage: node run.mjs [--short] [--screenshots DIR]. `just e2e` builds and installs what it needs first.

import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { Browser } from './browser.mjs';
import { CrossOriginClient } from './cross_origin_client.mjs';
import { Deployment, TARGET } from './deployment.mjs';
import { keyboard, mouse } from './input.mjs';
import { Report } from './report.mjs';
import { Snapshots } from './snapshots.mjs';
import { passkeys, sessions, settings } from './steps/account.mjs';
import { deleteAccount } from './steps/account_deletion.mjs';
import { alerts } from './steps/alerts.mjs';
import { ensureSignedIn, resetPassword, signInAndOut, signUp } from './steps/auth_pages.mjs';
import { adminConsole } from './steps/console.mjs';
import { docsCode } from './steps/docs_code.mjs';
import { waitingKey } from './steps/first_request.mjs';
import { changeKey, deleteKey, firstKey, keyLimit, keyMenu } from './steps/keys.mjs';
import { linkedAccounts } from './steps/linked_accounts.mjs';
import { liveUpdates } from './steps/live_updates.mjs';
import { pageSizes } from './steps/page_size.mjs';
import { pause } from './steps/pause.mjs';
import { demo, docsShortcuts, documentation, landing, reference, withoutScripts } from './steps/public_pages.mjs';
import { responseTimes } from './steps/response_time.mjs';
import { restrictKey, restrictNewKey } from './steps/restrictions.mjs';
import { savePlainPages, themeChoice, themes } from './steps/themes.mjs';
import { twoFactor } from './steps/two_factor.mjs';
import { usage } from './steps/usage.mjs';
import { pauseAllKeys, resumeAllKeys, seedUsage } from './steps/usage_history.mjs';
import { webKeys } from './steps/web_keys.mjs';
import { webPage } from './steps/web_page.mjs';
import { Visitor } from './visitor.mjs';

const { values: options } = parseArgs({
  options: { short: { type: 'boolean' }, screenshots: { type: 'string', default: path.join(TARGET, 'e2e') } },
});

// Opens a separate browser context for a person.
async function openVisitor(context, input, details) {
  const profile = await context.browser.context({ javaScriptEnabled: details.scripted });
  await profile.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: context.deployment.portal });
  return Object.assign(new Visitor(await profile.newPage(), input, context.deployment), details);
}

// Everything that a member can do, from sign-up to the deletion of the account.
async function testMember(context, title, input, details) {
  const member = await openVisitor(context, input, details);
  const { report } = context;
  await report.group(`${title}: sign-up`, () => signUp(context, member));
  const signedIn = (name, act) =>
    report.group(`${title}: ${name}`, async () => {
      await ensureSignedIn(member);
      await act();
    });
  await signedIn('keys', async () => {
    await firstKey(context, member);
    await pause(context, member);
    await changeKey(context, member);
    await restrictKey(context, member);
    await restrictNewKey(context, member);
    if (member.scripted) {
      await liveUpdates(context, member);
      await waitingKey(context, member);
    }
    await keyMenu(context, member);
    await deleteKey(context, member);
    await keyLimit(context, member);
  });
  await signedIn('usage', () => usage(context, member));
  await signedIn('account', async () => {
    await settings(context, member);
    await linkedAccounts(context, member);
    await alerts(context, member);
    const other = await openVisitor(context, input, details);
    await sessions(context, member, other);
    await other.page.context().close();
    if (member.scripted) await passkeys(context, member);
    await twoFactor(context, member);
  });
  await signedIn('sign-in and sign-out', async () => {
    await signInAndOut(context, member);
    await resetPassword(context, member);
  });
  if (member.scripted) await signedIn('page sizes and response times', () => measurePages(context, member));
  await signedIn('account deletion', () => deleteAccount(context, member));
  await member.page.context().close();
}

async function measurePages(context, member) {
  const publicPages = ['/', '/docs', '/docs/errors', '/reference', '/enterprise', '/status', '/forgot'];
  const memberPages = ['/keys', '/keys/new', member.keyPath, `${member.keyPath}/delete`, '/usage', '/account', '/account/alerts', '/account/sign-in', '/account/two-factor', '/account/delete'];
  await seedUsage(context.deployment, member, 30);
  await pageSizes(context, member, [...publicPages, ...memberPages]);
  await context.snapshots.saveUrl(member, '/usage', 'usage-month');
  await context.snapshots.saveUrl(member, member.keyPath, 'key-month');
  await responseTimes(context, member, [...publicPages, ...memberPages, '/usage.csv'], ' with 30 days of data');
  await seedUsage(context.deployment, member, 400);
  const explorer = ['24h', '7d', '400d'].map((range) => `/usage?range=${range}`);
  await pageSizes(context, member, explorer, ' with 400 days of data');
  await responseTimes(context, member, [...memberPages, '/usage.csv'], ' with 400 days of data');
  for (const range of ['24h', '7d', '400d']) await context.snapshots.saveUrl(member, `/usage?range=${range}`, `usage-${range}`);
  await context.snapshots.saveUrl(member, `/usage?key=${member.keyPath.split('/').pop()}`, 'usage-key');
  await pauseAllKeys(context.deployment, member);
  await pageSizes(context, member, ['/keys'], ' with ten paused keys');
  await responseTimes(context, member, ['/keys'], ' with ten paused keys');
  await context.snapshots.saveUrl(member, '/keys', 'keys-all-paused');
  await resumeAllKeys(context.deployment, member);
}

async function checkBrowserFindings({ report, browser }) {
  const expectNone = (found) => { if (found.size) throw new Error([...found].join('\n')); };
  await report.check('no page logged an error or violated its CSP', () => expectNone(browser.consoleErrors));
  await report.check('every page has a CSP', () => expectNone(browser.pagesWithoutCsp));
  await report.check('no page sent a request to another host', () => expectNone(browser.foreignRequests));
  await report.check('every focused element has a focus style', () => expectNone(keyboard.withoutFocusStyle));
}

async function main() {
  const screenshots = path.resolve(options.screenshots);
  mkdirSync(screenshots, { recursive: true });
  for (const name of readdirSync(screenshots).filter((name) => name.endsWith('.png'))) rmSync(path.join(screenshots, name));
  const folder = mkdtempSync(path.join(tmpdir(), 'ipseity-e2e-'));
  const cleanups = [() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 })];
  const runCleanups = async () => { for (const act of cleanups.splice(0).reverse()) await act(); };
  let cleaned;
  const cleanUp = () => (cleaned ??= runCleanups());
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => cleanUp().finally(() => process.exit(1)));
  try {
    const deployment = await Deployment.start(folder, cleanups);
    const browser = await Browser.start(deployment, folder);
    cleanups.push(() => browser.close());
    const api = await CrossOriginClient.open(browser, deployment);
    cleanups.push(() => api.close());
    const report = new Report((name) => browser.takeScreenshot(path.join(screenshots, name)));
    const context = { options, deployment, browser, api, report, snapshots: new Snapshots(browser, screenshots) };
    await report.group('public pages', async () => {
      const visitor = await openVisitor(context, mouse, { scripted: true });
      await landing(context, visitor);
      await reference(context, visitor);
      await documentation(context, visitor);
      await docsShortcuts(context, visitor);
      await themeChoice(context, visitor);
      await docsCode(context, visitor);
      // Before the demo quota is exhausted.
      await withoutScripts(context, await openVisitor(context, mouse, { scripted: false }));
      await demo(context, visitor);
    });
    await report.group('a key in a web page', () => webKeys(context));
    await report.group('a web page with tickets', () => webPage(context));
    await testMember(context, 'keyboard only', keyboard, { scripted: true, email: 'ada@example.com', password: 'a long way to Tipperary' });
    await testMember(context, 'without scripts', mouse, { scripted: false, email: 'bob@example.com', password: 'two ways to Tipperary' });
    await report.group('admin console: keyboard only', () => adminConsole(context));
    await report.group('themes', async () => {
      await savePlainPages(context, await openVisitor(context, mouse, { scripted: true }));
      await themes(context);
    });
    await report.group('browser findings', () => checkBrowserFindings(context));
    cpSync(deployment.mailbox.folder, path.join(screenshots, 'emails'), { recursive: true });
    console.log(`\nscreenshots and emails are in ${screenshots}; ${(performance.now() / 1000).toFixed()} s in total`);
    return report.finish();
  } finally {
    await cleanUp();
  }
}

process.exitCode = (await main()) ? 0 : 1;
