// Writes usage of the past and pauses directly into PostgreSQL.

const keysOf = ({ email }) => `select id from keys where account_id = (select id from accounts where email = '${email}')`;

// Gives each key of the member usage on this many days, except today.
export async function seedUsage(deployment, member, days) {
  const past = `(${keysOf(member)}) own cross join generate_series(1, ${days - 1}) past`;
  const day = `(now() at time zone 'utc')::date - past`;
  const count = '6000 + (2000 * sin(past / 3.0))::bigint - 1500 * (past % 7 / 5)';
  const reasons = `(values ('burst'), ('paused'), ('inactive'), ('day'), ('wrong_secret')) reasons (reason)`;
  await deployment.sql(`insert into usage (key_id, day, admitted) select id, ${day}, ${count} from ${past} on conflict do nothing`);
  await deployment.sql(`insert into refusals (key_id, day, reason, count) select id, ${day}, reason, 1 + past * 7 % 40
    from ${past} cross join ${reasons} on conflict do nothing`);
  // Every hour has admitted requests and some rejected ones.
  const starts = (total) => `('[0:23]=' || (select array_agg((hour * ${total} / 24)::bigint order by hour) from generate_series(0, 23) hour)::text)::bigint[]`;
  await deployment.sql(`insert into usage_hours (key_id, day, outcome, starts) select key_id, day, 'admitted', ${starts('admitted')}
    from usage where key_id in (${keysOf(member)}) and day > (now() at time zone 'utc')::date - 31 on conflict do nothing`);
  await deployment.sql(`insert into usage_hours (key_id, day, outcome, starts) select key_id, day, reason, ${starts('count')}
    from refusals where key_id in (${keysOf(member)}) and day > (now() at time zone 'utc')::date - 31 on conflict do nothing`);
  await deployment.sql('analyze');
}

// Pauses each key of the member, with the same number of requests in nearly every second.
export async function pauseAllKeys(deployment, member) {
  await deployment.sql(`update keys set paused_at = now() where id in (${keysOf(member)})`);
  await deployment.sql(`insert into pauses (key_id, burst_window, paused_at, counts)
    select id, burst_window, paused_at, array_fill(5::smallint, array[59]) || 6::smallint from keys where id in (${keysOf(member)})`);
}

export async function resumeAllKeys(deployment, member) {
  await deployment.sql(`delete from pauses using keys where key_id = id and id in (${keysOf(member)}) and pauses.burst_window = keys.burst_window`);
  await deployment.sql(`update keys set paused_at = null where id in (${keysOf(member)})`);
}
