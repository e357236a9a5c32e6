-- Writes what the durable store says of a key into its record.
--
-- KEYS  1 record   2 log   3 fence   4 pending (see record.lua and charge.lua)
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

local old = redis.call('GET', KEYS[1])
local known = old and sub(old, 1, 16) == ARGV[3]

if ARGV[1] == 'fill' then
  if redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end
  if known then return 1 end
else
  redis.call('SET', KEYS[3], ARGV[2])
  if not known then
    if old and ARGV[1] == 'disown' then redis.call('SETRANGE', KEYS[1], 0, string.rep(' ', 16)) end
    return old and 2 or 1
  end
  if tonumber(sub(old, 125, 133)) >= tonumber(ARGV[4]) then return 1 end
end

local paused, newest, before = ARGV[7], 0, string.rep('0', 18)
local day, used = tonumber(ARGV[13]), tonumber(ARGV[14])
local same_window = old and tonumber(sub(old, 112, 120)) == tonumber(ARGV[5])
if old then
  before = sub(old, 81, 98)
  local today, count = tonumber(sub(old, 63, 68)), tonumber(sub(old, 69, 80))
  if today > day then day, used = today, count elseif today == day then used = math.max(used, count) end
end
if same_window then newest = tonumber(sub(old, 50, 62)) else redis.call('DEL', KEYS[2]) end
-- A pause that only this store knows of stands until its window is closed, also when the record was lost meanwhile.
if (same_window and sub(old, 49, 49) == '1') or redis.call('HEXISTS', KEYS[4], ARGV[15] .. ':' .. ARGV[5]) == 1 then paused = '1' end
-- What was charged before it was filled may be in the count and not in the log: settle.lua must know.
local filled = known and sub(old, 134, 146) or format('%013d', now_ms())

local rec = ARGV[3] .. ARGV[10] .. paused .. format('%013d%06d%012d', newest, day, used) .. before
  .. ARGV[6] .. format('%012d%09d%-4s%09d', ARGV[9], ARGV[5], ARGV[8], ARGV[4]) .. filled
if ARGV[11] ~= '' then rec = rec .. ARGV[11] .. format('%010d', ARGV[12]) end
-- Written over, never deleted first: a cluster that moves the slot elsewhere would not let it be made anew here.
redis.call('SET', KEYS[1], rec, 'PX', 259200000)
return 1
