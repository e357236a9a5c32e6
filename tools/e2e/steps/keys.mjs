// Keys: create, copy, rename, deactivate, reactivate, rotate, delete; at most ten.

import { keyId } from '../cross_origin_client.mjs';
import { eventually } from '../wait.mjs';

const PLAINTEXT_KEY = /ips_[0-9A-Za-z]{48}/;
const NAME_WITH_MARKUP = 'Der Schlüssel <b>№ 1</b>';
// Together with the first key and one more, ten.
const OTHER_NAMES = ['Blog', 'Mobile app', 'Staging', 'Fraud rules', 'Newsletter', 'Support desk', 'Price tables', 'Laptop'];

// Creates a key and returns it in plain text, as the page shows it once.
export async function createKey(member, name, scope) {
  if (!(await member.has('a[href="/keys/new"]'))) await member.visit('/keys');
  await member.follow('/keys/new');
  await member.submit('/keys', { name, scope });
  return readKey(member);
}

export async function readKey(member) {
  const text = await member.text();
  const found = text.match(PLAINTEXT_KEY);
  if (!found) throw new Error(`no key on ${member.path}:\n${text}`);
  return found[0];
}

export async function firstKey({ report, snapshots, api }, member) {
  await report.require('a new key of scope full is shown in plain text', async () => {
    await member.visit('/keys');
    await member.follow('/keys/new');
    await snapshots.save(member.page, 'key-new');
    await member.submit('/keys', { name: 'Checkout', scope: 'full' });
    member.key = await readKey(member);
    member.keyPath = `/keys/${keyId(member.key)}`;
    await member.expectText('curl');
    await snapshots.save(member.page, 'key-created');
  });
  if (member.scripted) await report.check('the copy button copies the key', () => copyKey(member));
  await report.check('the key is not shown again', async () => {
    await member.visit(member.keyPath);
    if ((await member.page.content()).includes(member.key)) throw new Error('the page of the key shows it again');
  });
  await report.require('a script on another origin reads the body and every limit header', async () => {
    const { status, body, limits, atMs } = await api.request(member.key);
    member.firstRequestMs = atMs;
    if (status !== 200 || body.status !== 'success') throw new Error(`${status} ${JSON.stringify(body)}`);
    const unreadable = Object.keys(limits).filter((name) => limits[name] === null);
    if (unreadable.length) throw new Error(`not readable: ${unreadable}`);
    return `${limits['x-ratelimit-remaining']} of ${limits['x-ratelimit-limit']} left`;
  });
}

async function copyKey(member) {
  await member.input.press(member.page, '[data-copy] >> nth=0');
  const isCopied = async () => (await member.page.evaluate(() => navigator.clipboard.readText())) === member.key;
  await eventually('the clipboard contains the key', isCopied);
}

export async function changeKey({ report, snapshots, api }, member) {
  const { key, keyPath } = member;
  await report.check('a deactivated key is rejected with 403 immediately', async () => {
    await member.visit('/keys');
    await member.follow(keyPath);
    await snapshots.save(member.page, 'key');
    await member.submit(`${keyPath}/deactivate`);
    await api.expect([key, 403]);
    await snapshots.save(member.page, 'key-inactive');
    await member.visit('/keys');
    await snapshots.save(member.page, 'keys-inactive');
  });
  await report.check('a reactivated key works immediately', async () => {
    await member.visit(keyPath);
    await member.submit(`${keyPath}/reactivate`);
    await api.expect([key, 200]);
  });
  await report.require('after a rotation both secrets work', async () => {
    await member.visit(keyPath);
    await member.submit(`${keyPath}/rotate`, { overlap_s: '86400' });
    member.key = await readKey(member);
    await snapshots.save(member.page, 'key-rotated-secret');
    await api.expect([key, 200], [member.key, 200]);
  });
  await report.check('the old secret can be revoked; the new one keeps working', async () => {
    await member.visit(keyPath);
    await snapshots.save(member.page, 'key-rotated');
    await member.submit(`${keyPath}/revoke-previous`);
    await api.expect([key, 401], [member.key, 200]);
  });
  await report.check('the list shows the new name of a renamed key', async () => {
    for (const name of [NAME_WITH_MARKUP, 'Checkout']) {
      await member.visit(keyPath);
      await member.submit(`${keyPath}/rename`, { name });
      await member.visit('/keys');
      await member.expectText(name);
    }
  });
  await report.check('the history lists every change', async () => {
    await member.visit(keyPath);
    const text = (await member.text()).toLowerCase();
    const events = ['renamed', 'rotated', 'reactivated', 'deactivated', 'resumed', 'paused'];
    const missing = events.filter((event) => !text.includes(event));
    if (missing.length) throw new Error(`missing: ${missing}`);
    await snapshots.save(member.page, 'key-history');
  });
}

