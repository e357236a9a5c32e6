-- A simple exact script: reads the record, gets the time, pushes to the log, sets its expiry and counts the day.
--
-- KEYS  1 record: hash of state, limit, day, used, scope   2 log: list of the last 300 request times, newest first

local record = redis.call('HMGET', KEYS[1], 'state', 'limit', 'day', 'used', 'scope')
if not record[1] then return { 0 } end
if record[1] ~= 'active' then return { 1, record[1] } end

local time = redis.call('TIME')
local second = tonumber(time[1])
local now = second * 1000 + math.floor(tonumber(time[2]) / 1000)

local count = redis.call('LPUSH', KEYS[2], now)
if count > 300 then
  local oldest = tonumber(redis.call('RPOP', KEYS[2]))
  if now - oldest < 60000 then
    redis.call('HSET', KEYS[1], 'state', 'paused')
    redis.call('DEL', KEYS[2])
    return { 2 }
  end
end
if count == 1 or count > 300 or now % 16 == 0 then redis.call('PEXPIRE', KEYS[2], 61000) end

local day = math.floor(second / 86400)
local limit = tonumber(record[2])
local used = 0
if tonumber(record[3]) == day then used = tonumber(record[4]) end
if used >= limit then return { 3, limit } end
redis.call('HSET', KEYS[1], 'day', day, 'used', used + 1)
return { 4, limit, used + 1, record[5], second }
