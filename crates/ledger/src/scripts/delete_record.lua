-- Forgets a deleted key; a fill that is under way finds another fence.
--
-- KEYS  1 record   2 log   3 fence (see charge.lua)
-- ARGV  1 fence

redis.call('SET', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[1], KEYS[2])
