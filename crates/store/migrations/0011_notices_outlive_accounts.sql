-- A notice outlives its account: an intruder who deletes the account must not delete the emails about it. Without the reference,
-- a change of a key also no longer locks the row of its account, which could deadlock with a deletion.
alter table notices drop constraint notices_account_id_fkey;

-- For the limit on the age of sessions.
create index sessions_created on sessions (created_at);
