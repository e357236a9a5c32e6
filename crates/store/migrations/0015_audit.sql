-- The audit log: who changed keys, accounts, plans, invitations and sites. It has no references, because an event outlives
-- what it is about. Triggers of the owner write it, and nodes can only read it, so that a stolen login of a node cannot
-- change or delete what it says. It has no email address.

-- In the order in which nodes lock them, so that no change of a key is left out and none deadlocks.
lock table accounts, keys, history, tickets, plans, sites in share row exclusive mode;

create table audit_events (
    id         bigint      generated always as identity primary key,
    at         timestamptz not null default now(),
    actor      text        not null check (actor in ('owner', 'operator', 'service')),
    -- The name of the operator.
    operator   text        check (length(operator) <= 64),
    action     text        not null check (action ~ '^[a-z_]{1,40}$'),
    account_id bigint,
    key_id     text        collate "C",
    -- The name of a plan or site.
    subject    text        check (length(subject) <= 64)
);
create index audit_events_account on audit_events (account_id, id);
create index audit_events_key on audit_events (key_id, id);
create index audit_events_at on audit_events (at);

insert into audit_events (at, actor, action, account_id, key_id)
select h.at, h.actor, case h.act when 'rolled' then 'rotated' when 'retired' then 'previous_revoked' else h.act end,
       k.account_id, h.key_id
from history h join keys k on k.id = h.key_id order by h.id;

create trigger audit_events_are_final before update on audit_events
    for each statement execute function reject_change();

-- Adds an event. Without an actor, it is the owner on the portal, or else an operator. Commands set the name of their operator;
-- without it, the name is that of the login.
create function add_audit_event(actor text, action text, account_id bigint, key_id text, subject text) returns void
language sql security definer as $$
    insert into audit_events (actor, operator, action, account_id, key_id, subject)
    select a.actor, case when a.actor = 'operator' then
               left(coalesce(nullif(current_setting('ipseity.operator', true), ''), session_user), 64) end,
           add_audit_event.action, add_audit_event.account_id, add_audit_event.key_id, add_audit_event.subject
    from (select coalesce(add_audit_event.actor,
                 case current_setting('application_name', true) when 'ipseity-portal' then 'owner' else 'operator' end) as actor) a;
$$;

create function audit_history() returns trigger language plpgsql security definer as $$
begin
    perform add_audit_event(
        new.actor,
        case new.act when 'rolled' then 'rotated' when 'retired' then 'previous_revoked' else new.act end,
        (select k.account_id from keys k where k.id = new.key_id), new.key_id, null);
    return null;
end $$;
create trigger audit_history after insert on history for each row execute function audit_history();

create function audit_key_deletion() returns trigger language plpgsql security definer as $$
begin
    perform add_audit_event(null, 'deleted', old.account_id, old.id, null);
    return null;
end $$;
create trigger audit_key_deletion after delete on keys for each row execute function audit_key_deletion();

create function audit_account() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'INSERT' then
        perform add_audit_event(null, 'account_created', new.id, null, new.plan);
        return null;
    elsif tg_op = 'DELETE' then
        perform add_audit_event(null, 'account_deleted', old.id, null, null);
        return null;
    end if;
    if new.plan is distinct from old.plan then
        perform add_audit_event(null, 'plan_changed', new.id, null, new.plan);
    end if;
    if new.email is distinct from old.email then
        perform add_audit_event(null, 'email_changed', new.id, null, null);
    end if;
    if (new.two_factor_since is null) is distinct from (old.two_factor_since is null) then
        perform add_audit_event(null,
            case when new.two_factor_since is null then 'two_factor_disabled' else 'two_factor_enabled' end, new.id, null, null);
    end if;
    return null;
end $$;
create trigger audit_account after insert or delete or update of plan, email, two_factor_since on accounts
    for each row execute function audit_account();

create function audit_invitation() returns trigger language plpgsql security definer as $$
begin
    perform add_audit_event('operator', 'invited',
        (select a.id from accounts a where a.email = new.email), null, null);
    return null;
end $$;
create trigger audit_invitation after insert on tickets
    for each row when (new.kind = 'invite') execute function audit_invitation();

create function audit_named() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'INSERT' then
        perform add_audit_event('operator', tg_argv[0] || '_added', null, null, new.name);
    elsif tg_op = 'DELETE' then
        perform add_audit_event('operator', tg_argv[0] || '_removed', null, null, old.name);
    else
        perform add_audit_event('operator', tg_argv[0] || '_updated', null, null, new.name);
    end if;
    return null;
end $$;
create trigger audit_plan after insert or update or delete on plans for each row execute function audit_named('plan');
create trigger audit_site after insert or update or delete on sites for each row execute function audit_named('site');

-- Deletes events whose retention is over. Nodes may call it, but they may not delete rows.
create function delete_audit_events(days int, rows_max bigint) returns void language sql security definer as $$
    delete from audit_events where id in (
        select id from audit_events where at < now() - make_interval(days => greatest(days, 30)) order by id limit rows_max);
$$;

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace and p.proname in (
            'add_audit_event', 'audit_history', 'audit_key_deletion', 'audit_account', 'audit_invitation', 'audit_named',
            'delete_audit_events')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;
