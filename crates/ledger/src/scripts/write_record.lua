-- Writes a key record from PostgreSQL.
--
-- KEYS  1 record   2 log   3 fence   4 pending (charge.lua)
-- ARGV  1 'fill', 'publish' or 'invalidate'   2 fence   3 incarnation   4 generation   5 burst epoch   6 deactivated   7 paused   8 scope
--       9 daily limit   10 digest   11 previous digest or ''   12 when it expires (s)   13 newest day in PostgreSQL   14 its count   15 key id
--
-- fill        A charge found no record. Writes only if the fence is still the one that the charge returned. If a change replaced it,
--             the data of the fill may be older than the change.
-- publish     A key was changed. Replaces the fence, and the record if it is older and of this incarnation. Without a record it
--             writes nothing, because a publish may be delayed: the next charge reads PostgreSQL instead.
-- invalidate  A publish found a record of another incarnation. In a cluster, the slot may return to the server of that incarnation,
--             which would trust the record without the change. The incarnation is therefore erased.
-- Returns 0 if a change overtook the fill, 2 if a publish found a record of another incarnation, otherwise 1.

local old = redis.call('GET', KEYS[1])
local is_current = old and sub(old, {{incarnation}}) == ARGV[3]

if ARGV[1] == 'fill' then
  if redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end
  if is_current then return 1 end
else
  redis.call('SET', KEYS[3], ARGV[2])
  if not is_current then
    if old and ARGV[1] == 'invalidate' then redis.call('SETRANGE', KEYS[1], {{incarnation.offset}}, string.rep(' ', {{incarnation.width}})) end
    return old and 2 or 1
  end
  if tonumber(sub(old, {{generation}})) >= tonumber(ARGV[4]) then return 1 end
end

local paused, newest, yesterday = ARGV[7], 0, string.rep('0', {{yesterday.width}} + {{yesterday_count.width}})
local today, count = tonumber(ARGV[13]), tonumber(ARGV[14])
local same_epoch = old and tonumber(sub(old, {{burst_epoch}})) == tonumber(ARGV[5])
if old then
  yesterday = sub(old, {{yesterday.first}}, {{yesterday_count.last}})
  local old_today, old_count = tonumber(sub(old, {{today}})), tonumber(sub(old, {{today_count}}))
  if old_today > today then today, count = old_today, old_count elseif old_today == today then count = math.max(count, old_count) end
end
if same_epoch then newest = tonumber(sub(old, {{newest_ms}})) else redis.call('DEL', KEYS[2]) end
-- A pause that PostgreSQL does not have yet lasts as long as its burst epoch, even if the record was lost in between.
if (same_epoch and sub(old, {{paused}}) == '1') or redis.call('HEXISTS', KEYS[4], ARGV[15] .. ':' .. ARGV[5]) == 1 then paused = '1' end
-- reconcile.lua needs this time: earlier charges may be in the count, but not in the log.
local filled = is_current and sub(old, {{filled_ms}}) or format('{{filled_ms.digits}}', now_ms())

local record = ARGV[3] .. ARGV[10] .. paused .. format('{{newest_ms.digits}}{{today.digits}}{{today_count.digits}}', newest, today, count) .. yesterday
  .. ARGV[6] .. format('{{daily_limit.digits}}{{burst_epoch.digits}}%-{{scope.width}}s{{generation.digits}}', ARGV[9], ARGV[5], ARGV[8], ARGV[4]) .. filled
if ARGV[11] ~= '' then record = record .. ARGV[11] .. format('{{previous_expires_s.digits}}', ARGV[12]) end
-- Overwritten, not deleted first: a cluster that is migrating the slot would not let the key be created here again.
redis.call('SET', KEYS[1], record, 'PX', {{RECORD_TTL_MS}})
return 1
