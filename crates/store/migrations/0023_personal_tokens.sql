-- Personal tokens: programs of an account's owner send them to the management API.

-- In the order in which nodes lock them.
lock table accounts, keys, history, audit_events in share row exclusive mode;

create table personal_tokens (
    id           text        primary key collate "C" check (id ~ '^[0-9A-Za-z]{10}$'),
    account_id   bigint      not null references accounts on delete cascade,
    name         text        not null check (length(name) between 1 and 64),
    digest       bytea       not null check (octet_length(digest) = 32),
    -- The scopes are those of the program.
    scopes       text[]      not null,
    created_at   timestamptz not null default now(),
    -- Null: never.
    expires_at   timestamptz,
    -- Written once per hour at most.
    last_used_at timestamptz
);
create index personal_tokens_account on personal_tokens (account_id);

-- Whether personal tokens can resume paused keys.
alter table accounts add column tokens_may_resume boolean not null default false;

-- The name of the personal token that an owner's change was made with.
alter table audit_events add column token text check (length(token) <= 64);

-- Connections of the management API set the id of their token.
create or replace function add_audit_event(actor text, action text, account_id bigint, key_id text, subject text) returns void
language sql security definer as $$
    insert into audit_events (actor, operator, action, account_id, key_id, subject, token)
    select a.actor, case when a.actor = 'operator' then
               left(coalesce(nullif(current_setting('ipseity.operator', true), ''), session_user), 64) end,
           add_audit_event.action, add_audit_event.account_id, add_audit_event.key_id, add_audit_event.subject,
           case when a.actor = 'owner' then (
               select t.name from personal_tokens t where t.id = current_setting('ipseity.token', true)) end
    from (select coalesce(add_audit_event.actor,
                 case current_setting('application_name', true) when 'ipseity-portal' then 'owner' else 'operator' end) as actor) a;
$$;

create function audit_personal_token() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'INSERT' then
        perform add_audit_event(null, 'token_created', new.account_id, null, new.name);
    else
        perform add_audit_event(null, 'token_revoked', old.account_id, null, old.name);
    end if;
    return null;
end $$;
create trigger audit_personal_token after insert or delete on personal_tokens
    for each row execute function audit_personal_token();

create function audit_token_resume() returns trigger language plpgsql security definer as $$
begin
    perform add_audit_event(null,
        case when new.tokens_may_resume then 'token_resume_allowed' else 'token_resume_forbidden' end, new.id, null, null);
    return null;
end $$;
create trigger audit_token_resume after update of tokens_may_resume on accounts for each row
    when (old.tokens_may_resume <> new.tokens_may_resume) execute function audit_token_resume();

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace
            and p.proname in ('add_audit_event', 'audit_personal_token', 'audit_token_resume')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;
