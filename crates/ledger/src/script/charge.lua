-- Verdicts: each authenticates a key and charges its request, in one atomic step. Charges that are made at the same time share a call.
--
-- KEYS  for each charge its key's
--       record   (record.lua)
--       log      list: the last 300 requests, newest first; an entry is 13 digits of milliseconds and the charge's 6-digit
--                name, or the number after that if it was refused for the day's limit
--       and, in a cluster, where all charges are of one bucket, what else of it may be touched, by which a slot that moves is known:
--       pending  hash of the bucket: pauses that may lack their row in the durable store, "<id>:<window>" -> "<ms>:<counts>"
--       fence    string of the bucket: replaced by every change, so that a fill that was overtaken by one is known
-- ARGV  1 stamp of this store   2 a fence, in case none stands   then for each charge the digest of the key and the charge's name, as one
--
-- A time t counts in [t, t + 60 s). No address is ever an argument.
-- A verdict is one string: a digit that says which, the time, and what belongs to it. Verdicts 5 and 6 are written in columns 50 to 124 of the record.

-- What is the same for all charges of a call is made once; and a piece of a record is cut out only where it is needed as a text, since each is
-- looked up among all texts that there are.
local stamp, clock = ARGV[1], now_ms()
local clock_text, clock_day, clock_minute = format('%013d', clock), floor(clock / 86400000), floor(clock / 60000)
local call, ONE = redis.call, byte('1')

-- What stands beside a record in its bucket.
local function beside(record, name) return string.match(record, '^[^}]*}:') .. name end

local function pause(record, log, window, now)
  local counts = {}
  for second = 1, 60 do counts[second] = 0 end
  for _, entry in ipairs(redis.call('LRANGE', log, 0, -1)) do
    local second = 60 - floor((now - tonumber(sub(entry, 1, 13))) / 1000)
    counts[second] = counts[second] + 1
  end
  counts[60] = counts[60] + 1
  local evidence = table.concat(counts, ',')
  redis.call('SETRANGE', record, 48, '1')
  local id = string.match(record, '[^:]*$')
  redis.call('HSET', beside(record, 'pending'), format('%s:%d', id, tonumber(window)), format('%d:%s', now, evidence))
  -- The log stays until it expires or the key is resumed: a charge whose reply was lost is looked up there by its name.
  return format('4%013d%s%s', now, window, evidence)
end

local function judge(record, log, charge)
  local rec = call('GET', record)
  if not rec or find(rec, stamp, 1, true) ~= 1 then return unknown(rec, beside(record, 'fence'), ARGV[2]) end

  local digest = sub(charge, 1, 32)
  if sub(rec, 17, 48) ~= digest and not (sub(rec, 147, 178) == digest and clock < tonumber(sub(rec, 179, 188)) * 1000) then
    return '1' .. clock_text
  end
  if byte(rec, 99) == ONE then return '2' .. clock_text end
  if byte(rec, 49) == ONE then return '3' .. clock_text end

  local now, now_text, day, minute = clock, clock_text, clock_day, clock_minute
  local newest = tonumber(sub(rec, 50, 62))
  if now < newest then
    if newest - now <= 1000 then
      now, now_text = newest, sub(rec, 50, 62)
      day, minute = floor(now / 86400000), floor(now / 60000)
    else
      -- The clock was set back: the log speaks of times that have not come yet.
      redis.call('DEL', log)
      newest = 0
    end
  end

  local today, used = sub(rec, 63, 68), tonumber(sub(rec, 69, 80))
  local before
  local day_is_new = day > tonumber(today)
  if day_is_new then
    before = used > 0 and sub(rec, 63, 80) or sub(rec, 81, 98)
    today, used = format('%06d', day), 0
  end
  local verdict, name = '6', sub(charge, 33)
  if used < tonumber(sub(rec, 100, 111)) then
    used = used + 1
  else
    verdict, name = '5', format('%06d', name + 1)
  end

  if call('LPUSH', log, now_text .. name) > 300 then
    local oldest = redis.call('RPOP', log)
    if now - tonumber(sub(oldest, 1, 13)) < 60000 then
      redis.call('LPOP', log)
      redis.call('RPUSH', log, oldest)
      return pause(record, log, sub(rec, 112, 120), now)
    end
  end
  -- Renewed once a minute, and long enough that no entry goes before its 60 s are over: expiry only cleans up.
  if floor(newest / 60000) ~= minute then redis.call('PEXPIRE', log, 130000) end

  local counted = now_text .. today .. format('%012d', used)
  if day_is_new then
    counted = counted .. before
    call('SETRANGE', record, 49, counted)
    redis.call('PEXPIRE', record, 259200000)
    return verdict .. counted .. sub(rec, 99, 124)
  end
  call('SETRANGE', record, 49, counted)
  return verdict .. counted .. sub(rec, 81, 124)
end

local verdicts = {}
for charge = 1, #ARGV - 2 do
  verdicts[charge] = judge(KEYS[2 * charge - 1], KEYS[2 * charge], ARGV[charge + 2])
end
return verdicts
