-- What an engineer would build instead of the service: authenticates a key by its digest, charges it in Redis with the script of the floor,
-- and sets the rate limit headers.

local redis, sha256, to_hex = require 'nginx.redis', require 'nginx.sha256', require('nginx.string').to_hex

local TIMEOUT_MS, IDLE_MS, POOL_SIZE = 50, 60000, 64
local DAY_S = 86400
-- By the first value that the script returns.
local REFUSALS = { [0] = 401, [1] = 403, [2] = 429, [3] = 429 }

local function refuse(status, code)
  ngx.status = status
  ngx.print('{"error":"', code, '"}')
  return ngx.exit(status)
end

local function digest_of(key)
  local hash = sha256:new()
  hash:update(key)
  return to_hex(hash:final())
end

local function call_script(digest)
  local connection = redis:new()
  connection:set_timeout(TIMEOUT_MS)
  local is_connected, failure = connection:connect('REDIS_HOST', REDIS_PORT)
  if not is_connected then return nil, failure end
  local verdict, call_failure = connection:evalsha('SCRIPT_HASH', 2, 'k:{' .. digest .. '}', 'k:{' .. digest .. '}:b')
  connection:set_keepalive(IDLE_MS, POOL_SIZE)
  return verdict, call_failure
end

function charge()
  local key = (ngx.var.http_authorization or ''):match('^Bearer (.+)$')
  if not key then return refuse(401, 'missing_api_key') end
  local verdict, failure = call_script(digest_of(key))
  if not verdict then
    ngx.log(ngx.ERR, failure)
    return refuse(500, 'internal_error')
  end
  local refusal = REFUSALS[verdict[1]]
  if refusal then return refuse(refusal, 'refused') end
  local _, limit, used, _, second = unpack(verdict)
  ngx.header['X-RateLimit-Limit'] = limit
  ngx.header['X-RateLimit-Remaining'] = limit - used
  ngx.header['X-RateLimit-Reset'] = second - second % DAY_S + DAY_S
end
