-- Notifications name the changed key, so that nodes check only that key again. Older nodes ignore the payload.
create or replace function announce_key() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        insert into outbox (key_id, generation) values (old.id, old.generation + 1);
        perform pg_notify('ipseity_outbox', old.id);
    else
        insert into outbox (key_id, generation) values (new.id, new.generation);
        perform pg_notify('ipseity_outbox', new.id);
    end if;
    return null;
end $$;

-- The identity of this deployment. Nodes write it to Redis and compare it.
create table deployment (
    singleton boolean primary key default true check (singleton),
    id        uuid    not null default gen_random_uuid()
);
insert into deployment default values;

-- Which Redis data set each node uses. Nodes refresh their claims; old ones have no effect.
create table ledger_claims (
    node_id   uuid        primary key,
    ledger_id text        not null check (length(ledger_id) between 1 and 64),
    seen_at   timestamptz not null default now()
);

-- Claims a Redis data set for a node. Returns false, and deletes the node's claim, if another node holds a claim on
-- another data set that is not older than age_max.
create function claim_ledger(node uuid, ledger text, age_max interval) returns boolean language plpgsql as $$
begin
    -- One claim at a time: of two nodes with different data sets, only the first succeeds.
    perform pg_advisory_xact_lock(hashtextextended('ipseity: ledger claims', 0));
    delete from ledger_claims where seen_at < clock_timestamp() - age_max or node_id = node;
    if exists (select from ledger_claims where ledger_id <> ledger) then
        return false;
    end if;
    insert into ledger_claims (node_id, ledger_id, seen_at) values (node, ledger, clock_timestamp());
    return true;
end $$;
