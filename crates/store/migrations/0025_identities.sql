-- Accounts of other providers with which members sign in. Only a signed-in owner adds one.

create table identities (
    id         bigint      generated always as identity primary key,
    account_id bigint      not null references accounts on delete cascade,
    issuer     text        not null check (length(issuer) <= 200),
    subject    text        not null check (length(subject) <= 255),
    -- What the provider called the account when it was linked, such as its email address. It identifies nothing.
    label      text        not null check (length(label) <= 254),
    created_at timestamptz not null default now(),
    used_at    timestamptz,
    constraint identities_subject_key unique (issuer, subject)
);
create index identities_account on identities (account_id);
