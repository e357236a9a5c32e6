-- Forgets the count of the day before in a record: it has been rolled up.
--
-- KEYS  1 record (record.lua)

if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('SETRANGE', KEYS[1], 80, string.rep('0', 18)) end
return 1
