-- Reconciles demo requests that a node admitted in degraded mode.
--
-- KEYS  1 record (charge_demo.lua)   2 marker: exists once the batch is reconciled
-- ARGV  1 incarnation   2 "<day>:<count>,…", oldest day first   3 '' or the newest day in PostgreSQL   4 its count
-- Returns 0 if there is no record and ARGV 3 is empty, otherwise 1.

local record = redis.call('HMGET', KEYS[1], 's', 't', 'n', 'y', 'm')
local today, count = tonumber(record[2] or 0), tonumber(record[3] or 0)
if record[1] ~= ARGV[1] then
  if ARGV[3] == '' then return 0 end
  local stored_day, stored_count = tonumber(ARGV[3]), tonumber(ARGV[4])
  if stored_day > today then today, count = stored_day, stored_count elseif stored_day == today then count = math.max(count, stored_count) end
  redis.call('HSET', KEYS[1], 's', ARGV[1])
end
if not redis.call('SET', KEYS[2], 1, 'NX', 'PX', {{RECONCILED_TTL_MS}}) then return 1 end

for day, requests in string.gmatch(ARGV[2], '(%d+):(%d+)') do
  day, requests = tonumber(day), tonumber(requests)
  if day > today then
    if count > 0 then redis.call('HSET', KEYS[1], 'y', string.format('%d', today), 'm', string.format('%d', count)) end
    today, count = day, requests
  elseif day == today then
    count = count + requests
  elseif record[4] and day == tonumber(record[4]) then
    redis.call('HINCRBY', KEYS[1], 'm', requests)
  end
end
redis.call('HSET', KEYS[1], 't', string.format('%d', today), 'n', string.format('%d', count))
return 1
