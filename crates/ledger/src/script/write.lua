-- Writes what the durable store says of a key into its record.
--
-- KEYS  1 record   2 log   3 fence   4 pending (see charge.lua)
-- ARGV  1 'fill', 'publish' or 'disown'   2 fence   3 stamp   4 generation   5 window   6 deactivated   7 paused   8 scope   9 daily limit
--       10 digest   11 retired digest or ''   12 until when it holds (s)   13 newest day that was rolled up   14 its count   15 the key's id
--
-- A fill answers a charge that did not know the key. It writes only while the fence that the charge saw still stands: a change that came
-- in between has replaced it, and what the fill has read may be from before that change.
-- A publish carries a change. It replaces the fence, and writes only over an older record of this same store: where there is none, the
-- next charge asks the durable store itself, which knows better than a message that may have been held up.
-- A disown follows a publish that found a record of another stamp. In a cluster such a record may one day come home to the store that it
-- bears the stamp of, and would be believed there, without the change: so it is left without a stamp.
-- Returns 0 when a fill was overtaken, 2 when a publish found a record of another stamp, else 1.

local old = redis.call('HMGET', KEYS[1], 's', 'g', 'w', 'p', 't', 'n')
local known = old[1] == ARGV[3]

if ARGV[1] == 'fill' then
  if redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end
  if known then return 1 end
else
  redis.call('SET', KEYS[3], ARGV[2])
  if not known then
    if old[1] and ARGV[1] == 'disown' then redis.call('HSET', KEYS[1], 's', '') end
    return old[1] and 2 or 1
  end
  if tonumber(old[2]) >= tonumber(ARGV[4]) then return 1 end
end

local paused, day, used = ARGV[7], tonumber(ARGV[13]), tonumber(ARGV[14])
local same_window = old[3] == ARGV[5]
if not same_window then redis.call('DEL', KEYS[2]) end
-- A pause that only this store knows of stands until its window is closed, also when the record was lost meanwhile.
if (same_window and old[4] == '1') or redis.call('HEXISTS', KEYS[4], ARGV[15] .. ':' .. ARGV[5]) == 1 then paused = '1' end
if old[5] then
  local today, count = tonumber(old[5]), tonumber(old[6])
  if today > day then day, used = today, count elseif today == day then used = math.max(used, count) end
end

-- Written over, never deleted first: a cluster that moves the slot elsewhere would not let it be made anew here.
redis.call('HSET', KEYS[1], 's', ARGV[3], 'g', ARGV[4], 'w', ARGV[5], 'i', ARGV[6], 'p', paused, 'c', ARGV[8], 'l', ARGV[9],
  'd', ARGV[10], 't', string.format('%d', day), 'n', string.format('%d', used))
if ARGV[11] ~= '' then redis.call('HSET', KEYS[1], 'o', ARGV[11], 'u', ARGV[12]) else redis.call('HDEL', KEYS[1], 'o', 'u') end
if not known then
  -- What was charged before may be in the count and not in the log: settle.lua must know.
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'f', string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)))
end
redis.call('PEXPIRE', KEYS[1], 259200000)
return 1
