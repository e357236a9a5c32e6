// The admin console, operated with the keyboard: the first operator, the most frequent support cases, and roles.

import { readFileSync } from 'node:fs';

import { keyboard } from '../input.mjs';
import { signInAtProvider } from '../provider.mjs';
import { Visitor } from '../visitor.mjs';
import { eventually } from '../wait.mjs';

const OWNER = 'dev@example.com';
const TABS = ['/', '/search', '/sign-ups', '/rejections', '/requests', '/emails', '/nodes', '/system', '/audit', '/operators'];

export async function adminConsole(context) {
  const { report } = context;
  const admin = await openOperator(context);
  await report.require('the link in the log makes the first visitor an admin', async () => {
    await admin.visit(await firstLink(context.deployment));
    await context.snapshots.save(admin.page, 'console-join');
    const form = await admin.page.locator('form[data-passkey]').getAttribute('action');
    await admin.submit(form, { name: 'ada' });
    await admin.page.waitForURL(`${context.deployment.console}/`);
    await admin.expectText('Overview');
  });
  await report.check('a passkey signs in', async () => {
    await admin.submit('/signout');
    await context.snapshots.save(admin.page, 'console-signin');
    await admin.submit('/signin/passkey/finish');
    await admin.page.waitForURL(`${context.deployment.console}/`);
  });
  await report.check('every tab opens', async () => {
    for (const path of TABS) {
      await admin.follow(path);
      await context.snapshots.save(admin.page, `console${path === '/' ? '-overview' : path.replace('/', '-')}`);
    }
  });
  await otherProvider(context, admin);
  await supportCases(context, admin);
  await report.check('the audit log names the operator', async () => {
    await admin.follow('/audit');
    await admin.submit('/audit', { operator: 'ada' });
    for (const action of ['resumed', 'deactivated', 'plan changed', 'operator signed in']) await admin.expectText(action);
    await context.snapshots.save(admin.page, 'console-audit-filtered');
    const csv = await admin.download('/audit.csv?operator=ada');
    if (!csv.includes(',resumed,operator,"ada",')) throw new Error(csv.slice(0, 1000));
  });
  await roles(context, admin);
  await admin.page.context().close();
}

// The link that the node wrote to its log.
async function firstLink(deployment) {
  const pattern = /http:\/\/localhost:\d+\/join\/[0-9a-f]{64}/;
  return eventually('a link in the log', () => readFileSync(deployment.nodeLog, 'utf8').match(pattern)?.[0]);
}

async function openOperator({ browser, deployment }) {
  const profile = await browser.context();
  const page = await profile.newPage();
  const cdp = await profile.newCDPSession(page);
  await cdp.send('WebAuthn.enable', { enableUI: false });
  const options = {
    protocol: 'ctap2',
    transport: 'internal',
    hasResidentKey: true,
    hasUserVerification: true,
    isUserVerified: true,
    automaticPresenceSimulation: true,
  };
  await cdp.send('WebAuthn.addVirtualAuthenticator', { options });
  return new Visitor(page, keyboard, { portal: deployment.console });
}

async function otherProvider(context, admin) {
  const { report, snapshots } = context;
  await report.check('an account of an OpenID Connect provider signs in after its operator linked it', async () => {
    await admin.follow('/profile');
    await admin.submit('/profile/provider/0');
    await signInAtProvider(admin.page, context.deployment.console, 'ada');
    await admin.expectText('Account linked.');
    await snapshots.save(admin.page, 'console-profile-linked');
    await admin.submit('/signout');
    await admin.submit('/signin/provider/0');
    await signInAtProvider(admin.page, context.deployment.console, 'ada');
    await admin.expectText('Overview');
  });
  await report.check('another account of the provider does not', async () => {
    const eve = await openOperator(context);
    await eve.visit('/signin');
    await eve.submit('/signin/provider/0');
    await signInAtProvider(eve.page, context.deployment.console, 'eve');
    await eve.expectText('No operator signs in with this Company account.');
    await snapshots.save(eve.page, 'console-not-linked');
    await eve.page.context().close();
  });
}

// Opens the page of an account or key by a search. Returns its path.
async function find(admin, text, link) {
  await admin.follow('/search');
  await admin.submit('/search', { q: text });
  await admin.follow(await admin.page.locator(`a[href^="${link}"]`).first().getAttribute('href'));
  return admin.path;
}

