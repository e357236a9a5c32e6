-- Accounts, keys and what became of them. Times are timestamptz; days are dates in UTC.

create table plans (
    name        text   primary key check (name ~ '^[a-z][a-z0-9-]{0,31}$'),
    daily_limit bigint not null check (daily_limit > 0)
);
insert into plans values ('free', 10000);

create table accounts (
    id         bigint      generated always as identity primary key,
    email      text        not null check (length(email) <= 254),
    plan       text        not null default 'free' references plans,
    created_at timestamptz not null default now()
);
create unique index accounts_email on accounts (lower(email));

create table keys (
    id             text        collate "C" primary key check (id ~ '^[0-9A-Za-z]{10}$'),
    account_id     bigint      not null references accounts on delete cascade,
    -- One of ten seats: the eleventh key finds none, whoever races.
    seat           smallint    not null check (seat between 1 and 10),
    name           text        not null check (length(name) between 1 and 100),
    scope          text        not null check (scope in ('ip', 'geo', 'full')),
    digest         bytea       not null check (octet_length(digest) = 32),
    -- While a key is rolled: the digest before, and until when it holds.
    retired_digest bytea       check (octet_length(retired_digest) = 32),
    retired_until  timestamptz check ((retired_until is null) = (retired_digest is null)),
    created_at     timestamptz not null default now(),
    -- Two facts, not one state: reactivating a key that was paused before leaves it paused.
    deactivated_at timestamptz,
    paused_at      timestamptz,
    -- Raised by every change that a verdict depends on.
    generation     bigint      not null default 1,
    -- Raised by every resume; a pause belongs to one window.
    burst_window   bigint      not null default 1,
    unique (account_id, seat)
);

create table pauses (
    key_id       text        collate "C" not null references keys on delete cascade,
    burst_window bigint      not null,
    paused_at    timestamptz not null,
    -- Requests in each of the 60 seconds before, oldest first.
    counts       smallint[]  not null check (cardinality(counts) = 60),
    primary key (key_id, burst_window)
);

create table usage (
    key_id   text   collate "C" not null references keys on delete cascade,
    day      date   not null,
    admitted bigint not null check (admitted >= 0),
    primary key (key_id, day)
);

create table refusals (
    key_id text   collate "C" not null references keys on delete cascade,
    day    date   not null,
    reason text   not null,
    count  bigint not null check (count > 0),
    primary key (key_id, day, reason)
);

create table demo_usage (
    day      date   primary key,
    admitted bigint not null default 0,
    refused  bigint not null default 0
);

-- Keys whose standing changed and whose record in the counter store may be old.
create table outbox (
    id         bigint generated always as identity primary key,
    key_id     text   collate "C" not null,
    generation bigint not null,
    created_at timestamptz not null default now()
);
create index outbox_key on outbox (key_id);

-- In the database, not in the code: no change of a key can forget its outbox row.
create function announce_key() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        insert into outbox (key_id, generation) values (old.id, old.generation + 1);
    else
        insert into outbox (key_id, generation) values (new.id, new.generation);
    end if;
    perform pg_notify('ipseity_outbox', '');
    return null;
end $$;

create trigger key_changed after update of generation on keys
    for each row when (old.generation <> new.generation) execute function announce_key();
create trigger key_deleted after delete on keys
    for each row execute function announce_key();
