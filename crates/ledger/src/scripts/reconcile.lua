-- Settles a batch of requests that a node admitted on its own while this store did not answer, or whose verdict was lost on its way.
--
-- KEYS  1 record   2 log   3 pending   4 fence (see record.lua and charge.lua)   5 guard: stands once this batch was settled, and holds what could not be told
-- ARGV  1 stamp   2 a fence, in case none stands   3 the key's id   4 the window that the batch belongs to
--       5 a pause on the node's own evidence, "<ms>:<counts>", or ''
--       6 days, "<day>:<count>,…", oldest first: requests that were surely not charged
--       7 entries of the last minute among them, for the log   8 entries that may have been charged here, by their name
--
-- An entry is written as in the log: 13 digits of milliseconds and the 6 digits of its name. A batch that is sent twice, because its
-- reply was lost, is settled once. The count may pass the limit: it says what was admitted.
-- Returns like charge.lua: 0 when the record is unknown, else 6, and after that how many entries could not be told.

local rec = redis.call('GET', KEYS[1])
if not rec or sub(rec, 1, 16) ~= ARGV[1] then return unknown(rec, KEYS[4], ARGV[2]) end

local now, filled = now_ms(), tonumber(sub(rec, 134, 146))
local today, used = tonumber(sub(rec, 63, 68)), tonumber(sub(rec, 69, 80))
local yesterday, count_before = tonumber(sub(rec, 81, 86)), tonumber(sub(rec, 87, 98))
local untold = 0

local function reply() return format('6%013d', now) .. sub(rec, 63, 124) .. untold end

local settled = redis.call('GET', KEYS[5])
if settled then
  untold = tonumber(settled)
  return reply()
end

local function charge(day, count)
  if day > today then
    if used > 0 then yesterday, count_before = today, used end
    today, used = day, count
  elseif day == today then
    used = used + count
  elseif day > yesterday then
    yesterday, count_before = day, count
  elseif day == yesterday then
    count_before = count_before + count
  end
end

local same_window = tonumber(sub(rec, 112, 120)) == tonumber(ARGV[4])
local log, fresh = redis.call('LRANGE', KEYS[2], 0, -1), {}

for day, count in string.gmatch(ARGV[6], '(%d+):(%d+)') do charge(tonumber(day), tonumber(count)) end
for entry in string.gmatch(ARGV[7], '%d+') do fresh[#fresh + 1] = entry end

for entry in string.gmatch(ARGV[8], '%d+') do
  local at, name = tonumber(sub(entry, 1, 13)), sub(entry, 14)
  local refused_name = format('%06d', tonumber(name) + 1)
  local found, refused = false, false
  for _, logged in ipairs(log) do
    -- The node's idea of this store's clock may be a second off; a frozen store charges later than it was asked.
    if tonumber(sub(logged, 1, 13)) >= at - 1000 then
      found = found or sub(logged, 14) == name
      refused = refused or sub(logged, 14) == refused_name
    end
  end
  -- A record that was filled since may hold the charge in its count, from the roll-up, and have lost the log.
  local gone = now - at > 60000 or at <= filled or (#log >= 300 and tonumber(sub(log[1], 1, 13)) > at)
  if refused then
    -- The day's limit refused it, too late to be heard, and the node admitted it: it is in the log, and not yet in the count.
    charge(floor(at / 86400000), 1)
  elseif not found and gone then
    -- The log no longer reaches back to it: rather a request too few than one twice.
    untold = untold + 1
  elseif not found then
    charge(floor(at / 86400000), 1)
    fresh[#fresh + 1] = entry
  end
end

-- An hour outlasts every repetition; expiry only cleans up.
redis.call('SET', KEYS[5], untold, 'PX', 3600000)

local newest, paused = tonumber(sub(rec, 50, 62)), sub(rec, 49, 49)
if same_window and #fresh > 0 then
  for _, entry in ipairs(fresh) do
    local at = tonumber(sub(entry, 1, 13))
    if now - at < 60000 then
      -- No entry may lie in the future: it would look as if the clock had been set back.
      log[#log + 1] = at > now and format('%013d', now) .. sub(entry, 14) or entry
    end
  end
  table.sort(log)
  redis.call('DEL', KEYS[2])
  for place = math.max(#log - 299, 1), #log do redis.call('RPUSH', KEYS[2], log[place]) end
  redis.call('PEXPIRE', KEYS[2], 130000)
  newest = #log > 0 and tonumber(sub(log[#log], 1, 13)) or 0
end

if ARGV[5] ~= '' and same_window and paused ~= '1' then
  paused = '1'
  redis.call('HSET', KEYS[3], ARGV[3] .. ':' .. ARGV[4], ARGV[5])
end
rec = sub(rec, 1, 48) .. paused .. format('%013d%06d%012d%06d%012d', newest, today, used, yesterday, count_before) .. sub(rec, 99)
redis.call('SET', KEYS[1], rec, 'PX', 259200000)
return reply()
