-- Writes a key record from PostgreSQL.
--
-- KEYS  1 record   2 log   3 fence   4 pending   5 unflushed (charge.lua)
-- ARGV  1 'fill' or 'publish'   2 fence   3 incarnation   4 generation   5 burst epoch   6 deactivated   7 paused   8 scope
--       9 daily limit   10 digest   11 previous digest or ''   12 when it expires (s)   13 newest day in PostgreSQL   14 its count
--       15 the day with requests before that   16 its count   17 key id   18 the record in the previous layout (src/columns.rs) or ''
--       19 the version of the key's restrictions, 0 if it was never restricted   20 when the key expires (s)   21 burst limit, 0 if it
--       is that of the specification
--
-- fill     A charge found no record. Writes only if the fence is still the one that the charge returned. If a change replaced it,
--          the data of the fill may be older than the change.
-- publish  A key was changed. Replaces the fence, and the record if it is older and of this incarnation. Without a record it
--          writes nothing, because a publish may be delayed: the next charge reads PostgreSQL instead.
-- Returns a digit and the time: 0 if a change overtook the fill; 2 if a publish found a record of another incarnation; 3 if a publish
-- found a greater generation, or the same one with other data; otherwise 1.

local now = now_ms()
local function reply(code) return format('%d{{newest_ms.digits}}', code, now) end

-- A record that cannot be read is treated as missing.
local old = redis.pcall('GET', KEYS[1])
if old and (old.err or not is_readable(old)) then old = nil end
local is_current = old and find(old, ARGV[3], 1, true) == 1

local digits = format('{{burst_limit.digits}}{{daily_limit.digits}}{{burst_epoch.digits}}%-{{scope.width}}s{{generation.digits}}',
  ARGV[21], ARGV[9], ARGV[5], ARGV[8], ARGV[4])
local is_restricted = ARGV[19] ~= '0'
local last_columns = ''
if ARGV[11] ~= '' or is_restricted then
  -- Not format for the digest: it ends a text at the first zero byte.
  last_columns = (ARGV[11] ~= '' and ARGV[11] or string.rep(' ', {{previous_digest.width}})) .. format('{{previous_expires_s.digits}}', ARGV[12])
end
if is_restricted then last_columns = last_columns .. format('{{restriction_version.digits}}{{expires_s.digits}}', ARGV[19], ARGV[20]) end

if ARGV[1] == 'fill' then
  if call('GET', KEYS[3]) ~= ARGV[2] then return reply(0) end
  if is_current then return reply(1) end
else
  -- Also without a record: it expires, and remote nodes do not forget.
  publish_change(KEYS[1])
  call('SET', KEYS[3], ARGV[2])
  if not is_current then return reply(old and 2 or 1) end
  local old_generation, generation = tonumber(sub(old, {{generation}})), tonumber(ARGV[4])
  if old_generation > generation then return reply(3) end
  if old_generation == generation then
    local is_same = sub(old, {{digest}}) == ARGV[10] and sub(old, {{deactivated}}) == ARGV[6]
      and sub(old, {{burst_limit.first}}, {{generation.last}}) == digits and sub(old, {{previous_digest.first}}) == last_columns
    return reply(is_same and 1 or 3)
  end
end

-- The counts of both days: the greatest of those in PostgreSQL, in the record and among the unflushed.
local clock_day, counts = floor(now / {{DAY_MS}}), {}
local function merge(day, count)
  if day <= clock_day + 1 and count > 0 then counts[day] = max(counts[day] or 0, count) end
end
merge(tonumber(ARGV[13]), tonumber(ARGV[14]))
merge(tonumber(ARGV[15]), tonumber(ARGV[16]))

local paused, newest, log_start, flag = ARGV[7], 0, now, '0'
local pending_field = ARGV[17] .. ':' .. ARGV[5]
local same_epoch = old and tonumber(sub(old, {{burst_epoch}})) == tonumber(ARGV[5])
if old then
  local today, count, yesterday, yesterday_count = read_days(old, clock_day)
  merge(today, count)
  merge(yesterday, yesterday_count)
  flag = is_current and sub(old, {{unflushed}}) == '0' and '0' or '2'
else
  local v2 = ARGV[18]
  if #v2 >= {{v2_burst_epoch.last}} and find(sub(v2, {{v2_paused.first}}, {{v2_burst_epoch.last}}), '^%d+$') then
    merge(tonumber(sub(v2, {{v2_today}})), tonumber(sub(v2, {{v2_today_count}})))
    merge(tonumber(sub(v2, {{v2_yesterday}})), tonumber(sub(v2, {{v2_yesterday_count}})))
    flag = '2'
    if sub(v2, {{v2_paused}}) == '1' and tonumber(sub(v2, {{v2_burst_epoch}})) == tonumber(ARGV[5]) and paused ~= '1' then
      call('HSET', KEYS[4], pending_field, format('%d', now))
    end
  end
end
if old then
  newest = tonumber(sub(old, {{newest_ms}}))
  log_start = new_log_start(old, now)
end
if same_epoch and has_log(KEYS[2]) then
  -- A log of another limit may have lost its first entries.
  if is_current and tonumber(sub(old, {{burst_limit}})) == tonumber(ARGV[21]) then log_start = tonumber(sub(old, {{log_start_ms}})) end
else
  newest = 0
  call('DEL', KEYS[2])
end
-- A pause that PostgreSQL does not have yet lasts as long as its burst epoch. While a publish is on its way, PostgreSQL may have
-- recorded a pause that is newer than the data of the publish.
if (is_current and same_epoch and sub(old, {{paused}}) == '1') or call('HEXISTS', KEYS[4], pending_field) == 1 then paused = '1' end

local today, yesterday = 0, 0
for day, count in pairs(counts) do
  if not is_current then counts[day] = max(count, unflushed_count(KEYS[5], ARGV[17], day)) end
  if day > today then today, yesterday = day, today elseif day > yesterday then yesterday = day end
end
if flag == '2' then
  mark_unflushed(KEYS[5], ARGV[17])
  for day, count in pairs(counts) do
    if day < yesterday then move_to_unflushed(KEYS[5], ARGV[17], day, count) end
  end
end

local record = format('%-{{incarnation.width}}s', ARGV[3]) .. ARGV[10] .. paused
  .. format('{{newest_ms.digits}}{{today.digits}}{{today_count.digits}}{{yesterday.digits}}{{yesterday_count.digits}}',
    newest, today, counts[today] or 0, yesterday, counts[yesterday] or 0)
  .. flag .. ARGV[6] .. digits .. format('{{log_start_ms.digits}}', log_start) .. NO_SLOTS .. last_columns
-- A record that was lost may have had open slots.
if old then close_slots(old, KEYS[1]) else publish_change(KEYS[1]) end
-- Overwritten, not deleted first: a cluster that is migrating the slot would not let the key be created here again.
call('SET', KEYS[1], record, 'PX', {{RECORD_TTL_MS}})
return reply(1)
