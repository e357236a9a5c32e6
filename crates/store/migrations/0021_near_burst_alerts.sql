-- Newer kinds of alerts, such as near_burst_limit.
alter table alerts drop constraint alerts_kind_check;
alter table alerts add constraint alerts_kind_check check (kind ~ '^[a-z_]{1,40}$');
