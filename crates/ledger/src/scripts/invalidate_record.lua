-- Makes the next charge of a key read PostgreSQL. The new fence makes a concurrent fill fail.
--
-- KEYS  1 record   2 fence (charge.lua)
-- ARGV  1 new fence

call('SET', KEYS[2], ARGV[1])
invalidate(KEYS[1])
