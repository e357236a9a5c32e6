// The pause: shown at once, with its evidence, told by mail, ended by one key press.

import { idOf } from '../elsewhere.mjs';

const BURST_MAX = 300;
const MINUTE_MS = 60_000;
const SHOWN_MAX_MS = 2_000;

export async function pause({ report, gallery, elsewhere, house }, member) {
  const { page, key, keyPath } = member;
  let refused;
  await report.must('the 301st call within a minute is answered with 429', async () => {
    await member.visit('/keys');
    if (member.scripted) await page.evaluate(noteWhenThere, `form[action="${keyPath}/resume"]`);
    const before = elsewhere.tally.get(idOf(key)).admitted;
    const answers = await elsewhere.calls(key, BURST_MAX - before);
    const early = answers.find(({ status }) => status !== 200);
    if (early) throw new Error(`a call before the 301st was refused: ${early.status} ${JSON.stringify(early.body)}`);
    refused = await elsewhere.call(key);
    if (refused.status !== 429) throw new Error(`the 301st call was answered with ${refused.status}`);
    const tookMs = refused.atMs - member.firstCallMs;
    if (tookMs > MINUTE_MS) throw new Error(`the calls took ${tookMs} ms, too slow to tell`);
  });
  if (member.scripted) {
    await report.claim('the open page shows the pause within 2 s of that answer, without a reload', async () => {
      const shownMs = await page.evaluate((maxMs) => {
        const late = new Promise((_, reject) => { setTimeout(reject, maxMs, new Error(`not within ${maxMs} ms`)); });
        return Promise.race([window.thereAtMs, late]);
      }, 5 * SHOWN_MAX_MS);
      const delayMs = shownMs - refused.atMs;
      if (delayMs > SHOWN_MAX_MS) throw new Error(`shown ${delayMs} ms after the answer`);
      return `${delayMs} ms after it`;
    });
  } else {
    await member.visit('/keys');
  }
  await report.claim('it shows when, how many requests, the minute second by second, and what to do', async () => {
    await member.reads('301');
    await member.reads(/\d\d:\d\d:\d\d UTC/);
    if (!(await member.has('svg[role=img]'))) throw new Error('no chart');
    await gallery.keep(page, 'keys-paused');
    await gallery.keepFrom(member, keyPath, 'key-paused');
  });
  await report.claim('a further call is refused with 403 and points at the pause', async () => {
    const { status, outcome } = await elsewhere.call(key);
    if (status !== 403 || outcome !== 'paused') throw new Error(`${status} ${outcome}`);
  });
  await report.claim('a mail tells of the pause', async () => {
    const mail = await house.mailbox.take(member.email, 'paused');
    return `“${mail.subject}”`;
  });
  await report.must('one button resumes it, and the next call is answered', async () => {
    await member.submit(`${keyPath}/resume`);
    await elsewhere.expect([key, 200]);
  });
}

// Runs in the page: remembers the moment when an element is there. A reload would forget it.
function noteWhenThere(selector) {
  window.thereAtMs = new Promise((resolve) => {
    const look = () => document.querySelector(selector) && resolve(Date.now());
    new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
    look();
  });
}
