-- The alerts of a channel and a key are a lane, of which only the oldest can be sent. Each lane with pending alerts has a row that says
-- when to look at it, so that a claim reads no others.

-- In the order in which nodes lock them.
lock table accounts, keys, history, alerts, notices, alert_channels in share row exclusive mode;

create table alert_lanes (
    -- 0 for email.
    channel_id bigint      not null,
    key_id     text        collate "C" not null,
    account_id bigint      not null,
    -- A claim looks at the oldest alert of the lane then.
    try_at     timestamptz not null default now(),
    -- Whether the oldest alert was attempted before.
    is_retry   boolean     not null default false,
    -- Increases with each change, so that a statement notices one that it did not see.
    version    bigint      not null default 0,
    primary key (channel_id, key_id)
) with (fillfactor = 70);
create index alert_lanes_due on alert_lanes (channel_id, is_retry, try_at);

-- Wakes claims, and makes the lanes of new alerts. In one order of lanes, so that statements do not deadlock.
create function queue_lanes() returns trigger language plpgsql security definer as $$
begin
    if not exists (select from queued) then
        return null;
    end if;
    insert into alert_lanes (channel_id, key_id, account_id)
    select channel_id, key_id, min(account_id) from queued
    where channel_id is not null and mailed_at is null and failed_at is null
    group by key_id, channel_id order by key_id, channel_id
    on conflict (channel_id, key_id) do update set version = alert_lanes.version + 1;
    perform pg_notify('ipseity_mail', '');
    return null;
end $$;
drop trigger notice_queued on notices;
create trigger notices_queued after insert on notices referencing new table as queued
    for each statement execute function queue_lanes();

insert into alert_lanes (channel_id, key_id, account_id, try_at, is_retry)
select distinct on (channel_id, key_id) channel_id, key_id, account_id, try_at, tries > 0 from notices
where mailed_at is null and failed_at is null and channel_id is not null
order by channel_id, key_id, id;

-- The receiver answered that it is gone, so the channel gets no alerts until its owner turns it on again.
alter table alert_channels add column off_since timestamptz;

-- Queues alerts about these keys for every channel that receives them. Nothing if the account is being deleted.
create function queue_alerts(changed keys[], kinds text[], days date[], epochs bigint[], actors text[]) returns void language sql as $$
    with events as materialized (
        select k.id, k.account_id, e.kind, e.position, gen_random_uuid() as message_id, jsonb_strip_nulls(jsonb_build_object(
            'name', k.name,
            'day', e.day,
            'used', coalesce((select u.admitted from usage u where u.key_id = k.id and u.day = e.day), 0),
            'daily_limit', least(coalesce(k.daily_limit, l.daily_limit), k.own_daily_limit),
            'burst_limit', coalesce(k.burst_limit, l.burst_limit),
            'burst_epoch', e.epoch,
            'requests', (select sum(counted) from pauses p, unnest(p.counts) counted where p.key_id = k.id and p.burst_window = e.epoch),
            'expires_at_s', floor(extract(epoch from k.expires_at)),
            'actor', e.actor)) as details
        from unnest(changed) with ordinality k
        join unnest(kinds, days, epochs, actors) with ordinality e (kind, day, epoch, actor, position) on e.position = k.ordinality
        join account_limits l on l.account_id = k.account_id
    )
    insert into notices (account_id, kind, key_id, channel_id, email, message_id, details, expires_at)
    select e.account_id, 'alert_' || e.kind, e.id, channel.id, channel.email, e.message_id, e.details, now() + interval '1 day'
    from events e
    cross join lateral (
        select 0 as id, a.email from accounts a
        where a.id = e.account_id and case e.kind
            when 'paused' then a.alert_paused when 'resumed' then a.alert_resumed
            when 'near_daily_limit' then a.alert_near when 'daily_limit_reached' then a.alert_spent
            when 'near_burst_limit' then a.alert_near_burst when 'expiring' then a.alert_expiring else false end
        union all
        select c.id, '' from alert_channels c join accounts a on a.id = c.account_id
        where c.account_id = e.account_id and e.kind = any (c.alerts) and c.off_since is null
    ) channel
    order by e.position, channel.id;
$$;

-- A usage flush adds thousands of rows at a time.
create function queue_key_alerts() returns trigger language plpgsql security definer as $$
begin
    perform queue_alerts(array_agg(event.k), array_agg(event.kind), array_agg(event.day), array_agg(event.epoch), array_agg(null::text))
    from (
        select k, a.day, case when a.kind = 'paused' then nullif(a.burst_window, 0) end as epoch,
            case a.kind when 'near' then 'near_daily_limit' when 'spent' then 'daily_limit_reached' else a.kind end as kind
        from added a join keys k on k.id = a.key_id
        order by a.key_id, a.day, a.kind
    ) event
    having count(*) > 0;
    return null;
end $$;
drop trigger queue_key_alert on alerts;
create trigger queue_key_alerts after insert on alerts referencing new table as added
    for each statement execute function queue_key_alerts();

-- Nodes before 0.2 send emails of rows that are not mailed.
drop trigger mark_alert_mailed on alerts;
alter table alerts alter column mailed_at set default now();
-- Rows of notices wake claims.
drop trigger alert_queued on alerts;

create or replace function queue_history_alert() returns trigger language plpgsql security definer as $$
begin
    perform queue_alerts(
        array[k], array[case new.act when 'issued' then 'created' when 'rolled' then 'rotated' else new.act end],
        array[(new.at at time zone 'UTC')::date], array[null::bigint], array[new.actor])
    from keys k where k.id = new.key_id;
    return null;
end $$;

create or replace function queue_deletion_alert() returns trigger language plpgsql security definer as $$
begin
    perform queue_alerts(array[old], array['deleted'], array[(now() at time zone 'UTC')::date], array[null::bigint],
        array[case current_setting('application_name', true) when 'ipseity-portal' then 'owner' else 'operator' end]);
    return null;
end $$;

drop function queue_key_alert(), mark_alert_mailed(), queue_alert(keys, text, jsonb), alert_details(keys, date, bigint, text);

-- Operators end sessions by signing out or on their profile. Retention ends those that are too old, and writes no event.
create function audit_ended_sessions() returns trigger language plpgsql security definer as $$
begin
    perform audit_operator(current_setting('ipseity.ended_sessions', true), o.name)
    from operators o where o.id in (select operator_id from ended);
    return null;
end $$;
create trigger audit_ended_sessions after delete on operator_sessions referencing old table as ended
    for each statement when (current_setting('ipseity.ended_sessions', true) in ('operator_signed_out', 'operator_sessions_ended'))
    execute function audit_ended_sessions();

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace and p.proname in (
            'queue_lanes', 'queue_alerts', 'queue_key_alerts', 'queue_history_alert', 'queue_deletion_alert', 'audit_ended_sessions')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;
