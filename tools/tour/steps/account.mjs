// The account: mails wanted, address, password, sessions, passkeys.

import { linkOf } from '../mailbox.mjs';
import { signIn, signOut } from './door.mjs';

const ALERTS = ['near', 'spent', 'paused'];

export async function settings({ report, gallery, house }, member) {
  await report.claim('each mail can be switched off and on', async () => {
    await member.visit('/keys');
    await member.follow('/account');
    await gallery.keep(member.page, 'account');
    for (const wanted of [false, true]) {
      await member.submit('/account/alerts', Object.fromEntries(ALERTS.map((name) => [name, wanted])));
      await member.visit('/account');
      for (const name of ALERTS) {
        const isOn = await member.page.locator(`form[action="/account/alerts"] [name=${name}]`).isChecked();
        if (isOn !== wanted) throw new Error(`${name} is ${isOn ? 'on' : 'off'}`);
      }
    }
  });
  await report.claim('a new address needs the password', async () => {
    await member.visit('/account');
    await member.submit('/account/email', { email: `x-${member.email}`, password: 'not the password' });
    await member.reads('not your present password');
    const typed = await member.page.locator('form[action="/account/email"] [name=email]').inputValue();
    if (typed !== `x-${member.email}`) throw new Error(`what was typed is forgotten: “${typed}”`);
    await gallery.keep(member.page, 'account-refused');
  });
  await report.claim('a new address is confirmed from a mail to it', async () => {
    const email = `new-${member.email}`;
    await member.visit('/account');
    await member.submit('/account/email', { email, password: member.password });
    const mail = await house.mailbox.take(email);
    await member.visit(linkOf(mail));
    await gallery.keep(member.page, 'link-email');
    await member.submit(member.path);
    member.email = email;
    await member.visit('/account');
    await member.reads(email);
    return `“${mail.subject}”`;
  });
  await report.claim('a new password replaces the old one', async () => {
    const password = `changed ${member.password}`;
    await member.visit('/account');
    await member.submit('/account/password', { current: member.password, password });
    member.password = password;
    await signOut(member);
    await signIn(member);
  });
}

// `other` is the same person in another browser.
export async function sessions({ report, gallery }, member, other) {
  await report.claim('a session elsewhere is listed and ended from here', async () => {
    Object.assign(other, { email: member.email, password: member.password });
    await signIn(other);
    await member.visit('/account');
    await gallery.keep(member.page, 'account-sessions');
    await member.submit(await endingOf(member));
    await isPutOut(other);
    await member.visit('/keys');
    member.isAt('/keys');
  });
  await report.claim('all others are ended at once', async () => {
    await signIn(other);
    await member.visit('/account');
    await member.submit('/account/sessions/end-others');
    await isPutOut(other);
  });
}

// With script the open page leaves by itself; in any case no page is open any more.
async function isPutOut(other) {
  if (other.scripted) await other.page.waitForURL('**/signin');
  await other.visit('/keys');
  other.isAt('/signin');
}

// The newest session but one's own.
function endingOf(member) {
  return member.page.locator('form[action^="/account/sessions/"][action$="/end"]').first().getAttribute('action');
}

export async function passkeys({ report, gallery }, member) {
  const { page } = member;
  const browser = await page.context().newCDPSession(page);
  await browser.send('WebAuthn.enable', { enableUI: false });
  await browser.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  await report.must('a passkey is registered', async () => {
    await member.visit('/account');
    await member.submit('/account/passkeys', { name: 'laptop' });
    await member.reads('laptop');
    await gallery.keep(page, 'account-passkey');
  });
  await report.must('and opens the door', async () => {
    await signOut(member);
    await member.submit('/signin/passkey/finish');
    await page.waitForURL('**/keys');
  });
  await report.claim('and is removed', async () => {
    await member.visit('/account');
    const form = 'form[action^="/account/passkeys/"][action$="/delete"]';
    await member.submit(await page.locator(form).getAttribute('action'));
    if (await member.has(form)) throw new Error('it is still listed');
  });
  await browser.detach();
}
