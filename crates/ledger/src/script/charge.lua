-- One verdict: authenticates a key and charges its request, in one atomic step.
--
-- KEYS  1 record   hash: all that a verdict needs to know of the key (written by write.lua)
--       2 log      list: the last 300 requests, newest first; an entry is 13 digits of milliseconds and the charge's 6-digit
--                  name, or the number after that if it was refused for the day's limit
--       3 pending  hash of the bucket: pauses that may lack their row in the durable store, "<id>:<window>" -> "<ms>:<counts>"
--       4 fence    string of the bucket: replaced by every change, so that a fill that was overtaken by one is known
-- ARGV  1 digest of the key   2 stamp of this store   3 the charge's name   4 a fence, in case none stands   5 the key's id
--
-- Record fields: s stamp, d digest, o and u retired digest and until when (s), c scope, l daily limit, i deactivated, p paused,
-- g generation, w window, f when it was filled (ms), t today's number and n its count, y yesterday's number and m its count until it is rolled up.
--
-- The clock is the store's own. A time t counts in [t, t + 60 s). No address is ever an argument.

local rec = redis.call('HMGET', KEYS[1], 's', 'd', 'o', 'u', 'c', 'l', 'i', 'p', 'w', 't', 'n', 'y', 'm')

if rec[1] ~= ARGV[2] then
  -- Absent, or stamped by a store that this one is not: what it says may be old.
  local fence = redis.call('GET', KEYS[4])
  if not fence then
    fence = ARGV[4]
    redis.call('SET', KEYS[4], fence)
  end
  return { 0, fence, rec[1] and 1 or 0 }
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

if rec[2] ~= ARGV[1] and not (rec[3] == ARGV[1] and now < tonumber(rec[4]) * 1000) then return { 1, now } end
if rec[7] == '1' then return { 2, now } end
if rec[8] == '1' then return { 3, now } end

local newest = redis.call('LINDEX', KEYS[2], 0)
local last = newest and tonumber(string.sub(newest, 1, 13))
if last and now < last then
  if last - now <= 1000 then
    now = last
  else
    -- The clock was set back: the log speaks of times that have not come yet.
    redis.call('DEL', KEYS[2])
    last = nil
  end
end

local oldest = redis.call('LINDEX', KEYS[2], 299)
if oldest and now - tonumber(string.sub(oldest, 1, 13)) < 60000 then
  local counts = {}
  for second = 1, 60 do counts[second] = 0 end
  for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local second = 60 - math.floor((now - tonumber(string.sub(entry, 1, 13))) / 1000)
    counts[second] = counts[second] + 1
  end
  counts[60] = counts[60] + 1
  local evidence = table.concat(counts, ',')
  redis.call('HSET', KEYS[1], 'p', '1')
  redis.call('HSET', KEYS[3], ARGV[5] .. ':' .. rec[9], string.format('%.0f:%s', now, evidence))
  -- The log stays until it expires or the key is resumed: a charge whose reply was lost is looked up there by its name.
  return { 4, now, tonumber(rec[9]), evidence }
end

local limit, today, used = tonumber(rec[6]), tonumber(rec[10]), tonumber(rec[11])
local day = math.floor(now / 86400000)
if day > today then
  if used > 0 then
    rec[12], rec[13] = string.format('%d', today), string.format('%d', used)
    redis.call('HSET', KEYS[1], 'y', rec[12], 'm', rec[13])
  end
  redis.call('HSET', KEYS[1], 't', string.format('%d', day))
  redis.call('PEXPIRE', KEYS[1], 259200000)
  today, used = day, 0
end

local name = used < limit and ARGV[3] or string.format('%06d', tonumber(ARGV[3]) + 1)
if redis.call('LPUSH', KEYS[2], string.format('%.0f', now) .. name) > 300 then redis.call('RPOP', KEYS[2]) end
-- Renewed once a minute, and long enough that no entry goes before its 60 s are over: expiry only cleans up.
if not last or math.floor(last / 60000) ~= math.floor(now / 60000) then redis.call('PEXPIRE', KEYS[2], 130000) end

if used >= limit then return { 5, now, limit, today } end
redis.call('HSET', KEYS[1], 'n', string.format('%d', used + 1))
return { 6, now, limit, today, used + 1, rec[5], rec[12] and tonumber(rec[12]) or -1, rec[13] and tonumber(rec[13]) or 0, tonumber(rec[9]) }
