-- Reconciles a batch of requests that a node admitted in degraded mode, or whose reply was lost.
--
-- KEYS  1 record   2 log   3 pending   4 fence (record.lua, charge.lua)   5 marker: exists once the batch is reconciled, and holds the
--       number of unverifiable charges
-- ARGV  1 incarnation   2 new fence, used if the bucket has none   3 key id   4 burst epoch of the batch
--       5 a pause that the node decided, "<ms>:<counts>", or ''
--       6 requests that were certainly not charged, "<day>:<count>,…", oldest day first
--       7 log entries of those within the last 60 s   8 log entries of requests that may have been charged
--
-- A batch that is sent again because its reply was lost is reconciled once. The count may exceed the limit, because it counts what was
-- admitted. Returns like charge.lua: 0 if there is no record, otherwise 6, followed by the number of unverifiable charges.

local record = redis.call('GET', KEYS[1])
if not record or sub(record, {{incarnation}}) ~= ARGV[1] then return unknown_reply(record, KEYS[4], ARGV[2]) end

local now, filled = now_ms(), tonumber(sub(record, {{filled_ms}}))
local today, count = tonumber(sub(record, {{today}})), tonumber(sub(record, {{today_count}}))
local yesterday, yesterday_count = tonumber(sub(record, {{yesterday}})), tonumber(sub(record, {{yesterday_count}}))
local unverifiable = 0

local function reply() return format('6{{newest_ms.digits}}', now) .. sub(record, {{today.first}}, {{scope.last}}) .. unverifiable end

local reconciled = redis.call('GET', KEYS[5])
if reconciled then
  unverifiable = tonumber(reconciled)
  return reply()
end

local function add_requests(day, requests)
  if day > today then
    if count > 0 then yesterday, yesterday_count = today, count end
    today, count = day, requests
  elseif day == today then
    count = count + requests
  elseif day > yesterday then
    yesterday, yesterday_count = day, requests
  elseif day == yesterday then
    yesterday_count = yesterday_count + requests
  end
end

local same_epoch = tonumber(sub(record, {{burst_epoch}})) == tonumber(ARGV[4])
local log, new_entries = redis.call('LRANGE', KEYS[2], 0, -1), {}

for day, requests in string.gmatch(ARGV[6], '(%d+):(%d+)') do add_requests(tonumber(day), tonumber(requests)) end
for entry in string.gmatch(ARGV[7], '%d+') do new_entries[#new_entries + 1] = entry end

for entry in string.gmatch(ARGV[8], '%d+') do
  local at, charged_id = tonumber(sub(entry, {{entry_ms}})), sub(entry, {{entry_id.first}})
  local rejected_id = format('{{entry_id.digits}}', tonumber(charged_id) + 1)
  local charged, rejected = false, false
  for _, logged in ipairs(log) do
    -- The node's estimate of the Redis clock may be too late. A frozen Redis charges later than the request was sent.
    if tonumber(sub(logged, {{entry_ms}})) >= at - {{NODE_CLOCK_ERROR_MS}} then
      charged = charged or sub(logged, {{entry_id.first}}) == charged_id
      rejected = rejected or sub(logged, {{entry_id.first}}) == rejected_id
    end
  end
  -- If the record was filled after the charge, the charge may be in the count from PostgreSQL, and the log is lost.
  local log_incomplete = now - at > {{BURST_WINDOW_MS}} or at <= filled or (#log >= {{BURST_LIMIT}} and tonumber(sub(log[1], {{entry_ms}})) > at)
  if rejected then
    -- The daily quota rejected the request, but the reply was lost and the node admitted it. It is in the log, but not in the count.
    add_requests(floor(at / {{DAY_MS}}), 1)
  elseif not charged and log_incomplete then
    -- The log does not reach back to it. We prefer undercounting to charging twice.
    unverifiable = unverifiable + 1
  elseif not charged then
    add_requests(floor(at / {{DAY_MS}}), 1)
    new_entries[#new_entries + 1] = entry
  end
end

redis.call('SET', KEYS[5], unverifiable, 'PX', {{RECONCILED_TTL_MS}})

local newest, paused = tonumber(sub(record, {{newest_ms}})), sub(record, {{paused}})
if same_epoch and #new_entries > 0 then
  for _, entry in ipairs(new_entries) do
    local at = tonumber(sub(entry, {{entry_ms}}))
    if now - at < {{BURST_WINDOW_MS}} then
      -- An entry in the future would look as if the clock had been set back.
      log[#log + 1] = at > now and format('{{entry_ms.digits}}', now) .. sub(entry, {{entry_id.first}}) or entry
    end
  end
  table.sort(log)
  redis.call('DEL', KEYS[2])
  for index = math.max(#log - {{BURST_LIMIT}} + 1, 1), #log do redis.call('RPUSH', KEYS[2], log[index]) end
  redis.call('PEXPIRE', KEYS[2], {{LOG_TTL_MS}})
  newest = #log > 0 and tonumber(sub(log[#log], {{entry_ms}})) or 0
end

if ARGV[5] ~= '' and same_epoch and paused ~= '1' then
  paused = '1'
  redis.call('HSET', KEYS[3], ARGV[3] .. ':' .. ARGV[4], ARGV[5])
end
record = sub(record, 1, {{digest.last}}) .. paused
  .. format('{{newest_ms.digits}}{{today.digits}}{{today_count.digits}}{{yesterday.digits}}{{yesterday_count.digits}}', newest, today, count, yesterday, yesterday_count)
  .. sub(record, {{deactivated.first}})
redis.call('SET', KEYS[1], record, 'PX', {{RECORD_TTL_MS}})
return reply()
