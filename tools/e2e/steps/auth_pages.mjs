// Sign up, confirm, sign in, sign out, reset the password.

import { linkIn } from '../mailbox.mjs';
import { firstRequest } from './first_request.mjs';

// Signs up a new member through the confirmation email.
export async function signUp(context, member) {
  const { report, snapshots } = context;
  await report.check('a short password is rejected with a message', async () => {
    await member.visit('/signup');
    await snapshots.save(member.page, 'signup');
    // Otherwise the browser itself blocks the form.
    await member.page.locator('form[action="/signup"]').evaluate((form) => { form.noValidate = true; });
    await member.submit('/signup', { email: member.email, password: 'short' });
    await member.expectText('10');
    await snapshots.save(member.page, 'signup-rejected');
  });
  await firstRequest(context, member);
  await report.check('a used link says so', async () => {
    await member.visit(member.usedLink);
    if (await member.has(`form[action="${member.path}"]`)) throw new Error('the used link still has its button');
    if (!(await member.has('a[href="/account"]'))) throw new Error('the page does not show that the member is signed in');
    await snapshots.save(member.page, 'link-used');
  });
}

export async function signOut(member) {
  await member.submit('/signout');
  member.expectPath('/signin');
}

export async function signIn(member) {
  await member.visit('/signin');
  await member.submit('/signin', { email: member.email, password: member.password });
  member.expectPath('/keys');
}

// Signs in if an earlier group failed while signed out.
export async function ensureSignedIn(member) {
  await member.visit('/keys');
  if (member.path === '/signin') await signIn(member);
}

export async function signInAndOut({ report, snapshots }, member) {
  await report.check('the sign-in page confirms a sign-out', async () => {
    await member.visit('/keys');
    await signOut(member);
    await snapshots.save(member.page, 'signin');
    await member.expectText('You’re signed out');
  });
  await report.check('a signed-out visitor is redirected to sign in', async () => {
    await member.visit('/keys');
    member.expectPath('/signin');
  });
  await report.check('a wrong password is rejected with a message', async () => {
    await member.visit('/signin');
    await member.submit('/signin', { email: member.email, password: 'not the password' });
    member.expectPath('/signin');
    await member.expectText('Incorrect email or password');
    await snapshots.save(member.page, 'signin-rejected');
  });
  await report.require('the correct password signs in', () => signIn(member));
}

export async function resetPassword({ report, snapshots, deployment }, member) {
  await report.require('a password is reset through a link in an email', async () => {
    await member.visit('/keys');
    await signOut(member);
    await member.follow('/forgot');
    await snapshots.save(member.page, 'forgot');
    await member.submit('/forgot', { email: member.email });
    await snapshots.save(member.page, 'forgot-sent');
    const email = await deployment.mailbox.take(member.email, 'Reset your Ipseity password');
    await member.visit(linkIn(email));
    await snapshots.save(member.page, 'link-reset');
    member.password = `reset ${member.password}`;
    await member.submit(member.path, { password: member.password });
    return `“${email.subject}”`;
  });
  await report.require('the new password signs in', async () => {
    await signOut(member);
    await signIn(member);
  });
}
