-- Emails that warn the owner of an account about a change. Unlike tickets, they survive a new password and further changes.
create table notices (
    id         bigint      generated always as identity primary key,
    account_id bigint      not null references accounts on delete cascade,
    -- passkey: a passkey was added. email: the address was changed; its link restores the previous one.
    kind       text        not null check (kind in ('passkey', 'email')),
    -- The recipient. After a change of the address, this is the previous one.
    email      text        not null check (length(email) <= 254),
    digest     bytea       unique check (octet_length(digest) = 32),
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    mailed_at  timestamptz,
    tries      int         not null default 0,
    try_at     timestamptz not null default now()
);
create index notices_due on notices (try_at, id) where mailed_at is null;
create index notices_account on notices (account_id);

create trigger notice_queued after insert on notices
    for each row execute function announce_mail();

-- When the owner last confirmed this session with a passkey.
alter table sessions add column confirmed_at timestamptz;
