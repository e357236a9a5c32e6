-- Callers for wrk: each thread uses every other line of a pool in turn: a key, `-` for none, an address, and
-- the origin of a page, if there is one.
--
-- arguments: the file, the path

local threads = 0
function setup(thread)
  thread:set('number', threads)
  threads = threads + 1
end

local requests, next = {}, 0
function init(arguments)
  local line_number = 0
  for line in io.lines(arguments[1]) do
    if line_number % 2 == number then
      local key, address, origin = line:match('(%S+) (%S+) ?(%S*)')
      local headers = { ['X-Forwarded-For'] = address }
      if origin ~= '' then headers['Origin'] = origin end
      if key ~= '-' then headers['Authorization'] = 'Bearer ' .. key end
      requests[#requests + 1] = wrk.format('GET', arguments[2], headers)
    end
    line_number = line_number + 1
  end
  math.randomseed(os.time() + number)
  next = math.random(#requests)
end

function request()
  next = next % #requests + 1
  return requests[next]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('{"requests":%d,"seconds":%f,"p50_us":%f,"p99_us":%f,"refused":%d,"failed":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
