-- A key's record: one string of fixed columns, so that a charge takes one read and one write.
--
--   1-16 stamp of the store that wrote it   17-48 digest   49 paused   50-62 the newest time in the log (ms)
--   63-68 today's number   69-80 its count   81-86 yesterday's number   87-98 its count; both 0 once it is rolled up
--   99 deactivated   100-111 daily limit   112-120 window   121-124 scope   125-133 generation   134-146 when it was filled (ms)
--   147-178 retired digest   179-188 until when that holds (s); both absent if there is none
--
-- The clock is the store's own. This stands before every script that reads or writes a record.

local sub, format, floor = string.sub, string.format, math.floor

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- The answer for a record that is absent, or stamped by a store that this one is not: what it says may be old.
local function unknown(rec, fence_name, new_fence)
  local fence = redis.call('GET', fence_name)
  if not fence then
    fence = new_fence
    redis.call('SET', fence_name, fence)
  end
  return (rec and '01' or '00') .. fence
end
