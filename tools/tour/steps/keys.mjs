// Keys: made, copied, renamed, deactivated, reactivated, rolled, deleted; ten at the most.

import { idOf } from '../elsewhere.mjs';
import { eventually } from '../wait.mjs';

const CLEAR = /ips_[0-9A-Za-z]{48}/;
const HOSTILE = 'Der Schlüssel <b>№ 1</b>';
// With the first and one of two rivals, ten.
const OTHERS = ['Blog', 'Mobile app', 'Staging', 'Fraud rules', 'Newsletter', 'Support desk', 'Price tables', 'Laptop'];

// Makes a key and gives it in clear, as its page shows it once.
export async function mint(member, name, scope) {
  if (!(await member.has('a[href="/keys/new"]'))) await member.visit('/keys');
  await member.follow('/keys/new');
  await member.submit('/keys', { name, scope });
  return clearKey(member);
}

async function clearKey(member) {
  const text = await member.text();
  const found = text.match(CLEAR);
  if (!found) throw new Error(`no key on ${member.path}:\n${text}`);
  return found[0];
}

export async function first({ report, gallery, elsewhere }, member) {
  await report.must('a new key of scope full is shown in clear', async () => {
    await member.visit('/keys');
    await member.follow('/keys/new');
    await gallery.keep(member.page, 'key-new');
    await member.submit('/keys', { name: 'Checkout', scope: 'full' });
    member.key = await clearKey(member);
    member.keyPath = `/keys/${idOf(member.key)}`;
    await member.reads('curl');
    await gallery.keep(member.page, 'key-minted');
  });
  if (member.scripted) await report.claim('the copy button puts it into the clipboard', () => copy(member));
  await report.claim('it is not shown a second time', async () => {
    await member.visit(member.keyPath);
    if ((await member.page.content()).includes(member.key)) throw new Error('the page of the key shows it again');
  });
  await report.must('a page elsewhere reads the body and every limit from script', async () => {
    const { status, body, limits, atMs } = await elsewhere.call(member.key);
    member.firstCallMs = atMs;
    if (status !== 200 || body.status !== 'success') throw new Error(`${status} ${JSON.stringify(body)}`);
    const unread = Object.keys(limits).filter((name) => limits[name] === null);
    if (unread.length) throw new Error(`not readable: ${unread}`);
    return `${limits['x-ratelimit-remaining']} of ${limits['x-ratelimit-limit']} left`;
  });
}

async function copy(member) {
  await member.hands.press(member.page, '[data-copy] >> nth=0');
  const isCopied = async () => (await member.page.evaluate(() => navigator.clipboard.readText())) === member.key;
  await eventually('the clipboard holds the key shown', isCopied);
}

export async function changes({ report, gallery, elsewhere }, member) {
  const { key, keyPath } = member;
  await report.claim('a deactivated key is refused with 403 at once', async () => {
    await member.visit('/keys');
    await member.follow(keyPath);
    await gallery.keep(member.page, 'key');
    await member.submit(`${keyPath}/deactivate`);
    await elsewhere.expect([key, 403]);
    await gallery.keep(member.page, 'key-inactive');
    await member.visit('/keys');
    await gallery.keep(member.page, 'keys-inactive');
  });
  await report.claim('a reactivated one is answered at once', async () => {
    await member.visit(keyPath);
    await member.submit(`${keyPath}/reactivate`);
    await elsewhere.expect([key, 200]);
  });
  await report.must('a rolled key has two secrets for a day', async () => {
    await member.visit(keyPath);
    await member.submit(`${keyPath}/roll`, { overlap_s: '86400' });
    member.key = await clearKey(member);
    await gallery.keep(member.page, 'key-rolled-minted');
    await elsewhere.expect([key, 200], [member.key, 200]);
  });
  await report.claim('the old one is ended before its time, the new one stays', async () => {
    await member.visit(keyPath);
    await gallery.keep(member.page, 'key-rolled');
    await member.submit(`${keyPath}/retire`);
    await elsewhere.expect([key, 401], [member.key, 200]);
  });
  await report.claim('a renamed key bears its new name in the list', async () => {
    for (const name of [HOSTILE, 'Checkout']) {
      await member.visit(keyPath);
      await member.submit(`${keyPath}/rename`, { name });
      await member.visit('/keys');
      await member.reads(name);
    }
  });
  await report.claim('all of it stands in the history of the key', async () => {
    await member.visit(keyPath);
    const text = (await member.text()).toLowerCase();
    const acts = ['renamed', 'rolled', 'reactivated', 'deactivated', 'resumed', 'paused'];
    const untold = acts.filter((act) => !text.includes(act));
    if (untold.length) throw new Error(`not told: ${untold}`);
    await gallery.keep(member.page, 'key-history');
  });
}

// Up to nine keys; then two tabs race for the tenth; then an eleventh is wanted.
export async function ten({ report, gallery, elsewhere }, member) {
  const eleventh = await member.another();
  await report.must('nine keys', async () => {
    await eleventh.visit('/keys/new');
    for (const [number, name] of OTHERS.entries()) {
      const key = await mint(member, name, ['ip', 'geo', 'full'][number % 3]);
      await elsewhere.calls(key, number);
    }
  });
  await report.claim('two tabs race for the tenth: one has it, the other a sentence', async () => {
    const rivals = [await member.another(), await member.another()];
    for (const rival of rivals) await rival.visit('/keys/new');
    await startTogether(rivals, '/keys');
    await Promise.all(rivals.map((rival, number) => rival.submit('/keys', { name: `Crawler ${number}`, scope: 'ip' })));
    const texts = await Promise.all(rivals.map((rival) => rival.text()));
    const winners = texts.filter((text) => CLEAR.test(text)).length;
    const told = texts.filter((text) => /ten keys|10 keys/i.test(text)).length;
    await Promise.all(rivals.map((rival) => rival.page.close()));
    if (winners !== 1 || told !== 1) throw new Error(`${winners} had it, ${told} were told; they read:\n${texts.join('\n––\n')}`);
  });
  await report.claim('the eleventh is refused with a sentence', async () => {
    await eleventh.submit('/keys', { name: 'eleventh', scope: 'ip' });
    await eleventh.reads(/ten keys|10 keys/i);
    await gallery.keep(eleventh.page, 'key-refused');
    await member.visit('/keys');
    await gallery.keep(member.page, 'keys');
  });
  await eleventh.page.close();
}

// Holds the forms of all of them back until each has sent its own.
async function startTogether(rivals, path) {
  let held = 0;
  let release;
  const all = new Promise((resolve) => { release = resolve; });
  for (const { page, house } of rivals) {
    await page.route(house.portal + path, async (route) => {
      if (route.request().method() === 'POST') {
        held += 1;
        if (held === rivals.length) release();
        await all;
      }
      await route.continue();
    });
  }
}

export async function removal({ report, gallery, elsewhere }, member) {
  await report.claim('deleting a key asks first; then the key is refused with 401 at once', async () => {
    const key = await mint(member, 'Spare', 'geo');
    const id = idOf(key);
    await elsewhere.expect([key, 200]);
    await member.follow(`/keys/${id}`);
    await member.follow(`/keys/${id}/delete`);
    await gallery.keep(member.page, 'key-delete');
    await member.submit(`/keys/${id}/delete`);
    member.isAt('/keys');
    await elsewhere.expect([key, 401]);
    // Its usage went with it.
    elsewhere.tally.delete(id);
  });
}
