// The account page: email, password, sessions, passkeys.

import { linkIn } from '../mailbox.mjs';
import { signIn, signOut } from './auth_pages.mjs';

export async function settings({ report, snapshots, deployment }, member) {
  await report.check('the account page is shown', async () => {
    await member.visit('/keys');
    await member.follow('/account');
    await snapshots.save(member.page, 'account');
  });
  await report.check('changing the email requires the password', async () => {
    await member.visit('/account');
    await member.submit('/account/email', { email: `x-${member.email}`, password: 'not the password' });
    await member.expectText('Incorrect password');
    const typed = await member.page.locator('form[action="/account/email"] [name=email]').inputValue();
    if (typed !== `x-${member.email}`) throw new Error(`the typed email was lost: “${typed}”`);
    await snapshots.save(member.page, 'account-rejected');
  });
  await report.check('a new email is confirmed through a link', async () => {
    const address = `new-${member.email}`;
    await member.visit('/account');
    await member.submit('/account/email', { email: address, password: member.password });
    const email = await deployment.mailbox.take(address);
    await member.visit(linkIn(email));
    await snapshots.save(member.page, 'link-email');
    await member.submit(member.path);
    await deployment.mailbox.take(member.email, 'The email of your');
    member.email = address;
    await member.visit('/account');
    await member.expectText(address);
    return `“${email.subject}”`;
  });
  await report.check('a new password replaces the old one', async () => {
    const password = `changed ${member.password}`;
    await member.visit('/account');
    await member.submit('/account/password', { current: member.password, password });
    member.password = password;
    await signOut(member);
    await signIn(member);
  });
}

// `other` is the same person in another browser.
export async function sessions({ report, snapshots }, member, other) {
  await report.check('a session in another browser is listed and can be signed out', async () => {
    Object.assign(other, { email: member.email, password: member.password });
    await signIn(other);
    await member.visit('/account');
    await snapshots.save(member.page, 'account-sessions');
    await member.submit(await newestOtherSession(member));
    await expectSignedOut(other);
    await member.visit('/keys');
    member.expectPath('/keys');
  });
  await report.check('all other sessions can be signed out together', async () => {
    await signIn(other);
    await member.visit('/account');
    await member.submit('/account/sessions/end-others');
    await expectSignedOut(other);
  });
}

// With scripts, the open page goes to the sign-in page by itself.
async function expectSignedOut(other) {
  if (other.scripted) await other.page.waitForURL(/\/signin\?next=/);
  await other.visit('/keys');
  other.expectPath('/signin');
}

function newestOtherSession(member) {
  return member.page.locator('form[action^="/account/sessions/"][action$="/end"]').first().getAttribute('action');
}

export async function passkeys({ report, snapshots, deployment }, member) {
  const { page } = member;
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('WebAuthn.enable', { enableUI: false });
  await cdp.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  await report.require('a passkey is added', async () => {
    await member.visit('/account');
    await member.submit('/account/passkeys', { name: 'laptop', password: member.password });
    await member.expectText('laptop');
    await deployment.mailbox.take(member.email, 'passkey was added');
    await snapshots.save(page, 'account-passkey');
  });
  await report.require('the passkey signs in', async () => {
    await signOut(member);
    await member.submit('/signin/passkey/finish');
    await page.waitForURL('**/keys');
  });
  await report.check('a passkey confirms a change instead of the password', async () => {
    await member.visit('/account');
    await member.submit('/account/confirm');
    await member.expectText('Passkeys');
    if (await member.has('[name=password][autocomplete=current-password]')) throw new Error('the password is still required');
    await snapshots.save(page, 'account-confirmed');
  });
  await report.check('the passkey is removed', async () => {
    await member.visit('/account');
    const form = 'form[action^="/account/passkeys/"][action$="/delete"]';
    await member.submit(await page.locator(form).getAttribute('action'));
    if (await member.has(form)) throw new Error('it is still listed');
  });
  await cdp.detach();
}
