// The pause: shown immediately with its details, reported by email, ended with one button.

import { keyId } from '../cross_origin_client.mjs';

const BURST_MAX = 300;
const WINDOW_MS = 60_000;
const SHOWN_MAX_MS = 2_000;

export async function pause({ report, snapshots, api, deployment }, member) {
  const { page, key, keyPath } = member;
  let rejected;
  await report.require('request 301 within 60 seconds is rejected with 429', async () => {
    await member.visit('/keys');
    if (member.scripted) await page.evaluate(recordWhenPresent, `form[action="${keyPath}/resume"]`);
    const before = api.counts.get(keyId(key)).admitted;
    const responses = await api.requests(key, BURST_MAX - before);
    const early = responses.find(({ status }) => status !== 200);
    if (early) throw new Error(`a request before the 301st was rejected: ${early.status} ${JSON.stringify(early.body)}`);
    rejected = await api.request(key);
    if (rejected.status !== 429) throw new Error(`request 301 got ${rejected.status}`);
    const elapsedMs = rejected.atMs - member.firstRequestMs;
    if (elapsedMs > WINDOW_MS) throw new Error(`the requests took ${elapsedMs} ms, which is longer than the window`);
  });
  if (member.scripted) {
    await report.check('the open page shows the pause within 2 s, without a reload', async () => {
      const shownMs = await page.evaluate((maxMs) => {
        const late = new Promise((_, reject) => { setTimeout(reject, maxMs, new Error(`not within ${maxMs} ms`)); });
        return Promise.race([window.presentAtMs, late]);
      }, 5 * SHOWN_MAX_MS);
      const delayMs = shownMs - rejected.atMs;
      if (delayMs > SHOWN_MAX_MS) throw new Error(`shown ${delayMs} ms after the response`);
      return `after ${delayMs} ms`;
    });
  } else {
    await member.visit('/keys');
  }
  await report.check('the page shows the time, the number of requests and a chart of the 60 seconds', async () => {
    await member.expectText('301');
    await member.expectText(/\d\d:\d\d:\d\d UTC/);
    if (!(await member.has('svg[role=img]'))) throw new Error('no chart');
    await snapshots.save(page, 'keys-paused');
    await snapshots.saveUrl(member, keyPath, 'key-paused');
    if (!member.scripted) return;
    await page.locator('.pause time').hover();
    await page.locator('.chart-tooltip:visible', { hasText: 'your time' }).waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.chart-tooltip:visible').waitFor({ state: 'detached' });
  });
  await report.check('a further request is rejected with 403 and links to the docs about pauses', async () => {
    const { status, outcome } = await api.request(key);
    if (status !== 403 || outcome !== 'paused') throw new Error(`${status} ${outcome}`);
  });
  await report.check('an email reports the pause', async () => {
    const email = await deployment.mailbox.take(member.email, 'paused');
    return `“${email.subject}”`;
  });
  await report.require('one button resumes the key, and the next request succeeds', async () => {
    await member.submit(`${keyPath}/resume`);
    await api.expect([key, 200]);
  });
}

// Runs in the page: records when an element appears. A reload discards the record.
function recordWhenPresent(selector) {
  window.presentAtMs = new Promise((resolve) => {
    const check = () => document.querySelector(selector) && resolve(Date.now());
    new MutationObserver(check).observe(document, { subtree: true, childList: true, attributes: true });
    check();
  });
}
