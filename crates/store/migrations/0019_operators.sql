-- The operators of the admin console: who they are, how they sign in, and their sessions. Secrets are stored only as digests.

create table operators (
    id         bigint      generated always as identity primary key,
    -- The audit log names operators by it.
    name       text        not null check (name ~ '^[A-Za-z0-9._@-]{1,64}$'),
    role       text        not null check (role in ('viewer', 'support', 'admin')),
    -- The WebAuthn user handle.
    handle     uuid        not null unique default gen_random_uuid(),
    created_at timestamptz not null default now()
);
create unique index operators_name on operators (lower(name));

create table operator_passkeys (
    id            bigint      generated always as identity primary key,
    operator_id   bigint      not null references operators on delete cascade,
    credential_id bytea       not null constraint operator_passkeys_credential_id_key unique,
    name          text        not null check (length(name) between 1 and 60),
    passkey       jsonb       not null,
    created_at    timestamptz not null default now()
);
create index operator_passkeys_operator on operator_passkeys (operator_id);

-- Accounts of other providers with which operators sign in.
create table operator_identities (
    id          bigint      generated always as identity primary key,
    operator_id bigint      not null references operators on delete cascade,
    issuer      text        not null check (length(issuer) <= 200),
    subject     text        not null check (length(subject) <= 255),
    -- What the provider calls the account, such as its email address.
    label       text        not null check (length(label) <= 254),
    created_at  timestamptz not null default now(),
    constraint operator_identities_subject_key unique (issuer, subject)
);
create index operator_identities_operator on operator_identities (operator_id);

create table operator_sessions (
    id          bigint      generated always as identity primary key,
    operator_id bigint      not null references operators on delete cascade,
    digest      bytea       not null unique check (length(digest) = 32),
    label       text        not null check (length(label) <= 60),
    created_at  timestamptz not null default now(),
    seen_at     timestamptz not null default now()
);
create index operator_sessions_operator on operator_sessions (operator_id);

-- Single-use links with which an operator adds the first way to sign in. Without an operator, the link makes the first one.
create table operator_links (
    digest      bytea       primary key check (length(digest) = 32),
    operator_id bigint      unique references operators on delete cascade,
    expires_at  timestamptz not null
);

-- Adds an event of an operator. On a connection of the console without a name, the operator signs in or changes itself.
create function audit_operator(action text, operator_name text) returns void language plpgsql security definer as $$
begin
    if coalesce(current_setting('ipseity.operator', true), '') = ''
            and current_setting('application_name', true) = 'ipseity-console' then
        perform set_config('ipseity.operator', operator_name, true);
    end if;
    perform add_audit_event('operator', action, null, null, operator_name);
end $$;

create function audit_operators() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'INSERT' then
        perform audit_operator('operator_added_as_' || new.role, new.name);
    elsif tg_op = 'DELETE' then
        perform audit_operator('operator_removed', old.name);
    elsif new.role is distinct from old.role then
        perform audit_operator('operator_changed_to_' || new.role, new.name);
    end if;
    return null;
end $$;
create trigger audit_operators after insert or delete or update of role on operators
    for each row execute function audit_operators();

-- Passkeys, identities, sessions and links. What goes with its operator needs no event of its own.
create function audit_operator_access() returns trigger language plpgsql security definer as $$
declare
    changed bigint := case tg_op when 'DELETE' then old.operator_id else new.operator_id end;
    operator_name text := (select o.name from operators o where o.id = changed);
begin
    if operator_name is not null then
        perform audit_operator(tg_argv[case tg_op when 'DELETE' then 1 else 0 end], operator_name);
    end if;
    return null;
end $$;
create trigger audit_operator_passkeys after insert or delete on operator_passkeys
    for each row execute function audit_operator_access('operator_passkey_added', 'operator_passkey_removed');
create trigger audit_operator_identities after insert or delete on operator_identities
    for each row execute function audit_operator_access('operator_identity_added', 'operator_identity_removed');
create trigger audit_operator_links after insert on operator_links
    for each row execute function audit_operator_access('operator_link_created');
create trigger audit_operator_sessions after insert on operator_sessions
    for each row execute function audit_operator_access('operator_signed_in');

do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace
            and p.proname in ('audit_operator', 'audit_operators', 'audit_operator_access')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', signature, current_schema());
        execute format('revoke execute on function %s from public', signature);
    end loop;
end $$;
