-- Reconciles a batch of requests that a node admitted in degraded mode, or whose reply was lost.
--
-- KEYS  1 record   2 log   3 pending   4 fence   5 unflushed (record.lua, charge.lua)
--       6 reconciled batches: hash, node -> "<number of its last batch>:<unverifiable charges of that batch>"
-- ARGV  1 incarnation   2 new fence, used if the bucket has none   3 burst limit if the record has none   4 burst window in ms   5 key id
--       6 burst epoch of the batch   7 a pause that the node decided, "<ms>:<counts>", or ''
--       8 requests that were certainly not charged, "<day>:<count>,…", oldest day first. The count is negative if requests were
--         charged, but refused by the node
--       9 log entries of those within the burst window   10 requests that may have been charged: each time when the charge was sent, the
--         log entry, + if the node admitted it, - if not, and the first part of the incarnation that the charge was sent to
--       11 node   12 number of the batch, rising for each node
--       13 when the batch was first sent, if there was no reply, and the first part of the incarnation that it was sent to, or ''
--       14 when this attempt was sent (record.lua)
--
-- A batch that is sent again because its reply was lost is reconciled once. The count may exceed the limit, because it counts what was
-- admitted. Returns like charge.lua: 0 if there is no record, 7 if this attempt was delivered late, 8 if a charge of the batch may
-- still be applied, otherwise 6, followed by the number of unverifiable charges.

local now, burst_window = now_ms(), tonumber(ARGV[4])
if is_expired(now, ARGV[14], ARGV[14]) then return format('7{{newest_ms.digits}}', now) end

local record = redis.pcall('GET', KEYS[1])
if not record then return unknown_reply(false, KEYS[4], ARGV[2]) end
if record.err or not is_readable(record) or not has_log(KEYS[2]) then
  invalidate(KEYS[1])
  return unknown_reply(true, KEYS[4], ARGV[2])
end
if find(record, ARGV[1], 1, true) ~= 1 then return unknown_reply(true, KEYS[4], ARGV[2]) end

local burst_limit = read_burst_limit(record, tonumber(ARGV[3]))
local clock_day, log_start = floor(now / {{DAY_MS}}), tonumber(sub(record, {{log_start_ms}}))
local today, count, yesterday, yesterday_count = read_days(record, clock_day)
local newest, flag, unverifiable = tonumber(sub(record, {{newest_ms}})), sub(record, {{unflushed}}), 0

local function format_counters(newest_ms)
  return format('{{newest_ms.digits}}{{today.digits}}{{today_count.digits}}{{yesterday.digits}}{{yesterday_count.digits}}2',
    newest_ms, today, count, yesterday, yesterday_count)
end
local function reply() return '6' .. format_counters(now) .. sub(record, {{deactivated.first}}, {{scope.last}}) .. format('%d', unverifiable) end

local last_batch, last_unverifiable = string.match(call('HGET', KEYS[6], ARGV[11]) or '', '^(%d+):(%d+)$')
if last_batch and tonumber(last_batch) >= tonumber(ARGV[12]) then
  unverifiable = tonumber(last_unverifiable)
  return reply()
end

local function add_requests(day, requests)
  -- A node that has never reached Redis uses the clock of its machine.
  if day > clock_day then day = max(clock_day, today) end
  if day == today then
    count = max(count + requests, 0)
  elseif day == yesterday then
    yesterday_count = max(yesterday_count + requests, 0)
  else
    local moved_count = unflushed_count(KEYS[5], ARGV[5], day)
    local day_count = max(moved_count + requests, 0)
    if day > today then
      yesterday, yesterday_count, flag = next_yesterday(KEYS[5], ARGV[5], flag, today, count, yesterday, yesterday_count)
      today, count = day, day_count
    elseif day > yesterday then
      if flag == '2' then move_to_unflushed(KEYS[5], ARGV[5], yesterday, yesterday_count) end
      yesterday, yesterday_count = day, day_count
    elseif moved_count > 0 then
      move_to_unflushed(KEYS[5], ARGV[5], day, day_count)
    else
      -- Neither Redis nor this call knows the count of this day.
      unverifiable = unverifiable + max(requests, 0)
    end
  end
  flag = '2'
end

-- The first part of the incarnation: whether Redis is still the data set that a charge or a batch was sent to.
local function is_same_data_set(incarnation) return find(ARGV[1], incarnation, 1, true) == 1 end

local function for_unconfirmed(visit)
  for sent, entry, sign, incarnation in string.gmatch(ARGV[10], '({{entry_ms.pattern}})({{entry_ms.pattern}}{{entry_id.pattern}})([+-])([^,]*)') do
    visit(tonumber(sent), entry, sign == '+', incarnation)
  end
end

local is_too_early = false
for_unconfirmed(function(sent) is_too_early = is_too_early or not is_expired(now, sent, sent) end)
if is_too_early then return format('8{{newest_ms.digits}}', now) end

local same_epoch = tonumber(sub(record, {{burst_epoch}})) == tonumber(ARGV[6])
local log, new_entries = call('LRANGE', KEYS[2], 0, -1), {}
local log_length = #log

