-- What the admin console reads and writes: indexes for search and counts, nodes, requests for higher limits, and refusals per day.

-- Refusals of all keys. Each day and reason has a few rows, so that the usage flushes of several nodes seldom wait for each other.
create table refusal_totals (
    day    date     not null,
    reason text     not null,
    shard  smallint not null,
    count  bigint   not null check (count > 0),
    primary key (day, reason, shard)
) with (fillfactor = 50);
insert into refusal_totals (day, reason, shard, count)
select day, reason, 0, sum(count) from refusals
where day between (now() at time zone 'UTC')::date - 30 and (now() at time zone 'UTC')::date + 1
group by day, reason;

-- In the order in which nodes lock them: a link is used up before its account changes.
lock table tickets, accounts, keys, notices, alerts, audit_events in share mode;

-- Search by the domain of an address, newest first, and by the start of a key's name.
create index accounts_domain on accounts (split_part(email, '@', 2) collate "C", id);
create index accounts_created on accounts (created_at);
create index keys_name on keys (lower(name) collate "C", id);
-- Lists and counts of states. Their size is also an estimate of the count.
create index keys_paused on keys (paused_at) where paused_at is not null and deactivated_at is null;
create index keys_deactivated on keys (deactivated_at) where deactivated_at is not null;
create index tickets_invites on tickets (expires_at) where kind = 'invite';
create index audit_events_operator on audit_events (operator, id) where operator is not null;
create index audit_events_action on audit_events (action, id);

-- The processes of the deployment, by their heartbeats. Home nodes write a row for each site whose remote nodes are connected to them:
-- of these, home knows neither the process nor its version.
create table nodes (
    id             uuid        primary key,
    role           text        not null check (role in ('home', 'remote')),
    -- The host name, or the site of remote nodes.
    name           text        not null check (length(name) between 1 and 255),
    -- Empty if it is not set.
    site           text        not null check (length(site) <= 32),
    version        text        check (length(version) <= 64),
    -- The newest migration that its program knows.
    schema_version bigint,
    started_at     timestamptz,
    last_seen_at   timestamptz not null default now(),
    is_draining    boolean     not null default false,
    is_degraded    boolean     not null default false
);

create table limit_requests (
    id          bigint      generated always as identity primary key,
    account_id  bigint      not null references accounts on delete cascade,
    daily_limit bigint      not null check (daily_limit between 1 and 99999999),
    message     text        not null check (length(message) <= 1000),
    created_at  timestamptz not null default now(),
    state       text        not null default 'open' check (state in ('open', 'granted', 'declined')),
    answer      text        check (length(answer) <= 1000),
    decided_at  timestamptz check ((decided_at is null) = (state = 'open'))
);
create unique index limit_requests_open on limit_requests (account_id) where state = 'open';
create index limit_requests_account on limit_requests (account_id, id);
create index limit_requests_state on limit_requests (state, id);

create function audit_limit_request() returns trigger language plpgsql security definer as $$
begin
    if tg_op = 'INSERT' then
        perform add_audit_event('owner', 'limit_requested', new.account_id, null, 'daily_limit ' || new.daily_limit);
    else
        perform add_audit_event('operator', 'limit_request_' || new.state, new.account_id, null, 'daily_limit ' || new.daily_limit);
    end if;
    return null;
end $$;
create trigger audit_limit_request after insert on limit_requests for each row execute function audit_limit_request();
create trigger audit_limit_decision after update of state on limit_requests for each row
    when (old.state <> new.state and new.state <> 'open') execute function audit_limit_request();

-- Emails that an operator sends to an owner, or again. The connections of owners and of the queue have no name of an operator.
create function audit_email() returns trigger language plpgsql security definer as $$
declare
    email_key text;
    email_account bigint;
begin
    if tg_table_name = 'alerts' then
        email_key := new.key_id;
        email_account := (select k.account_id from keys k where k.id = email_key);
    else
        email_account := coalesce(new.account_id, (select a.id from accounts a where a.email = new.email));
    end if;
    perform add_audit_event('operator', tg_argv[0], email_account, email_key, null);
    return null;
end $$;
create trigger audit_password_reset after insert on tickets for each row
    when (new.kind = 'reset' and coalesce(current_setting('ipseity.operator', true), '') <> '')
    execute function audit_email('password_reset_requested');
create trigger audit_email_retry after update of tries on tickets for each row
    when (coalesce(current_setting('ipseity.operator', true), '') <> '') execute function audit_email('email_retried');
create trigger audit_email_retry after update of tries on notices for each row
    when (coalesce(current_setting('ipseity.operator', true), '') <> '') execute function audit_email('email_retried');
create trigger audit_email_retry after update of tries on alerts for each row
    when (coalesce(current_setting('ipseity.operator', true), '') <> '') execute function audit_email('email_retried');

-- An invitation sets the password of its address. It ends when an account gets the address, so that it opens no account that
-- its owner made in the meantime.
create function end_invitations() returns trigger language plpgsql security definer as $$
begin
    delete from tickets where kind = 'invite' and email collate "C" = new.email collate "C";
    return null;
end $$;
create trigger end_invitations after insert or update of email on accounts
    for each row execute function end_invitations();

do $$
begin
    execute format('alter function end_invitations() set search_path = %I, pg_temp', current_schema());
    execute format('alter function audit_limit_request() set search_path = %I, pg_temp', current_schema());
    execute format('alter function audit_email() set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function audit_limit_request(), audit_email(), end_invitations() from public;
