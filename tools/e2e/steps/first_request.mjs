// From the landing page to the first answer: sign up, confirm, test the key that is created.

import { keyId } from '../cross_origin_client.mjs';
import { linkIn } from '../mailbox.mjs';
import { eventually } from '../wait.mjs';
import { readKey } from './keys.mjs';

const PAGES_MAX = 4;
const FIELDS_MAX = 3;
const SHOWN_MAX_MS = 2_000;
const LANGUAGES = ['curl', 'javascript', 'python', 'go', 'php', 'rust'];

export async function firstRequest(context, member) {
  const { report, snapshots, deployment, api } = context;
  const steps = { pages: 0, fields: 0 };
  const countPage = () => { steps.pages += 1; };
  const submit = async (action, fields) => {
    await member.submit(action, fields);
    steps.fields += Object.keys(fields).length;
  };
  let start;
  await report.require('after sign-up the page says to check the email', async () => {
    await member.visit('/');
    start = performance.now();
    member.page.on('load', countPage);
    await member.follow('/signup');
    await submit('/signup', { email: member.email, password: member.password });
    await member.expectText('Check your email');
    if (await member.has('form[action="/signup"]')) throw new Error('the form is still shown');
    await snapshots.save(member.page, 'signup-sent');
  });
  await report.require('the link in the email asks what the first key is for, and creates it', async () => {
    const email = await deployment.mailbox.take(member.email);
    member.usedLink = linkIn(email);
    await member.visit(member.usedLink);
    await snapshots.save(member.page, 'link-signup');
    await submit(member.path, { preset: 'unrestricted' });
    member.firstKey = await readKey(member);
    member.page.off('load', countPage);
    await member.expectText('curl');
    return `“${email.subject}”`;
  });
  const keyPath = `/keys/${keyId(member.firstKey)}`;
  const isReceived = (visitor) => eventually('the first request is shown', async () => (await visitor.page.locator('#first-request').innerText()).includes('received'), SHOWN_MAX_MS);
  if (member.scripted) {
    await report.require('a button sends the first request and shows the answer', async () => {
      await member.input.press(member.page, '#send-test');
      await member.page.locator('.response-status', { hasText: '200' }).waitFor();
      const seconds = (performance.now() - start) / 1000;
      if (steps.pages > PAGES_MAX || steps.fields > FIELDS_MAX) throw new Error(JSON.stringify(steps));
      return `${steps.pages} pages after the landing page, ${steps.fields} fields, ${seconds.toFixed(1)} s without a person’s time`;
    });
    await report.check('the page shows within two seconds that the request was received', async () => {
      await isReceived(member);
      await snapshots.save(member.page, 'first-key-tested');
    });
    await report.check('the code tabs show one language each, with the key, and the choice is remembered', () => checkTabs(member));
  } else {
    await api.request(member.firstKey);
  }
  await report.check('the page of the key shows that the first request was received', async () => {
    await member.visit(keyPath);
    await isReceived(member);
    await snapshots.save(member.page, 'first-key');
  });
  await report.check('deleting the only key leads to the empty list', async () => {
    await member.visit(`${keyPath}/delete`);
    await member.submit(`${keyPath}/delete`, { typed: keyPath.split('/').pop() });
    await snapshots.save(member.page, 'keys-none');
    api.counts.delete(keyId(member.firstKey));
  });
}

async function checkTabs(member) {
  const { page } = member;
  for (const language of LANGUAGES) {
    await member.input.chooseRadio(page, '.languages input', language);
    const shown = await page.locator('.code-tab:visible').evaluateAll((tabs) => tabs.map((tab) => [tab.dataset.language, tab.querySelector('code').textContent]));
    if (shown.length !== 1 || shown[0][0] !== language || !shown[0][1].includes(member.firstKey)) throw new Error(`${language}: ${JSON.stringify(shown)}`);
  }
  const stored = await page.evaluate(() => localStorage.getItem('language'));
  if (stored !== LANGUAGES.at(-1)) throw new Error(`${stored} is remembered`);
}

// A key that waits for its first request shows the code with a placeholder, and notices a request from anywhere.
export async function waitingKey({ report, snapshots, api }, member) {
  await report.check('an open page notices the first request of a key within two seconds', async () => {
    await member.visit('/keys/new');
    await member.submit('/keys', { name: 'Waiting', scope: 'ip', preset: 'trial' });
    await snapshots.save(member.page, 'key-new-secret');
    const key = await readKey(member);
    const keyPath = `/keys/${keyId(key)}`;
    await member.visit(keyPath);
    await member.page.locator('[data-live-indicator]').waitFor();
    if (!(await member.page.locator('[data-language=rust]').isVisible())) throw new Error('the language is not remembered');
    await snapshots.save(member.page, 'key-waiting');
    await api.request(key);
    const sent = performance.now();
    await member.page.locator('#first-request', { hasText: 'First request received' }).waitFor({ timeout: SHOWN_MAX_MS });
    const took = performance.now() - sent;
    if (await member.page.locator('.first-code').isVisible()) throw new Error('the code is still shown');
    await member.visit(`${keyPath}/delete`);
    await member.submit(`${keyPath}/delete`, { typed: keyPath.split('/').pop() });
    api.counts.delete(keyId(key));
    return `${took.toFixed()} ms`;
  });
}
