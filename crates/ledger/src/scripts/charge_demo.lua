-- Charges a demo request. All anonymous clients share one daily quota.
--
-- KEYS  1 record: hash with s incarnation, t today and n its count, y yesterday and m its count
-- ARGV  1 incarnation   2 daily limit   3 '' to charge, or the newest day in PostgreSQL, to fill the record first   4 its count

local record = redis.call('HMGET', KEYS[1], 's', 't', 'n', 'y', 'm')
local today, count = tonumber(record[2] or 0), tonumber(record[3] or 0)
if record[1] ~= ARGV[1] then
  if ARGV[3] == '' then return record[1] and '01' or '00' end
  local stored_day, stored_count = tonumber(ARGV[3]), tonumber(ARGV[4])
  if stored_day > today then today, count = stored_day, stored_count elseif stored_day == today then count = math.max(count, stored_count) end
  redis.call('HSET', KEYS[1], 's', ARGV[1])
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local day = math.floor(now / {{DAY_MS}})
if day > today then
  if count > 0 then
    record[4], record[5] = string.format('%d', today), string.format('%d', count)
    redis.call('HSET', KEYS[1], 'y', record[4], 'm', record[5])
  end
  today, count = day, 0
end
local limit = tonumber(ARGV[2])
local exhausted = count >= limit
if not exhausted then count = count + 1 end
redis.call('HSET', KEYS[1], 't', string.format('%d', today), 'n', string.format('%d', count))
-- The same columns as in the reply of charge.lua, up to the daily limit.
return (exhausted and '5' or '6')
  .. string.format('{{newest_ms.digits}}{{today.digits}}{{today_count.digits}}{{yesterday.digits}}{{yesterday_count.digits}}0{{daily_limit.digits}}', now, today, count, record[4] or 0, record[5] or 0, limit)
