-- Alerts reach owners by email, by webhooks and in Slack. They share the outbox of security emails: the table notices.

-- In the order in which nodes lock them.
lock table accounts, keys, history, alerts, notices in share row exclusive mode;

-- By email. Created, rotated and deleted keys send a security email, which has no setting.
alter table accounts
    add column alert_near_burst boolean not null default true,
    add column alert_resumed    boolean not null default false,
    add column alert_expiring   boolean not null default true;

create table alert_channels (
    id              bigint      generated always as identity primary key,
    account_id      bigint      not null references accounts on delete cascade,
    kind            text        not null check (kind in ('webhook', 'slack')),
    -- For Slack, whoever has it can post to the channel.
    url             text        not null check (length(url) <= 2000),
    -- The alerts that it receives. The kinds are those of the program.
    alerts          text[]      not null,
    -- Signs webhooks.
    secret          bytea       not null check (octet_length(secret) = 32),
    -- The secret before a rotation also signs for a while, so that receivers can be changed meanwhile.
    previous_secret bytea       check (octet_length(previous_secret) = 32),
    previous_until  timestamptz check ((previous_until is null) = (previous_secret is null)),
    created_at      timestamptz not null default now()
);
create index alert_channels_account on alert_channels (account_id);

alter table notices
    -- A webhook has no recipient.
    alter column email set default '',
    -- The following columns are those of alerts. Null for security emails.
    -- The channel; 0 for email. It has no reference, because a pause must not wait for a channel that is being deleted.
    add column channel_id bigint,
    -- Empty for a test of the channel.
    add column key_id     text collate "C",
    -- The same for all channels and attempts.
    add column message_id uuid,
    -- What was true when it happened, so that every attempt sends the same.
    add column details    jsonb,
    add column failed_at  timestamptz,
    -- Of the last attempt, such as `HTTP 503`.
    add column outcome    text check (length(outcome) <= 200);
-- The oldest pending alert of a channel and key is sent before the others.
create index notices_lanes on notices (channel_id, key_id, id)
    where mailed_at is null and failed_at is null and channel_id is not null;
create index notices_security_due on notices (try_at, id) where mailed_at is null and channel_id is null;
create index notices_log on notices (channel_id, id) where channel_id > 0;
create index notices_sent_pauses on notices (key_id, channel_id, mailed_at) where kind = 'alert_paused' and mailed_at is not null;
create index notices_emails_due on notices (try_at, id) where mailed_at is null and failed_at is null and channel_id = 0;
create index notices_emails_expired on notices (expires_at) where coalesce(channel_id, 0) = 0;
create index notices_log_expired on notices (expires_at) where channel_id > 0;
create index keys_expiring on keys (expires_at) where expires_at is not null;

create function delete_channel_alerts() returns trigger language plpgsql security definer as $$
begin
    delete from notices where channel_id = old.id;
    return null;
end $$;
create trigger delete_channel_alerts after delete on alert_channels
    for each row execute function delete_channel_alerts();

-- Notices outlive their account, because one of them says that it was deleted. Alerts do not.
create function delete_account_alerts() returns trigger language plpgsql security definer as $$
begin
    delete from notices where account_id = old.id and channel_id is not null;
    return null;
end $$;
create trigger delete_account_alerts after delete on accounts
    for each row execute function delete_account_alerts();

-- What an alert says about its key.
create function alert_details(k keys, on_day date, epoch bigint, actor text) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'name', k.name,
        'day', on_day,
        'used', coalesce((select u.admitted from usage u where u.key_id = k.id and u.day = on_day), 0),
        'daily_limit', least(coalesce(k.daily_limit, l.daily_limit), k.own_daily_limit),
        'burst_limit', coalesce(k.burst_limit, l.burst_limit),
        'burst_epoch', epoch,
        'requests', (select sum(counted) from pauses p, unnest(p.counts) counted where p.key_id = k.id and p.burst_window = epoch),
        'expires_at_s', floor(extract(epoch from k.expires_at)),
        'actor', actor))
    from account_limits l where l.account_id = k.account_id;
