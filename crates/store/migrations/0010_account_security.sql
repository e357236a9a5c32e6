-- Two-factor authentication, known devices that can be removed, and the security log.

alter table accounts
    -- The secret of the authenticator app.
    add column totp_secret      bytea check (octet_length(totp_secret) = 20),
    -- The time step of the last accepted code. No code is accepted twice.
    add column totp_step        bigint not null default 0,
    -- Since when a password alone is not enough to sign in.
    add column two_factor_since timestamptz;

create table recovery_codes (
    account_id bigint not null references accounts on delete cascade,
    digest     bytea  not null check (octet_length(digest) = 32),
    primary key (account_id, digest)
);

-- Sign-ins with a correct password that wait for the second factor, by the digest of the session cookie.
create table pending_sign_ins (
    digest     bytea       primary key check (octet_length(digest) = 32),
    account_id bigint      not null references accounts on delete cascade,
    expires_at timestamptz not null
);
create index pending_sign_ins_account on pending_sign_ins (account_id);

alter table devices
    add column id    bigint generated always as identity unique,
    add column label text   not null default 'Unknown browser' check (length(label) <= 60);

-- Nodes add rows and never change them. They have no reference, because an event outlives its account.
create table security_events (
    id         bigint      generated always as identity primary key,
    account_id bigint      not null,
    kind       text        not null check (kind ~ '^[a-z_]{1,40}$'),
    key_id     text        collate "C",
    at         timestamptz not null default now()
);
create index security_events_account on security_events (account_id, id);
create index security_events_at on security_events (at);

create function reject_change() returns trigger language plpgsql as $$
begin
    raise exception 'security events cannot be changed';
end $$;
create trigger security_events_are_final before update on security_events
    for each statement execute function reject_change();

-- Deletes events whose retention is over. Nodes may call it, but they may not delete rows.
create function delete_security_events(days int, rows_max bigint) returns void language sql security definer as $$
    delete from security_events where id in (
        select id from security_events where at < now() - make_interval(days => greatest(days, 30)) order by id limit rows_max);
$$;
do $$
begin
    execute format('alter function delete_security_events(int, bigint) set search_path = %I, pg_temp', current_schema());
    execute format('alter function reject_change() set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function delete_security_events(int, bigint), reject_change() from public;

-- What a notice is about, such as the name of a key.
alter table notices add column subject text check (length(subject) <= 200);
