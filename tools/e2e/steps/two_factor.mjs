// Two-factor authentication, with codes of an independent implementation.

import { execFileSync } from 'node:child_process';

import { signOut } from './auth_pages.mjs';

// The code of a time step relative to now.
function codeOf(secret, offset = 0) {
  const script = 'import pyotp, sys, time; print(pyotp.TOTP(sys.argv[1]).at(time.time(), int(sys.argv[2])))';
  return execFileSync('python3', ['-c', script, secret.replaceAll(' ', ''), String(offset)], { encoding: 'utf8' }).trim();
}

export async function twoFactor({ report, snapshots, deployment }, member) {
  const { page } = member;
  let secret;
  let codes;
  await report.require('an authenticator app is set up', async () => {
    await member.visit('/account');
    await member.follow('/account/two-factor');
    await snapshots.save(page, 'two-factor-off');
    // A session that was confirmed with a passkey needs no password.
    const asksPassword = await member.has('form[action="/account/two-factor/app"] [name=password]');
    await member.submit('/account/two-factor/app', asksPassword ? { password: member.password } : {});
    await snapshots.save(page, 'two-factor-setup');
    secret = await page.locator('#totp-secret').innerText();
    await member.submit('/account/two-factor/app/confirm', { code: codeOf(secret, -1) });
    codes = (await page.locator('#recovery-codes').innerText()).split('\n');
    if (codes.length !== 10) throw new Error(`${codes.length} recovery codes`);
    await snapshots.save(page, 'two-factor-codes');
    await deployment.mailbox.take(member.email, 'Two-factor authentication is on');
  });
  await report.require('sign-in asks for a code', async () => {
    await signOut(member);
    await member.submit('/signin', { email: member.email, password: member.password });
    member.expectPath('/signin/verify');
    await snapshots.save(page, 'second-factor');
    await member.submit('/signin/verify', { code: '000000' });
    await member.expectText('Incorrect code');
    await snapshots.save(page, 'second-factor-rejected');
    await member.submit('/signin/verify', { code: codeOf(secret) });
    member.expectPath('/keys');
  });
  await report.require('a recovery code signs in too', async () => {
    await signOut(member);
    await member.submit('/signin', { email: member.email, password: member.password });
    await member.submit('/signin/verify', { code: codes[0] });
    member.expectPath('/keys');
    await deployment.mailbox.take(member.email, 'recovery code');
  });
  await report.require('it is turned off after a confirmation', async () => {
    await member.visit('/account/two-factor');
    await snapshots.save(page, 'two-factor-on');
    await member.submit('/account/two-factor/off');
    member.expectPath('/account/confirm');
    await snapshots.save(page, 'confirm');
    await member.submit('/account/confirm/password', { password: member.password, code: codes[1] });
    await member.visit('/account/two-factor');
    await member.submit('/account/two-factor/off');
    await member.expectText('Two-factor authentication is off');
    await deployment.mailbox.take(member.email, 'Two-factor authentication is off');
  });
}
