// Accounts of another provider: link one, sign in with it, unlink it.

import { signInAtProvider } from '../provider.mjs';
import { signIn, signOut } from './auth_pages.mjs';

const PAGE = '/account/sign-in';
const LINK = `${PAGE}/providers/0`;
const SIGN_IN = '/signin/provider/0';

export async function linkedAccounts({ report, snapshots, deployment }, member) {
  const login = member.email.split('@')[0];
  const signInThere = () => signInAtProvider(member.page, deployment.portal, login);
  await report.check('an account of another provider is linked with the password', async () => {
    await member.visit('/account');
    await member.follow(PAGE);
    await member.submit(LINK, { password: 'not the password' });
    await member.expectText('Incorrect password');
    await snapshots.save(member.page, 'linked-accounts-rejected');
    await member.submit(LINK, { password: member.password });
    await signInThere();
    await member.expectText('Account linked.');
    await snapshots.save(member.page, 'linked-accounts');
    await deployment.mailbox.take(member.email, 'An account was linked');
  });
  await report.check('it signs in, and leads back to the page that needs it', async () => {
    await signOut(member);
    await member.visit('/usage');
    await snapshots.save(member.page, 'signin-with-providers');
    await member.submit(SIGN_IN);
    await signInThere();
    member.expectPath('/usage');
  });
  await report.check('an unlinked account does not sign in, and the page says how to link it', async () => {
    await member.visit(PAGE);
    await member.submit(await member.page.locator('form[action$="/unlink"]').getAttribute('action'));
    await member.expectText('Account unlinked.');
    await deployment.mailbox.take(member.email, 'An account was unlinked');
    await signOut(member);
    await member.submit(SIGN_IN);
    await signInThere();
    await member.expectText('No account is linked');
    await snapshots.save(member.page, 'not-linked');
    await member.follow(`/signin?next=${PAGE}`).catch(() => {});
    await signIn(member);
  });
}
