-- The slots of remote nodes that may admit requests before home has charged them. A site has at most one. A slot is renewed while its
-- node has a connection to home, and free again some time after that has ended.
create table remote_slots (
    slot       smallint    primary key check (slot between 0 and 29),
    site       text        collate "C" not null unique references sites (name) on delete cascade,
    -- Identifies the process.
    node       text        not null check (length(node) <= 32),
    expires_at timestamptz not null
);
