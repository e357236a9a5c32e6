-- Marks counts as flushed that PostgreSQL has. A count that has changed since stays marked for the next flush.
--
-- KEYS  for each count: unflushed (record.lua), and the record of the key
-- ARGV  for each count: the field of unflushed, and what was flushed: the columns today to yesterday_count of the record, '' if there
--       was none, or, if the field names a day, its value

for count = 1, #KEYS, 2 do
  local unflushed, record, field, flushed = KEYS[count], KEYS[count + 1], ARGV[count], ARGV[count + 1]
  if string.find(field, ':', 1, true) then
    if redis.call('HGET', unflushed, field) == flushed then redis.call('HDEL', unflushed, field) end
  else
    local columns = redis.pcall('GETRANGE', record, {{today.offset}}, {{yesterday_count.last}} - 1)
    -- A record of another type has no counts.
    if columns.err then columns = '' end
    if columns == flushed then
      if columns ~= '' then redis.call('SETRANGE', record, {{unflushed.offset}}, '0') end
      redis.call('HDEL', unflushed, field)
    end
  end
end
