-- Every pause has its alert, not only the first of a day. 0 for the other kinds, and for nodes of the previous version.
alter table alerts
    add column burst_window bigint not null default 0,
    drop constraint alerts_pkey,
    add primary key (key_id, day, kind, burst_window);
