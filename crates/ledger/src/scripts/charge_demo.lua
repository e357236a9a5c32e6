-- Charges a demo request. All anonymous clients share one daily quota.
--
-- KEYS  1 record (demo_record.lua)
-- ARGV  1 incarnation   2 daily limit   3 '' to charge, or the newest day in PostgreSQL, to fill the record first   4 its count

local now = now_ms()
local day = floor(now / {{DAY_MS}})
local incarnation, today, count, yesterday, yesterday_count = read_demo_record(KEYS[1], day)
if find(incarnation, ARGV[1], 1, true) ~= 1 then
  if ARGV[3] == '' then return incarnation == '' and '00' or '01' end
  today, count = merge_demo_usage(today, count, tonumber(ARGV[3]), tonumber(ARGV[4]), day)
end

if day > today then
  if count > 0 then yesterday, yesterday_count = today, count end
  today, count = day, 0
end
local limit = tonumber(ARGV[2])
local exhausted = count >= limit
if not exhausted then count = count + 1 end
write_demo_record(KEYS[1], ARGV[1], today, count, yesterday, yesterday_count)
-- The same columns as in the reply of charge.lua, up to the daily limit.
return (exhausted and '5' or '6')
  .. format('{{newest_ms.digits}}{{today.digits}}{{today_count.digits}}{{yesterday.digits}}{{yesterday_count.digits}}00{{burst_limit.digits}}{{daily_limit.digits}}', now, today, count, yesterday, yesterday_count, 0, limit)
