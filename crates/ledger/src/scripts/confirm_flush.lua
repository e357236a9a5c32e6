-- Marks counts as flushed that PostgreSQL has. A count that has changed since stays marked for the next flush.
--
-- KEYS  1 unflushed (record.lua)   2… records of keys of one bucket
-- ARGV  1 number of fields that are counts themselves   then for each of these the field and its count
--       then for each record its key id and the columns today to yesterday_count that were flushed, '' if there was no record

local fields = tonumber(ARGV[1])
for field = 1, fields do
  local name, count = ARGV[2 * field], ARGV[2 * field + 1]
  if redis.call('HGET', KEYS[1], name) == count then redis.call('HDEL', KEYS[1], name) end
end
for record = 2, #KEYS do
  local argument = 2 * fields + 2 * record - 2
  local id, flushed = ARGV[argument], ARGV[argument + 1]
  local columns = redis.pcall('GETRANGE', KEYS[record], {{today.offset}}, {{yesterday_count.last}} - 1)
  -- A record of another type has no counts.
  if columns.err then columns = '' end
  if columns == flushed then
    if columns ~= '' then redis.call('SETRANGE', KEYS[record], {{unflushed.offset}}, '0') end
    redis.call('HDEL', KEYS[1], id)
  end
end
