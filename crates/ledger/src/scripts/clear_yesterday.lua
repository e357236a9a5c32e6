-- Clears the count of the previous day. PostgreSQL has it.
--
-- KEYS  1 record (record.lua)

if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('SETRANGE', KEYS[1], {{yesterday.offset}}, string.rep('0', {{yesterday.width}} + {{yesterday_count.width}}))
end
return 1
