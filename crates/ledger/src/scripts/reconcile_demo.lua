-- Reconciles demo requests that a node admitted in degraded mode.
--
-- KEYS  1 record (demo_record.lua)   2 marker: exists once the batch is reconciled
-- ARGV  1 incarnation   2 "<day>:<count>,…", oldest day first   3 '' or the newest day in PostgreSQL   4 its count
-- Returns 0 if there is no record and ARGV 3 is empty, otherwise 1.

local clock_day = floor(now_ms() / {{DAY_MS}})
local incarnation, today, count, yesterday, yesterday_count = read_demo_record(KEYS[1], clock_day)
if find(incarnation, ARGV[1], 1, true) ~= 1 then
  if ARGV[3] == '' then return 0 end
  today, count = merge_demo_usage(today, count, tonumber(ARGV[3]), tonumber(ARGV[4]), clock_day)
end
if not call('SET', KEYS[2], 1, 'NX', 'PX', {{RECORD_TTL_MS}}) then return 1 end

for day, requests in string.gmatch(ARGV[2], '(%d+):(%d+)') do
  day, requests = tonumber(day), tonumber(requests)
  if day > clock_day then day = max(clock_day, today) end
  if day > today then
    if count > 0 then yesterday, yesterday_count = today, count end
    today, count = day, requests
  elseif day == today then
    count = count + requests
  elseif day == yesterday then
    yesterday_count = yesterday_count + requests
  end
end
write_demo_record(KEYS[1], ARGV[1], today, count, yesterday, yesterday_count)
return 1
