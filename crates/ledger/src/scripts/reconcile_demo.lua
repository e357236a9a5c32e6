-- Settles demo requests that a node admitted on its own while this store did not answer.
--
-- KEYS  1 record (see demo.lua)   2 guard: stands once this batch was settled
-- ARGV  1 stamp of this store   2 days, "<day>:<count>,…", oldest first   3 '' or the newest day that was rolled up   4 its count
-- Returns 0 when the record is unknown and nothing was rolled up to fill it with, else 1.

local rec = redis.call('HMGET', KEYS[1], 's', 't', 'n', 'y', 'm')
local today, used = tonumber(rec[2] or 0), tonumber(rec[3] or 0)
if rec[1] ~= ARGV[1] then
  if ARGV[3] == '' then return 0 end
  local day, count = tonumber(ARGV[3]), tonumber(ARGV[4])
  if day > today then today, used = day, count elseif day == today then used = math.max(used, count) end
  redis.call('HSET', KEYS[1], 's', ARGV[1])
end
-- An hour outlasts every repetition; expiry only cleans up.
if not redis.call('SET', KEYS[2], 1, 'NX', 'PX', 3600000) then return 1 end

for day, count in string.gmatch(ARGV[2], '(%d+):(%d+)') do
  day, count = tonumber(day), tonumber(count)
  if day > today then
    if used > 0 then redis.call('HSET', KEYS[1], 'y', string.format('%d', today), 'm', string.format('%d', used)) end
    today, used = day, count
  elseif day == today then
    used = used + count
  elseif rec[4] and day == tonumber(rec[4]) then
    redis.call('HINCRBY', KEYS[1], 'm', count)
  end
end
redis.call('HSET', KEYS[1], 't', string.format('%d', today), 'n', string.format('%d', used))
return 1
