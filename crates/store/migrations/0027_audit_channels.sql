-- Changes of alert channels in the audit log: they decide who learns about keys, and programs can make them with a token.

-- In the order in which nodes lock them.
lock table notices, alert_channels, audit_events in share row exclusive mode;

-- The subject is the part of the URL that is no secret.
create function audit_channel(action text, channel alert_channels) returns void language sql as $$
    select add_audit_event(null, action, channel.account_id, null, left(substring(channel.url from '^[^/]*//[^/]*'), 64));
$$;

create function audit_alert_channel() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'INSERT' then
        perform audit_channel('channel_created', new);
    elsif tg_op = 'DELETE' then
        perform audit_channel('channel_deleted', old);
    else
        if old.url <> new.url or old.alerts <> new.alerts then
            perform audit_channel('channel_changed', new);
        end if;
        if old.secret <> new.secret then
            perform audit_channel('channel_secret_rotated', new);
        end if;
        if old.off_since is not null and new.off_since is null then
            perform audit_channel('channel_turned_on', new);
        end if;
    end if;
    return null;
end $$;
create trigger audit_alert_channel after insert or delete or update on alert_channels
    for each row execute function audit_alert_channel();

-- Not for each row: a usage flush adds thousands.
create function audit_channel_tests() returns trigger language plpgsql security definer as $$
begin
    perform audit_channel('channel_tested', c) from alert_channels c
    where c.id in (select a.channel_id from added a where a.kind = 'alert_test');
    return null;
end $$;
create trigger audit_channel_tests after insert on notices referencing new table as added
    for each statement execute function audit_channel_tests();

-- A change that a token made must not follow its revocation, and be recorded as one of the owner alone.
create or replace function add_audit_event(actor text, action text, account_id bigint, key_id text, subject text) returns void
language plpgsql security definer as $$
declare
    acting  text := coalesce(actor, case current_setting('application_name', true) when 'ipseity-portal' then 'owner' else 'operator' end);
    token_id text := nullif(current_setting('ipseity.token', true), '');
    token_name text;
begin
    if acting = 'owner' and token_id is not null then
        select t.name into token_name from personal_tokens t where t.id = token_id;
        if not found then
            raise exception 'the personal token was revoked' using errcode = 'IP002';
        end if;
    end if;
    insert into audit_events (actor, operator, action, account_id, key_id, subject, token)
    values (acting, case when acting = 'operator' then
                left(coalesce(nullif(current_setting('ipseity.operator', true), ''), session_user), 64) end,
            add_audit_event.action, add_audit_event.account_id, add_audit_event.key_id, add_audit_event.subject, token_name);
end $$;

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace
            and p.proname in ('audit_channel', 'audit_alert_channel', 'audit_channel_tests', 'add_audit_event')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;
