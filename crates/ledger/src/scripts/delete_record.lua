-- Deletes the record of a deleted key. The new fence makes a concurrent fill fail.
--
-- KEYS  1 record   2 log   3 fence (charge.lua)
-- ARGV  1 new fence

publish_change(KEYS[1])
call('SET', KEYS[3], ARGV[1])
call('DEL', KEYS[1], KEYS[2])