// Creates keys up to nine. Then two tabs compete for the tenth, and an eleventh is rejected.
export async function keyLimit({ report, snapshots, api }, member) {
  const eleventh = await member.newTab();
  await report.require('nine keys are created', async () => {
    await eleventh.visit('/keys/new');
    for (const [index, name] of OTHER_NAMES.entries()) {
      const key = await createKey(member, name, ['ip', 'geo', 'full'][index % 3]);
      await api.requests(key, index);
    }
  });
  await report.check('of two tabs that create the tenth key, one succeeds and one shows a message', async () => {
    const tabs = [await member.newTab(), await member.newTab()];
    for (const tab of tabs) await tab.visit('/keys/new');
    await submitTogether(tabs, '/keys');
    await Promise.all(tabs.map((tab, index) => tab.submit('/keys', { name: `Crawler ${index}`, scope: 'ip' })));
    const texts = await Promise.all(tabs.map((tab) => tab.text()));
    const created = texts.filter((text) => PLAINTEXT_KEY.test(text)).length;
    const rejected = texts.filter((text) => /10 keys/.test(text)).length;
    await Promise.all(tabs.map((tab) => tab.page.close()));
    if (created !== 1 || rejected !== 1) throw new Error(`${created} created, ${rejected} rejected:\n${texts.join('\n––\n')}`);
  });
  await report.check('the eleventh key is rejected with a message', async () => {
    await eleventh.submit('/keys', { name: 'eleventh', scope: 'ip' });
    await eleventh.expectText(/10 keys/);
    await snapshots.save(eleventh.page, 'key-rejected');
    await member.visit('/keys');
    await snapshots.save(member.page, 'keys');
  });
  await eleventh.page.close();
}

// Holds the forms back until every tab has submitted.
async function submitTogether(tabs, path) {
  let held = 0;
  let release;
  const allHeld = new Promise((resolve) => { release = resolve; });
  for (const { page, deployment } of tabs) {
    await page.route(deployment.portal + path, async (route) => {
      if (route.request().method() === 'POST') {
        held += 1;
        if (held === tabs.length) release();
        await allHeld;
      }
      await route.continue();
    });
  }
}

export async function keyMenu({ report, snapshots }, member) {
  await report.check('the menu of a key in the list leads to its actions', async () => {
    const { page, input } = member;
    const id = member.keyPath.split('/').pop();
    await member.visit('/keys');
    await input.press(page, `#menu-button-${id}`);
    await page.locator(`#menu-${id} a:visible`, { hasText: 'Delete' }).waitFor();
    await snapshots.save(page, 'keys-menu');
    if (member.scripted) {
      await page.locator(`#menu-${id} [data-copy]`).click();
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      if (copied !== `ips_${id}`) throw new Error(`${copied} was copied`);
      await page.keyboard.press('Escape');
      if (await member.has(`#menu-${id}[open]`)) throw new Error('Escape does not close the menu');
      if (!(await page.locator(`#menu-button-${id}`).evaluate((button) => button === document.activeElement))) throw new Error('the focus is lost');
    }
    await member.submit(`/keys/${id}/deactivate`);
    await member.expectText('Key deactivated');
    await member.submit(`/keys/${id}/reactivate`);
    await member.expectText('Key reactivated');
    await member.visit('/keys');
    await member.follow(`/keys/${id}/delete`);
    await member.expectText('to confirm');
  });
}

export async function deleteKey({ report, snapshots, api }, member) {
  await report.check('deleting a key asks for its name; then the key is rejected with 401 immediately', async () => {
    const key = await createKey(member, 'Spare', 'geo');
    const id = keyId(key);
    await api.expect([key, 200]);
    await member.follow(`/keys/${id}`);
    await member.follow(`/keys/${id}/delete`);
    await snapshots.save(member.page, 'key-delete');
    await member.submit(`/keys/${id}/delete`, { typed: 'another key' });
    await member.expectText('Nothing was deleted');
    await snapshots.save(member.page, 'key-delete-rejected');
    await api.expect([key, 200]);
    await member.submit(`/keys/${id}/delete`, { typed: 'Spare' });
    member.expectPath('/keys');
    await api.expect([key, 401]);
    // Its usage was deleted as well.
    api.counts.delete(id);
  });
}
