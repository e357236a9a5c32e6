-- One verdict for the demo, whose daily quota all anonymous callers share.
--
-- KEYS  1 record: hash with s stamp, t today's number and n its count, y yesterday's number and m its count
-- ARGV  1 stamp of this store   2 daily limit   3 '' to charge, or the newest day that was rolled up, to fill first   4 its count

local rec = redis.call('HMGET', KEYS[1], 's', 't', 'n', 'y', 'm')
local today, used = tonumber(rec[2] or 0), tonumber(rec[3] or 0)
if rec[1] ~= ARGV[1] then
  if ARGV[3] == '' then return rec[1] and '01' or '00' end
  local day, count = tonumber(ARGV[3]), tonumber(ARGV[4])
  if day > today then today, used = day, count elseif day == today then used = math.max(used, count) end
  redis.call('HSET', KEYS[1], 's', ARGV[1])
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local day = math.floor(now / 86400000)
if day > today then
  if used > 0 then
    rec[4], rec[5] = string.format('%d', today), string.format('%d', used)
    redis.call('HSET', KEYS[1], 'y', rec[4], 'm', rec[5])
  end
  today, used = day, 0
end
local limit = tonumber(ARGV[2])
local spent = used >= limit
if not spent then used = used + 1 end
redis.call('HSET', KEYS[1], 't', string.format('%d', today), 'n', string.format('%d', used))
-- Like charge.lua's, as far as the demo has the like.
return (spent and '5' or '6') .. string.format('%013d%06d%012d%06d%012d0%012d', now, today, used, rec[4] or 0, rec[5] or 0, limit)