$$;

-- Queues an alert for every channel of the account that receives it. Nothing if the account is being deleted.
create function queue_alert(k keys, alert text, details jsonb) returns void language sql as $$
    insert into notices (account_id, kind, key_id, channel_id, email, message_id, details, expires_at)
    select k.account_id, 'alert_' || alert, k.id, channel.id, channel.email, message.id, details, now() + interval '1 day'
    from (select gen_random_uuid() as id) message
    cross join lateral (
        select 0 as id, a.email from accounts a
        where a.id = k.account_id and case alert
            when 'paused' then a.alert_paused when 'resumed' then a.alert_resumed
            when 'near_daily_limit' then a.alert_near when 'daily_limit_reached' then a.alert_spent
            when 'near_burst_limit' then a.alert_near_burst when 'expiring' then a.alert_expiring else false end
        union all
        select c.id, '' from alert_channels c join accounts a on a.id = c.account_id
        where c.account_id = k.account_id and alert = any (c.alerts)
    ) channel;
$$;

-- Rows of alerts make sure that an alert is queued once. Nodes of the previous version send emails of rows that are not mailed.
create function mark_alert_mailed() returns trigger language plpgsql as $$
begin
    new.mailed_at := now();
    return new;
end $$;
create trigger mark_alert_mailed before insert on alerts for each row execute function mark_alert_mailed();

create function queue_key_alert() returns trigger language plpgsql security definer as $$
begin
    perform queue_alert(
        k, case new.kind when 'near' then 'near_daily_limit' when 'spent' then 'daily_limit_reached' else new.kind end,
        alert_details(k, new.day, case when new.kind = 'paused' then nullif(new.burst_window, 0) end, null))
    from keys k where k.id = new.key_id;
    return null;
end $$;
create trigger queue_key_alert after insert on alerts for each row execute function queue_key_alert();

create function queue_history_alert() returns trigger language plpgsql security definer as $$
begin
    perform queue_alert(
        k, case new.act when 'issued' then 'created' when 'rolled' then 'rotated' else new.act end,
        alert_details(k, (new.at at time zone 'UTC')::date, null, new.actor))
    from keys k where k.id = new.key_id;
    return null;
end $$;
create trigger queue_history_alert after insert on history
    for each row when (new.act in ('issued', 'rolled', 'resumed')) execute function queue_history_alert();

create function queue_deletion_alert() returns trigger language plpgsql security definer as $$
begin
    perform queue_alert(old, 'deleted', alert_details(old, (now() at time zone 'UTC')::date, null,
        case current_setting('application_name', true) when 'ipseity-portal' then 'owner' else 'operator' end));
    return null;
end $$;
create trigger queue_deletion_alert after delete on keys for each row execute function queue_deletion_alert();

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace and p.proname in (
            'delete_channel_alerts', 'delete_account_alerts', 'alert_details', 'queue_alert', 'mark_alert_mailed', 'queue_key_alert',
            'queue_history_alert', 'queue_deletion_alert')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;

-- Alerts that are not sent yet.
insert into notices (account_id, kind, key_id, channel_id, email, message_id, details, created_at, expires_at)
select a.id, 'alert_' || case q.kind when 'near' then 'near_daily_limit' when 'spent' then 'daily_limit_reached' else q.kind end,
       k.id, 0, a.email, gen_random_uuid(), alert_details(k, q.day, nullif(q.burst_window, 0), null), q.created_at, now() + interval '1 day'
from alerts q join keys k on k.id = q.key_id join accounts a on a.id = k.account_id
where q.mailed_at is null and q.tries < 8
    and case q.kind when 'near' then a.alert_near when 'spent' then a.alert_spent else a.alert_paused end
order by q.created_at;
update alerts set mailed_at = now() where mailed_at is null;
