-- What people need on the portal: passwords, sessions, passkeys, links by mail, alerts, and each key's history. Nowhere an address of a client.

alter table accounts
    add column password_hash text,
    -- What passkeys know an account by: says nothing of its owner.
    add column handle        uuid    not null default gen_random_uuid() unique,
    add column alert_near    boolean not null default true,
    add column alert_spent   boolean not null default true,
    add column alert_paused  boolean not null default true;

create table history (
    id     bigint      generated always as identity primary key,
    key_id text        collate "C" not null references keys on delete cascade,
    at     timestamptz not null default now(),
    act    text        not null check (act in
        ('issued', 'renamed', 'deactivated', 'reactivated', 'paused', 'resumed', 'rolled', 'retired')),
    actor  text        not null check (actor in ('owner', 'operator', 'service'))
);
create index history_key on history (key_id, id);

create table sessions (
    id         bigint      generated always as identity primary key,
    digest     bytea       not null unique check (octet_length(digest) = 32),
    account_id bigint      not null references accounts on delete cascade,
    label      text        not null check (length(label) <= 60),
    created_at timestamptz not null default now(),
    seen_at    timestamptz not null default now()
);
create index sessions_account on sessions (account_id);

-- Devices that signed in before. One may serve two accounts.
create table devices (
    account_id bigint      not null references accounts on delete cascade,
    digest     bytea       not null check (octet_length(digest) = 32),
    created_at timestamptz not null default now(),
    primary key (account_id, digest)
);

-- Links that mails carry, and the queue of those mails: one that is not mailed yet waits in it. The clear token is nowhere.
create table tickets (
    id            bigint      generated always as identity primary key,
    kind          text        not null check (kind in ('signup', 'reset', 'email', 'invite')),
    email         text        not null check (length(email) <= 254),
    -- The account that asks for another address; other kinds find theirs by the address when the link is used.
    account_id    bigint      references accounts on delete cascade check ((account_id is null) = (kind <> 'email')),
    password_hash text,
    -- The browser that asked.
    visit         bytea       check (octet_length(visit) = 32),
    digest        bytea       unique check (octet_length(digest) = 32),
    created_at    timestamptz not null default now(),
    expires_at    timestamptz not null,
    mailed_at     timestamptz,
    tries         int         not null default 0,
    -- Lease and back-off in one: nobody takes it up before.
    try_at        timestamptz not null default now()
);
create index tickets_due on tickets (try_at, id) where mailed_at is null;
create index tickets_email on tickets (lower(email));
create index tickets_account on tickets (account_id);

create table alerts (
    key_id     text        collate "C" not null references keys on delete cascade,
    day        date        not null,
    kind       text        not null check (kind in ('near', 'spent', 'paused')),
    created_at timestamptz not null default now(),
    mailed_at  timestamptz,
    tries      int         not null default 0,
    try_at     timestamptz not null default now(),
    primary key (key_id, day, kind)
);
create index alerts_due on alerts (try_at) where mailed_at is null;

create table passkeys (
    id            bigint      generated always as identity primary key,
    account_id    bigint      not null references accounts on delete cascade,
    credential_id bytea       not null unique,
    name          text        not null check (length(name) between 1 and 60),
    passkey       jsonb       not null,
    created_at    timestamptz not null default now()
);
create index passkeys_account on passkeys (account_id);

-- A passkey ceremony between its two requests.
create table ceremonies (
    digest     bytea       primary key check (octet_length(digest) = 32),
    state      jsonb       not null,
    expires_at timestamptz not null
);

-- In the database, not in the code: no change can forget to wake those who wait for it.
create function announce_account() returns trigger language plpgsql as $$
begin
    perform pg_notify('ipseity_account', coalesce(new.account_id, old.account_id)::text);
    return null;
end $$;

create trigger account_keys_changed after insert or update or delete on keys
    for each row execute function announce_account();
create trigger account_session_ended after delete on sessions
    for each row execute function announce_account();

create function announce_mail() returns trigger language plpgsql as $$
begin
    perform pg_notify('ipseity_mail', '');
    return null;
end $$;

create trigger ticket_queued after insert on tickets
    for each row when (new.mailed_at is null) execute function announce_mail();
create trigger alert_queued after insert on alerts
    for each row execute function announce_mail();
