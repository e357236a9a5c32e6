-- Limits are the operator's: a plan also has a burst limit and a number of keys, and one account or key can have its own.
-- Redis stores eight digits of a daily limit and four of a burst limit.
lock table accounts, keys, history, plans in share row exclusive mode;

-- Larger limits were stored in Redis with more digits. Their records are written again.
update keys set generation = generation + 1 where account_id in (
    select a.id from accounts a join plans p on p.name = a.plan where p.daily_limit > 99999999);
update plans set daily_limit = 99999999 where daily_limit > 99999999;

alter table plans
    add constraint plans_daily_limit_max check (daily_limit <= 99999999),
    add column burst_limit integer not null default 300 check (burst_limit between 1 and 6000),
    add column keys_max    integer not null default 10  check (keys_max between 1 and 1000);
-- Null where the plan applies.
alter table accounts
    add column daily_limit bigint  check (daily_limit between 1 and 99999999),
    add column burst_limit integer check (burst_limit between 1 and 6000),
    add column keys_max    integer check (keys_max between 1 and 1000);
-- Null where the account's limit applies. Unlike own_daily_limit, which the owner sets, it can raise the limit.
alter table keys
    add column daily_limit bigint  check (daily_limit between 1 and 99999999),
    add column burst_limit integer check (burst_limit between 1 and 6000),
    drop constraint keys_seat_check,
    add constraint keys_seat_check check (seat between 1 and 1000);

-- The lowest limits, which every usage flush needs.
create index accounts_lowest_limit on accounts (daily_limit) where daily_limit is not null;
create index keys_lowest_limit on keys (least(daily_limit, own_daily_limit))
    where least(daily_limit, own_daily_limit) is not null;

create view account_limits as
select a.id as account_id, coalesce(a.daily_limit, p.daily_limit) as daily_limit,
       coalesce(a.burst_limit, p.burst_limit) as burst_limit, coalesce(a.keys_max, p.keys_max) as keys_max
from accounts a join plans p on p.name = a.plan;

alter table history drop constraint history_act_check;
alter table history add constraint history_act_check check (act in
    ('issued', 'renamed', 'deactivated', 'reactivated', 'paused', 'resumed', 'rolled', 'retired', 'restricted',
     'invalidated', 'limits_changed'));

-- The limits of one account or key, as the audit log shows them.
create function limits_text(daily_limit bigint, burst_limit int, keys_max int) returns text language sql immutable as $$
    select coalesce(nullif(concat_ws(', ', 'daily_limit ' || daily_limit, 'burst_limit ' || burst_limit,
        'keys_max ' || keys_max), ''), 'default')
$$;

create function audit_account_limits() returns trigger language plpgsql security definer as $$
begin
    perform add_audit_event(null, 'limits_changed', new.id, null, limits_text(new.daily_limit, new.burst_limit, new.keys_max));
    return null;
end $$;
create trigger audit_account_limits after update of daily_limit, burst_limit, keys_max on accounts for each row
    when ((old.daily_limit, old.burst_limit, old.keys_max) is distinct from (new.daily_limit, new.burst_limit, new.keys_max))
    execute function audit_account_limits();

create or replace function audit_history() returns trigger language plpgsql security definer as $$
begin
    perform add_audit_event(
        new.actor,
        case new.act when 'rolled' then 'rotated' when 'retired' then 'previous_revoked' else new.act end,
        k.account_id, new.key_id,
        case new.act when 'limits_changed' then limits_text(k.daily_limit, k.burst_limit, null) end)
    from keys k where k.id = new.key_id;
    return null;
end $$;

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace
            and p.proname in ('audit_account_limits', 'audit_history', 'limits_text')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;
