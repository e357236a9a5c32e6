// Deleting an account: its keys stop working immediately, and no data remains.

import { eventually } from '../wait.mjs';

const TABLES = `select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`;

export async function deleteAccount({ report, snapshots, api, deployment }, member) {
  let traces;
  let others;
  await report.require('deleting the account requires the password and the email address', async () => {
    traces = await tracesOf(deployment, member.email);
    others = await countKeysOfOthers(deployment, traces);
    await member.visit('/account');
    await member.follow('/account/delete');
    await snapshots.save(member.page, 'account-delete');
    await member.submit('/account/delete', { email: member.email, password: 'not the password' });
    await snapshots.save(member.page, 'account-delete-rejected');
    await member.submit('/account/delete', { email: 'other@example.com', password: member.password });
    await member.expectText('isn’t the email address of your account');
    await api.expect([member.key, 200]);
  });
  await report.require('a key of the deleted account is rejected with 401 on the next request', async () => {
    await member.visit('/account/delete');
    await member.submit('/account/delete', { email: member.email, password: member.password });
    await api.expect([member.key, 401]);
    await member.expectText('deleted');
  });
  await report.check('the session has ended and the password is rejected', async () => {
    await member.visit('/keys');
    member.expectPath('/signin');
    await member.submit('/signin', { email: member.email, password: member.password });
    member.expectPath('/signin');
  });
  await report.check('no table contains data of the account', async () => {
    const tables = (await deployment.sql(TABLES)).map(([name]) => name);
    // The outbox worker removes its rows once Redis has the change.
    await eventually('no data', async () => (await findTraces(deployment, tables, traces)).length === 0).catch(async (error) => {
      throw new Error(`${error.message}; left: ${(await findTraces(deployment, tables, traces)).join(', ')}`);
    });
    return `searched ${tables.length} tables for ${traces.words.length} words`;
  });
  await report.check('other accounts keep their keys', async () => {
    const left = await countKeysOfOthers(deployment, traces);
    if (left !== others) throw new Error(`${left} of ${others} keys are left`);
  });
}

// What identifies the account in a row: its ID, its email and its key IDs.
async function tracesOf(deployment, email) {
  const [[account]] = await deployment.sql(`select id from accounts where email = '${email}'`);
  const keys = await deployment.sql(`select id from keys where account_id = ${account}`);
  return { account, words: [email.replace(/^new-/, ''), ...keys.map(([id]) => id)] };
}

async function countKeysOfOthers(deployment, { account }) {
  const [[count]] = await deployment.sql(`select count(*) from keys where account_id <> ${account}`);
  return count;
}

// The security and audit logs keep numbers of accounts and IDs of keys, but no emails and no names of owners or keys.
async function findTraces(deployment, tables, { account, words }) {
  const found = [];
  for (const table of tables) {
    const isLog = ['security_events', 'audit_events'].includes(table);
    const contains = (isLog ? words.slice(0, 1) : words).map((word) => `row::text like '%${word}%'`).join(' or ');
    const isOwned = isLog ? 'false' : `(to_jsonb(row) ->> 'account_id') = '${account}'`;
    const [[count]] = await deployment.sql(`select count(*) from "${table}" row where ${contains} or ${isOwned}`);
    if (count !== '0') found.push(`${count} in ${table}`);
  }
  return found;
}