local first_sent, first_incarnation = string.match(ARGV[13], '^(%d+):(.*)$')
local function is_first_attempt_known()
  -- The number of the batch expires later than after a day.
  return is_same_data_set(first_incarnation) and tonumber(first_sent) > log_start and now - first_sent < {{DAY_MS}} and tonumber(first_sent) <= now
end
if first_sent and not is_first_attempt_known() then
  -- The first attempt may be in the count from PostgreSQL. We prefer undercounting to charging twice.
  for _, requests in string.gmatch(ARGV[8], '(%d+):(%d+)') do unverifiable = unverifiable + tonumber(requests) end
  for_unconfirmed(function(_, _, is_admitted) unverifiable = unverifiable + (is_admitted and 1 or 0) end)
else
  for day, requests in string.gmatch(ARGV[8], '(%d+):(-?%d+)') do add_requests(tonumber(day), tonumber(requests)) end
  for entry in string.gmatch(ARGV[9], '%d+') do new_entries[#new_entries + 1] = entry end

  local is_logged, oldest = {}, nil
  for _, entry in ipairs(log) do
    is_logged[entry] = true
    if not oldest or entry < oldest then oldest = entry end
  end
  local function logged_mark(entry)
    for mark = 0, 3 do
      if is_logged[mark == 0 and entry or marked_entry(entry, mark)] then return mark end
    end
  end

  -- Requests that arrived up to this time may be missing from the log: it keeps no request after its burst window, and a full log has
  -- lost those that arrived first.
  local missing_until = max(now, newest) - burst_window
  if log_length >= burst_limit then missing_until = max(missing_until, tonumber(sub(oldest, {{entry_ms}}))) end
  -- Charges that were sent up to this time may be missing from the log. A log that expired or was evicted lacks all.
  local log_lost_at = log_length == 0 and max(log_start, newest) or log_start
  for_unconfirmed(function(sent, entry, is_admitted, incarnation)
    local arrival, mark = tonumber(sub(entry, {{entry_ms}})), logged_mark(entry)
    local day = floor(arrival / {{DAY_MS}}) + (mark and mark >= 2 and 1 or 0)
    if mark == 0 or mark == 2 then
      -- If it is not admitted, the caller did not get a response that is charged.
      if not is_admitted then add_requests(day, -1) end
    elseif is_admitted and mark then
      -- The daily quota rejected the request, but the reply was lost and the node admitted it. It is in the log, but not in the count.
      add_requests(day, 1)
    elseif is_admitted then
      if arrival <= missing_until or arrival > now or sent <= log_lost_at or not is_same_data_set(incarnation) then
        unverifiable = unverifiable + 1
      else
        add_requests(floor(sent / {{DAY_MS}}), 1)
        new_entries[#new_entries + 1] = entry
      end
    end
  end)
end

call('HSET', KEYS[6], ARGV[11], format('%d:%d', ARGV[12], unverifiable))
call('PEXPIRE', KEYS[6], {{RECORD_TTL_MS}})

local paused = sub(record, {{paused}})
if same_epoch and #new_entries > 0 then
  for _, entry in ipairs(new_entries) do
    local at = tonumber(sub(entry, {{entry_ms}}))
    if now - at < burst_window then
      -- An entry in the future would look as if the clock had been set back.
      log[#log + 1] = at > now and format('{{entry_ms.digits}}', now) .. sub(entry, {{entry_id.first}}) or entry
    end
  end
  table.sort(log)
  -- Not deleted first: a cluster that is migrating the slot would not let the key be created here again.
  for first = max(#log - burst_limit + 1, 1), #log, {{ENTRIES_PER_PUSH}} do
    call('RPUSH', KEYS[2], unpack(log, first, math.min(first + {{ENTRIES_PER_PUSH}} - 1, #log)))
  end
  call('LTRIM', KEYS[2], log_length, -1)
  call('PEXPIRE', KEYS[2], {{LOG_TTL_MS}})
  if #log > 0 then newest = max(newest, tonumber(sub(log[#log], {{entry_ms}}))) end
end

-- The node may have decided it by an earlier, lower limit.
local function exceeds_burst_limit(pause)
  local requests = 0
  for count in string.gmatch(string.match(pause, ':.*') or '', '%d+') do requests = requests + tonumber(count) end
  return requests > burst_limit
end
if ARGV[7] ~= '' and same_epoch and exceeds_burst_limit(ARGV[7]) then
  paused = '1'
  call('HSET', KEYS[3], ARGV[5] .. ':' .. ARGV[6], ARGV[7])
end
mark_unflushed(KEYS[5], ARGV[5])
-- The limits may be near now.
close_slots(record, KEYS[1])
local log_start_text = sub(record, {{log_start_ms}})
if log_length == 0 and is_log_lost(tonumber(sub(record, {{newest_ms}})), now, burst_window) then
  log_start_text = format('{{log_start_ms.digits}}', new_log_start(record, now))
end
record = sub(record, 1, {{generation.last}}) .. log_start_text .. NO_SLOTS .. sub(record, {{previous_digest.first}})
call('SET', KEYS[1], sub(record, 1, {{digest.last}}) .. paused .. format_counters(newest) .. sub(record, {{deactivated.first}}), 'PX', {{RECORD_TTL_MS}})
return reply()
