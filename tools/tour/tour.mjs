// A tour of the portal in a real browser, against the built service: once by keyboard alone, once without script.
//
// Usage: node tour.mjs [--short] [--shots DIR]. `just tour` builds and installs what it needs first.

import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { Browser } from './browser.mjs';
import { Elsewhere } from './elsewhere.mjs';
import { Gallery } from './gallery.mjs';
import { keyboard, mouse } from './hands.mjs';
import { House, TARGET } from './house.mjs';
import { Report } from './report.mjs';
import { passkeys, sessions, settings } from './steps/account.mjs';
import { beIn, comeAndGo, forgotten, signUp } from './steps/door.mjs';
import { farewell } from './steps/farewell.mjs';
import * as front from './steps/front.mjs';
import * as keys from './steps/keys.mjs';
import { live } from './steps/live.mjs';
import { looks, publicPages } from './steps/looks.mjs';
import { pauseAll, remember, resumeAll } from './steps/past.mjs';
import { pause } from './steps/pause.mjs';
import { speed } from './steps/speed.mjs';
import { usage } from './steps/usage.mjs';
import { weight } from './steps/weight.mjs';
import { Visitor } from './visitor.mjs';

const { values: options } = parseArgs({
  options: { short: { type: 'boolean' }, shots: { type: 'string', default: path.join(TARGET, 'tour') } },
});

// Someone with a browser of their own.
async function arrive(tour, hands, details) {
  const context = await tour.browser.context({ javaScriptEnabled: details.scripted });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: tour.house.portal });
  return Object.assign(new Visitor(await context.newPage(), hands, tour.house), details);
}

// All that a member can do, from signing up to the last trace.
async function life(tour, title, hands, details) {
  const member = await arrive(tour, hands, details);
  const { report } = tour;
  await report.chapter(`${title}: the door`, () => signUp(tour, member));
  const inside = (name, act) =>
    report.chapter(`${title}: ${name}`, async () => {
      await beIn(member);
      await act();
    });
  await inside('a key', async () => {
    await keys.first(tour, member);
    await pause(tour, member);
    await keys.changes(tour, member);
    if (member.scripted) await live(tour, member);
    await keys.removal(tour, member);
    await keys.ten(tour, member);
  });
  await inside('usage', () => usage(tour, member));
  await inside('the account', async () => {
    await settings(tour, member);
    const other = await arrive(tour, hands, details);
    await sessions(tour, member, other);
    await other.page.context().close();
    if (member.scripted) await passkeys(tour, member);
  });
  await inside('in and out', async () => {
    await comeAndGo(tour, member);
    await forgotten(tour, member);
  });
  if (member.scripted) await inside('weight and speed', () => measures(tour, member));
  await inside('farewell', () => farewell(tour, member));
  await member.page.context().close();
}

async function measures(tour, member) {
  const closed = ['/', '/docs', '/docs/errors', '/reference', '/enterprise', '/signup', '/signin', '/forgot'];
  const own = ['/keys', '/keys/new', member.keyPath, `${member.keyPath}/delete`, '/usage', '/account', '/account/delete'];
  await remember(tour.house, member, 30);
  await weight(tour, member, [...closed, ...own]);
  await tour.gallery.keepFrom(member, '/usage', 'usage-month');
  await tour.gallery.keepFrom(member, member.keyPath, 'key-month');
  await speed(tour, member, [...closed, ...own, '/usage.csv'], ' with 30 days of data');
  await remember(tour.house, member, 400);
  await speed(tour, member, [...own, '/usage.csv'], ' with 400 days of data');
  await pauseAll(tour.house, member);
  await weight(tour, member, ['/keys'], ' with ten paused keys');
  await speed(tour, member, ['/keys'], ' with ten paused keys');
  await tour.gallery.keepFrom(member, '/keys', 'keys-all-paused');
  await resumeAll(tour.house, member);
}

async function manners({ report, browser }) {
  const none = (found) => { if (found.size) throw new Error([...found].join('\n')); };
  await report.claim('no page complained in the console, and none broke its policy', () => none(browser.complaints));
  await report.claim('every page had a policy', () => none(browser.unguarded));
  await report.claim('no page asked another host for anything', () => none(browser.strangers));
  await report.claim('whatever Tab reached showed it', () => none(keyboard.unseen));
}

async function main() {
  const shots = path.resolve(options.shots);
  mkdirSync(shots, { recursive: true });
  for (const name of readdirSync(shots).filter((name) => name.endsWith('.png'))) rmSync(path.join(shots, name));
  const folder = mkdtempSync(path.join(tmpdir(), 'tour-'));
  const ends = [() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 })];
  const endAll = async () => { for (const act of ends.splice(0).reverse()) await act(); };
  let ended;
  const end = () => (ended ??= endAll());
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => end().finally(() => process.exit(1)));
  try {
    const house = await House.start(folder, ends);
    const browser = await Browser.start(house, folder);
    ends.push(() => browser.end());
    const elsewhere = await Elsewhere.open(browser, house);
    ends.push(() => elsewhere.end());
    const report = new Report((name) => browser.picture(path.join(shots, name)));
    const tour = { options, house, browser, elsewhere, report, gallery: new Gallery(browser, shots) };
    await report.chapter('the front door', async () => {
      const visitor = await arrive(tour, mouse, { scripted: true });
      await front.landing(tour, visitor);
      await front.reference(tour, visitor);
      await front.documentation(tour, visitor);
      // Before the demo is spent.
      await front.withoutScript(tour, await arrive(tour, mouse, { scripted: false }));
      await front.demo(tour, visitor);
    });
    await life(tour, 'by keyboard alone', keyboard, { scripted: true, email: 'ada@example.com', password: 'a long way to Tipperary' });
    await life(tour, 'without script', mouse, { scripted: false, email: 'bob@example.com', password: 'two ways to Tipperary' });
    await report.chapter('looks', async () => {
      await publicPages(tour, await arrive(tour, mouse, { scripted: true }));
      await looks(tour);
    });
    await report.chapter('manners', () => manners(tour));
    cpSync(house.mailbox.folder, path.join(shots, 'mails'), { recursive: true });
    console.log(`\nscreenshots and mails in ${shots}; ${(performance.now() / 1000).toFixed()} s in all`);
    return report.end();
  } finally {
    await end();
  }
}

process.exitCode = (await main()) ? 0 : 1;
