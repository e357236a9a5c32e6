// A past that no tour has the time for, written into PostgreSQL.

const keysOf = ({ email }) => `select id from keys where account_id = (select id from accounts where email = '${email}')`;

// Gives each key of the member so many days of use, but none today.
export async function remember(house, member, days) {
  const past = `(${keysOf(member)}) own cross join generate_series(1, ${days - 1}) past`;
  const day = `(now() at time zone 'utc')::date - past`;
  const count = '6000 + (2000 * sin(past / 3.0))::bigint - 1500 * (past % 7 / 5)';
  const reasons = `(values ('burst'), ('paused'), ('inactive'), ('day'), ('wrong_secret')) reasons (reason)`;
  await house.sql(`insert into usage (key_id, day, admitted) select id, ${day}, ${count} from ${past} on conflict do nothing`);
  await house.sql(`insert into refusals (key_id, day, reason, count) select id, ${day}, reason, 1 + past * 7 % 40
    from ${past} cross join ${reasons} on conflict do nothing`);
  await house.sql('analyze');
}

// Pauses each key of the member, each second of the minute as busy as the others.
export async function pauseAll(house, member) {
  await house.sql(`update keys set paused_at = now() where id in (${keysOf(member)})`);
  await house.sql(`insert into pauses (key_id, burst_window, paused_at, counts)
    select id, burst_window, paused_at, array_fill(5::smallint, array[59]) || 6::smallint from keys where id in (${keysOf(member)})`);
}

export async function resumeAll(house, member) {
  await house.sql(`delete from pauses using keys where key_id = id and id in (${keysOf(member)}) and pauses.burst_window = keys.burst_window`);
  await house.sql(`update keys set paused_at = null where id in (${keysOf(member)})`);
}
