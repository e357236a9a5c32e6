-- Restrictions of keys: who may use a key, and for how long.
alter table keys
    -- Origins of web pages, normalized. Empty for any.
    add column allowed_origins     text[]      not null default '{}' check (cardinality(allowed_origins) <= 20),
    add column allowed_networks    cidr[]      not null default '{}' check (cardinality(allowed_networks) <= 50),
    add column expires_at          timestamptz,
    -- Requests per minute of one caller, at each node.
    add column caller_limit        integer     check (caller_limit between 1 and 300),
    -- Only lowers the limit of the plan.
    add column own_daily_limit     bigint      check (own_daily_limit > 0),
    -- Whether the key itself is rejected, and only its tickets are accepted.
    add column tickets_only        boolean     not null default false,
    -- Tickets that were created under an earlier restriction_version are invalid.
    add column tickets_since       bigint      not null default 0,
    -- Raised by every change of the restrictions; 0 if there was none. Not a count but the time in milliseconds, so that a version is not
    -- used again after commits were lost.
    add column restriction_version bigint      not null default 0;

alter table history drop constraint history_act_check;
alter table history add constraint history_act_check check (act in
    ('issued', 'renamed', 'deactivated', 'reactivated', 'paused', 'resumed', 'rolled', 'retired', 'restricted',
     'invalidated'));

-- Nodes of older versions ignore restrictions, so an operator confirms that none is left. A database without keys has none.
alter table deployment add column restrictions_enabled boolean not null default false;
update deployment set restrictions_enabled = not exists (select from keys);
