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

-- The identity of this deployment. Nodes write its id to Redis and compare it.
create table deployment (
    singleton   boolean     primary key default true check (singleton),
    id          uuid        not null default gen_random_uuid(),
    -- The Redis data set that nodes use. Null before the first.
    data_set_id text        check (length(data_set_id) between 1 and 64),
    -- Raised by every change of the data set, so that key records are not trusted if nodes return to an earlier one.
    epoch       bigint      not null default 0,
    -- When a holder last stopped. It may start again, so nodes that asked before for another data set wait.
    released_at timestamptz not null default '-infinity'
);
insert into deployment default values;

-- Which Redis data set each node uses, or asks for.
create table ledger_claims (
    node_id     uuid        primary key,
    data_set_id text        not null check (length(data_set_id) between 1 and 64),
    -- Whether the node has used a data set of this deployment. Only such nodes delay a change to another one.
    is_holder   boolean     not null,
    since       timestamptz not null,
    seen_at     timestamptz not null
);

-- Claims a Redis data set for a node. Returns false if the nodes of this deployment use another one. A change to another one
-- succeeds when all holders ask for it. If the node has asked for age_max, it succeeds when most of the holders that were
-- seen within age_max ask for it: after an outage of PostgreSQL, a node must not be faster than the holders.
create function claim_data_set(node uuid, data_set text, age_max interval) returns boolean language plpgsql as $$
declare
    moment   timestamptz;
    asked_at timestamptz;
    deployed deployment;
    previous ledger_claims;
begin
    -- One claim at a time: of two nodes with different data sets, only the first succeeds.
    perform pg_advisory_xact_lock(hashtextextended('ipseity: ledger claims', 0));
    moment := clock_timestamp();
    select * into deployed from deployment;
    select * into previous from ledger_claims where node_id = node;
    asked_at := case
        when previous.data_set_id = data_set and previous.seen_at between moment - age_max and moment then previous.since
        else moment
    end;
    insert into ledger_claims values (node, data_set, false, asked_at, moment)
        on conflict (node_id) do update set data_set_id = data_set, since = asked_at, seen_at = moment;
    if deployed.data_set_id is distinct from data_set then
        if previous.data_set_id is distinct from data_set then
            -- The other nodes may have to change too.
            perform pg_notify('ipseity_deployment', '');
        end if;
        if asked_at < deployed.released_at and deployed.released_at between moment - age_max and moment
            or exists (select from ledger_claims where is_holder and data_set_id <> data_set)
                and (asked_at > moment - age_max
                     or (select count(*) filter (where data_set_id <> data_set) >= greatest(1, count(*) filter (where data_set_id = data_set))
                         from ledger_claims where is_holder and seen_at between moment - age_max and moment))
        then
            return false;
        end if;
        update deployment set data_set_id = data_set, epoch = epoch + 1;
        perform pg_notify('ipseity_deployment', '');
    end if;
    update ledger_claims set is_holder = true where node_id = node;
    delete from ledger_claims where seen_at not between moment - age_max and moment;
    return true;
end $$;

-- Deletes the claim of a node that stops.
create function release_data_set(node uuid) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('ipseity: ledger claims', 0));
    update deployment set released_at = clock_timestamp()
        where data_set_id = (select claim.data_set_id from ledger_claims claim where claim.node_id = node and claim.is_holder);
    delete from ledger_claims where node_id = node;
end $$;
