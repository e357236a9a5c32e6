// Through the door: sign up, confirm, sign in, sign out, a forgotten password.

import { linkOf } from '../mailbox.mjs';

// A new member, confirmed from the mail and signed in.
export async function signUp({ report, gallery, house }, member) {
  await report.claim('a password that is too short is refused with a sentence', async () => {
    await member.visit('/signup');
    await gallery.keep(member.page, 'signup');
    // The browser itself would hold it back.
    await member.page.locator('form[action="/signup"]').evaluate((form) => { form.noValidate = true; });
    await member.submit('/signup', { email: member.email, password: 'short' });
    await member.reads('10');
    await gallery.keep(member.page, 'signup-refused');
  });
  await report.must('a stranger signs up and is told to look for a mail', async () => {
    await member.visit('/signup');
    await member.submit('/signup', { email: member.email, password: member.password });
    await member.reads('mail');
    if (await member.has('form[action="/signup"]')) throw new Error('the form is still there');
    await gallery.keep(member.page, 'signup-sent');
  });
  await report.must('the link of the mail leads to one button, and that to the keys', async () => {
    const mail = await house.mailbox.take(member.email);
    await member.visit(linkOf(mail));
    await gallery.keep(member.page, 'link-signup');
    await member.submit(member.path);
    member.isAt('/keys');
    await gallery.keep(member.page, 'keys-none');
    member.usedLink = linkOf(mail);
    return `“${mail.subject}”`;
  });
  await report.claim('a link that was used says so', async () => {
    await member.visit(member.usedLink);
    if (await member.has(`form[action="${member.path}"]`)) throw new Error('the used link still offers its button');
    if (!(await member.has('a[href="/account"]'))) throw new Error('who is signed in looks like a stranger');
    await gallery.keep(member.page, 'link-used');
  });
}

export async function signOut(member) {
  await member.submit('/signout');
  member.isAt('/signin');
}

export async function signIn(member) {
  await member.visit('/signin');
  await member.submit('/signin', { email: member.email, password: member.password });
  member.isAt('/keys');
}

// Whatever went wrong before, the next chapter begins inside.
export async function beIn(member) {
  await member.visit('/keys');
  if (member.path === '/signin') await signIn(member);
}

export async function comeAndGo({ report, gallery }, member) {
  await report.claim('whoever signs out is told so at the door', async () => {
    await member.visit('/keys');
    await signOut(member);
    await gallery.keep(member.page, 'signin');
    await member.reads('You are signed out');
  });
  await report.claim('and finds the pages closed', async () => {
    await member.visit('/keys');
    member.isAt('/signin');
  });
  await report.claim('a wrong password is refused with a sentence', async () => {
    await member.visit('/signin');
    await member.submit('/signin', { email: member.email, password: 'not the password' });
    member.isAt('/signin');
    await member.reads(/password/i);
    await gallery.keep(member.page, 'signin-refused');
  });
  await report.must('the right one opens the door', () => signIn(member));
}

export async function forgotten({ report, gallery, house }, member) {
  await report.must('a forgotten password is replaced through a link in a mail', async () => {
    await member.visit('/keys');
    await signOut(member);
    await member.follow('/forgot');
    await gallery.keep(member.page, 'forgot');
    await member.submit('/forgot', { email: member.email });
    await gallery.keep(member.page, 'forgot-sent');
    const mail = await house.mailbox.take(member.email);
    await member.visit(linkOf(mail));
    await gallery.keep(member.page, 'link-reset');
    member.password = `remembered ${member.password}`;
    await member.submit(member.path, { password: member.password });
    return `“${mail.subject}”`;
  });
  await report.must('and the new one opens the door', () => signIn(member));
}
