-- The kinds of notices are those of the program, so that a later version can add one. An older version leaves a kind that it does
-- not know in the queue.
alter table notices
    drop constraint notices_kind_check,
    add constraint notices_kind_check check (kind ~ '^[a-z_]{1,40}$');
