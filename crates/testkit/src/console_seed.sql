-- Adds the accounts {first} to {last} of {accounts}, with ten keys each, refusals of 30 days for a twentieth of the keys, ten audit events
-- per account, and some of what waits. Without triggers, which would take most of the time.
begin;
set local session_replication_role = replica;

insert into accounts (email, created_at)
select case number % 10 when 0 then 'member' || number || '@example.com'
           else left(md5(number::text), 10) || number || '@mail' || number % 997 || '.example' end,
       now() - interval '1 year' * (1 - number / {accounts}.0)
from generate_series({first}, {last}) number;

insert into keys (id, account_id, seat, name, scope, digest, created_at, deactivated_at, paused_at, expires_at)
select lpad(number::text, 10, 'k'), (number + 9) / 10, 1 + (number + 9) % 10,
       (array['Production', 'Staging', 'Website', 'Mobile app', 'Fraud check', 'Test', 'Backend', 'Checkout', 'Analytics', 'Key'])
           [1 + number % 10] || ' ' || number / 10 % 1000,
       (array['ip', 'geo', 'full'])[1 + number % 3], sha256(number::text::bytea),
       now() - interval '1 year' * (1 - number / {accounts} / 10.0),
       case when number % 50 = 0 then now() - interval '1 day' * (number % 300) end,
       case when number % 500 = 1 then now() - interval '1 hour' * (number % 300) end,
       case when number % 100 = 2 then now() - interval '1 day' + interval '1 hour' * (number % 48) end
from generate_series({first} * 10 - 9, {last} * 10) number;

insert into refusals (key_id, day, reason, count)
select lpad((number * 10 - 9 + ago % 10)::text, 10, 'k'), (now() at time zone 'UTC')::date - ago,
       (array['burst', 'paused', 'inactive', 'day', 'wrong_secret', 'restricted'])[1 + (number / 2 + ago) % 6], 1 + number % 1000
from generate_series({first}, {last}) number, generate_series(0, 29) ago
where number % 2 = 0;

insert into audit_events (at, actor, operator, action, account_id, key_id)
select now() - interval '1 year' * (1 - number / {accounts} / 10.0),
       case when number % 20 = 0 then 'operator' else 'owner' end,
       case when number % 20 = 0 then 'operator' || number / 20 % 7 end,
       case when number % 100000 = 77 then 'email_changed'
           else (array['issued', 'renamed', 'deactivated', 'paused', 'resumed', 'rotated', 'restricted'])[1 + number % 7] end,
       1 + number::bigint * 7919 % {accounts}, lpad((1 + number::bigint * 7919 % ({accounts} * 10))::text, 10, 'k')
from generate_series({first} * 10 - 9, {last} * 10) number;

insert into limit_requests (account_id, daily_limit, message, state, answer, decided_at)
select number, 100000, 'More requests for a larger shop', case when number % 500 > 0 then 'granted' else 'open' end,
       case when number % 500 > 0 then 'Granted until June' end, case when number % 500 > 0 then now() end
from generate_series({first}, {last}) number where number % 100 = 0;

insert into tickets (kind, email, expires_at, tries)
select 'signup', 'new' || number || '@example.com', now() + interval '1 day', number / 20 % 10
from generate_series({first}, {last}) number where number % 20 = 0;
insert into notices (account_id, kind, email, expires_at, tries)
select id, 'passkey', email, now() + interval '3 days', id / 20 % 10 from accounts where id between {first} and {last} and id % 20 = 0;
insert into alerts (key_id, day, kind, tries)
select id, (now() at time zone 'UTC')::date, 'spent', account_id / 50 % 10 from keys
where account_id between {first} and {last} and account_id % 50 = 0;
insert into outbox (key_id, generation)
select id, generation from keys where account_id between {first} and {last} and account_id % 1000 = 0;
commit;