async function supportCases({ report, snapshots, deployment }, admin) {
  const key = deployment.keys.ip;
  const id = key.slice(4, 14);
  const lookup = async () => (await fetch(`${deployment.http}/api/v1/ip`, { headers: { authorization: `Bearer ${key}` } })).status;
  await report.check('a paused key is found and resumed', async () => {
    for (let sent = 0; sent <= 300; sent += 1) await lookup();
    if ((await lookup()) !== 403) throw new Error('the key is not paused');
    await find(admin, id, '/keys/');
    await snapshots.save(admin.page, 'console-key-paused');
    await admin.submit(`/keys/${id}/resume`);
    await admin.expectText('Key resumed.');
    await eventually('the key works', async () => (await lookup()) === 200);
  });
  await report.check('a leaked key is deactivated, and reactivated', async () => {
    await admin.submit(`/keys/${id}/deactivate`);
    if ((await lookup()) !== 403) throw new Error('the key still works');
    await admin.submit(`/keys/${id}/reactivate`);
    if ((await lookup()) !== 200) throw new Error('the key does not work again');
  });
  await report.check('a key is restricted, and invalid restrictions are explained', async () => {
    await admin.submit(`/keys/${id}/restrict`, { networks: 'nonsense' });
    await admin.expectText('Correct the marked fields.');
    await snapshots.save(admin.page, 'console-key-invalid');
    await admin.submit(`/keys/${id}/restrict`, { networks: '127.0.0.0/8\n::1' });
    await admin.expectText('Restrictions saved.');
    await snapshots.save(admin.page, 'console-key');
  });
  await report.check('a key gets another limit', async () => {
    await admin.submit(`/keys/${id}/limits`, { daily_limit: '20000' });
    await admin.expectText('of 20,000 today');
  });
  await report.check('a pasted key is not searched for', async () => {
    await admin.follow('/search');
    await admin.submit('/search', { q: key });
    admin.expectPath(`/keys/${id}`);
  });
  await report.check('the owner of an account gets a plan, limits and a password reset', async () => {
    await deployment.cli('plan', 'add', 'console', '--daily-limit', '30000');
    const account = await find(admin, OWNER.slice(0, 5), '/accounts/');
    await admin.submit(`${account}/plan`, { plan: 'console' });
    await admin.expectText('Plan changed.');
    await admin.submit(`${account}/limits`, { keys_max: '12' });
    await admin.expectText('of 12');
    await snapshots.save(admin.page, 'console-account');
    await admin.submit(`${account}/password-reset`);
    await deployment.mailbox.take(OWNER, 'password');
  });
  await report.check('a request for a higher limit is granted', async () => {
    await deployment.sql(`insert into limit_requests (account_id, daily_limit, message)
      select id, 40000, 'Our launch is on Monday.' from accounts where email = '${OWNER}'`);
    await admin.follow('/requests');
    await snapshots.save(admin.page, 'console-request');
    await admin.submit(await admin.page.locator('form[action$="/decide"]').getAttribute('action'), { answer: 'Good luck!' });
    await admin.expectText('Request granted.');
    await find(admin, OWNER.slice(0, 5), '/accounts/');
    await admin.expectText('of 40,000');
  });
  await report.check('a person is invited', async () => {
    await admin.follow('/sign-ups');
    await admin.submit('/sign-ups/invite', { email: 'carol@example.com' });
    await admin.expectText('/link/');
    await snapshots.save(admin.page, 'console-invitation');
    await admin.follow('/sign-ups');
    await admin.submit('/sign-ups/invite', { email: OWNER });
    await admin.expectText('This person has an account.');
    await snapshots.save(admin.page, 'console-rejected');
  });
  await report.check('an account is deleted only with its email address', async () => {
    await deployment.cli('account', 'create', '--email', 'gone@example.com');
    await admin.visit('/search?q=gone@');
    await admin.follow(await admin.page.locator('a[href^="/accounts/"]').first().getAttribute('href'));
    const account = admin.path;
    await admin.follow(`${account}/delete`);
    await snapshots.save(admin.page, 'console-delete-account');
    await admin.submit(`${account}/delete`, { email: 'other@example.com' });
    await admin.expectText('This isn’t the email address of the account.');
    await admin.visit(`${account}/delete`);
    await admin.submit(`${account}/delete`, { email: 'gone@example.com' });
    await admin.expectText('Account deleted');
  });
}

async function roles(context, admin) {
  const { report, snapshots } = context;
  await report.check('a viewer joins by a link, and sees no actions', async () => {
    await admin.follow('/operators');
    await admin.submit('/operators', { name: 'victor', role: 'viewer' });
    await snapshots.save(admin.page, 'console-operator-link');
    const link = await admin.page.locator('#link').innerText();
    const viewer = await openOperator(context);
    await viewer.visit(link);
    await viewer.submit(await viewer.page.locator('form[data-passkey]').getAttribute('action'));
    await viewer.page.waitForURL(`${context.deployment.console}/`);
    if (await viewer.has('a[href="/operators"]')) throw new Error('the viewer sees the operators');
    await find(viewer, context.deployment.keys.ip.slice(4, 14), '/keys/');
    if (await viewer.has('main button')) throw new Error('the viewer sees actions');
    await snapshots.save(viewer.page, 'console-key-viewer');
    await viewer.visit('/operators');
    await viewer.expectText('This needs the role admin.');
    await snapshots.save(viewer.page, 'console-not-allowed');
    await viewer.follow('/profile');
    await snapshots.save(viewer.page, 'console-profile');
    await viewer.page.context().close();
  });
  await report.check('a removed operator is signed out', async () => {
    await admin.visit('/operators');
    await snapshots.save(admin.page, 'console-operators');
    const form = admin.page.locator('tr', { hasText: 'victor' }).locator('form[action$="/remove"]');
    await admin.submit(await form.getAttribute('action'));
    await admin.expectText('Operator removed');
  });
}
