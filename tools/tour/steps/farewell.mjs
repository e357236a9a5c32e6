// The end of an account: its keys refused at once, and nothing of it left.

import { eventually } from '../wait.mjs';

const TABLES = `select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`;

export async function farewell({ report, gallery, elsewhere, house }, member) {
  let traces;
  let others;
  await report.must('deleting the account asks for the password', async () => {
    traces = await tracesOf(house, member.email);
    others = await keysOfOthers(house, traces);
    await member.visit('/account');
    await member.follow('/account/delete');
    await gallery.keep(member.page, 'account-delete');
    await member.submit('/account/delete', { password: 'not the password' });
    await gallery.keep(member.page, 'account-delete-refused');
    await elsewhere.expect([member.key, 200]);
  });
  await report.must('a deleted account’s key is refused with 401 on the next request', async () => {
    await member.visit('/account/delete');
    await member.submit('/account/delete', { password: member.password });
    await elsewhere.expect([member.key, 401]);
    await member.reads('deleted');
  });
  await report.claim('its session is over, and its password opens nothing', async () => {
    await member.visit('/keys');
    member.isAt('/signin');
    await member.submit('/signin', { email: member.email, password: member.password });
    member.isAt('/signin');
  });
  await report.claim('no row of any table holds anything of it', async () => {
    const tables = (await house.sql(TABLES)).map(([name]) => name);
    // The relay takes the outbox's rows away once the counter store has them.
    await eventually('no trace', async () => (await remains(house, tables, traces)).length === 0).catch(async (error) => {
      throw new Error(`${error.message}; left: ${(await remains(house, tables, traces)).join(', ')}`);
    });
    return `${tables.length} tables searched for ${traces.words.length} words`;
  });
  await report.claim('and nobody else lost anything', async () => {
    const left = await keysOfOthers(house, traces);
    if (left !== others) throw new Error(`${left} keys are left of ${others}`);
  });
}

// What would betray the account: its number, and every word that names it or one of its keys.
async function tracesOf(house, email) {
  const [[account]] = await house.sql(`select id from accounts where email = '${email}'`);
  const keys = await house.sql(`select id from keys where account_id = ${account}`);
  return { account, words: [email.replace(/^new-/, ''), ...keys.map(([id]) => id)] };
}

async function keysOfOthers(house, { account }) {
  const [[count]] = await house.sql(`select count(*) from keys where account_id <> ${account}`);
  return count;
}

async function remains(house, tables, { account, words }) {
  const found = [];
  for (const table of tables) {
    const alike = words.map((word) => `row::text like '%${word}%'`).join(' or ');
    const owned = `(to_jsonb(row) ->> 'account_id') = '${account}'`;
    const [[count]] = await house.sql(`select count(*) from "${table}" row where ${alike} or ${owned}`);
    if (count !== '0') found.push(`${count} in ${table}`);
  }
  return found;
}
