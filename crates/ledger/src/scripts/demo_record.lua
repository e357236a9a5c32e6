-- Functions of the scripts that read or write the record of the demo quota. This file is loaded before them, after record.lua.
--
-- The record is a hash with s incarnation, t today and n its count, y yesterday and m its count.

-- Discards days like read_days.
local function read_demo_record(key, clock_day)
  local record = call('HMGET', key, 's', 't', 'n', 'y', 'm')
  local today, count, yesterday, yesterday_count = tonumber(record[2] or 0), tonumber(record[3] or 0), tonumber(record[4] or 0), tonumber(record[5] or 0)
  if yesterday > clock_day + 1 then yesterday, yesterday_count = 0, 0 end
  if today > clock_day + 1 then today, count, yesterday, yesterday_count = yesterday, yesterday_count, 0, 0 end
  return record[1] or '', today, count, yesterday, yesterday_count
end

-- The newer of two days. On the same day, the greater count.
local function merge_demo_usage(today, count, stored_day, stored_count, clock_day)
  if stored_day < today or stored_day > clock_day + 1 then return today, count end
  return stored_day, stored_day == today and max(count, stored_count) or stored_count
end

local function write_demo_record(key, incarnation, today, count, yesterday, yesterday_count)
  local function text(number) return format('%d', number) end
  call('HSET', key, 's', incarnation, 't', text(today), 'n', text(count), 'y', text(yesterday), 'm', text(yesterday_count))
end
