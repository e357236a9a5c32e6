-- Requests per hour. The counts of a day only rise, so a count as it was when an hour began is enough: the requests of an
-- hour are the difference to the next hour that began, or to the count of the day.

-- First, because nodes lock keys before usage.
create table usage_hours (
    key_id  text     collate "C" not null references keys on delete cascade,
    day     date     not null,
    -- `admitted`, or the reason of refusals.
    outcome text     not null,
    -- The count of the day at the start of each hour, with hours from 0 to 23 as subscripts. An hour without requests has none.
    starts  bigint[] not null,
    primary key (key_id, day, outcome)
) with (fillfactor = 50);
-- For the deletion of old days.
create index usage_hours_day on usage_hours (day);

-- The hour of the last increase, from 0 to 23, the count before the first increase in that hour, and whether the last increase was the
-- first one in its hour. Null in rows that a node of a previous version wrote. Without checks, which would read all rows.
alter table usage
    add column hour smallint,
    add column hour_start bigint,
    add column starts_hour boolean;
alter table refusals
    add column hour smallint,
    add column hour_start bigint,
    add column starts_hour boolean;
