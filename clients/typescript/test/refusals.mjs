// Every status that the service can answer, as the error that it becomes; each is asked for once, whatever the budget.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';

import * as ipseity from '../dist/index.js';

const { Ipseity } = ipseity;
const UNKNOWN = 'ips_000000000000000000000000000000000000000000000000';

// Looks up, holds the error to its class and its fields, and gives it back with how often the service was asked.
async function refused(options, name, status, code) {
  let asked = 0;
  const own = options.fetch ?? fetch;
  const counting = (url, init) => (asked++, own(url, init));
  const client = new Ipseity({ scope: 'ip', ...options, fetch: counting });
  const error = await client.lookup().then(assert.fail, (error) => error);
  for (const kind of [name, 'Refusal', 'IpseityError']) assert.ok(error instanceof ipseity[kind], String(error));
  assert.deepEqual([error.name, error.status, error.code], [name, status, code]);
  return { error, asked };
}

// What every answer of the service's own carries.
function holdsBody({ error }, anchor) {
  assert.ok(error.docs.startsWith('https://localhost:') && error.docs.endsWith(`#${anchor}`), error.docs);
  assert.match(error.requestId, /^[0-9a-f]{16}$/);
  assert.ok(error.message.endsWith('.'));
}

function holdsLimits({ error }, limit, retryAfterS) {
  assert.deepEqual([error.limits.limit, error.limits.remaining], [limit, 0]);
  const toReset = (error.limits.reset - Date.now()) / 1000;
  assert.ok(Math.abs(toReset - error.retryAfterS) < 5, `${toReset} ${error.retryAfterS}`);
  if (retryAfterS) assert.equal(error.retryAfterS, retryAfterS);
}

export function refusals(house) {
  test('401: no key, and one that does not exist', async () => {
    const { http: baseUrl } = house.own;
    for (const [key, kind] of [['', 'missing'], [UNKNOWN, 'invalid']]) {
      const name = `${kind[0].toUpperCase()}${kind.slice(1)}KeyError`;
      const code = `${kind}_api_key`;
      const told = await refused({ baseUrl, key }, name, 401, code);
      holdsBody(told, code);
      assert.deepEqual([told.asked, told.error.retryAfterS], [1, undefined]);
    }
  });

  test('403: a deactivated key, and a paused one', async () => {
    const { http: baseUrl } = house.own;
    const [off, hasty] = [await house.own.deactivated('ip'), await house.own.paused('ip')];
    const inactive = await refused({ baseUrl, key: off.key }, 'InactiveKeyError', 403, 'inactive_api_key');
    holdsBody(inactive, 'inactive-keys');
    const paused = await refused({ baseUrl, key: hasty.key }, 'PausedKeyError', 403, 'inactive_api_key');
    holdsBody(paused, 'paused-keys');
    assert.deepEqual([inactive.asked, paused.asked], [1, 1]);
  });

  test('404, 405, 414: requests that went astray', async () => {
    const { http: baseUrl, keys } = house.own;
    const lost = await refused({ baseUrl: `${baseUrl}/nowhere`, key: keys.ip }, 'NotFoundError', 404, 'not_found');
    holdsBody(lost, 'not_found');
    const post = (url, init) => fetch(url, { ...init, method: 'POST' });
    const options = { baseUrl, key: keys.ip };
    const posted = await refused({ ...options, fetch: post }, 'MethodNotAllowedError', 405, 'method_not_allowed');
    holdsBody(posted, 'method_not_allowed');
    const stretch = (url, init) => fetch(`${url}&x=${'x'.repeat(5000)}`, init);
    const long = await refused({ ...options, fetch: stretch }, 'UriTooLongError', 414, 'uri_too_long');
    holdsBody(long, 'bad_request');
    assert.deepEqual([lost.asked, posted.asked, long.asked], [1, 1, 1]);
  });

  test('400, 431: answers without a body', async () => {
    const { http: baseUrl, keys } = house.own;
    // No fetch sends a request that cannot be read, so this one writes its own.
    const garbled = async (url) => {
      const socket = connect(url.port, url.hostname);
      await once(socket, 'connect');
      socket.write('GET /api/v1/ip HTTP/1.1\r\nno header\r\n\r\n');
      const [, status] = (await text(socket)).split(' ');
      return new Response(null, { status: Number(status) });
    };
    const unread = await refused({ baseUrl, key: keys.ip, fetch: garbled }, 'UnexpectedAnswerError', 400, '');
    const large = await refused({ baseUrl, key: 'x'.repeat(20_000) }, 'UnexpectedAnswerError', 431, '');
    assert.deepEqual([unread.asked, large.asked], [1, 1]);
  });

  test('429: a spent day is not waited for beyond the time limit', async () => {
    const { key } = await house.own.spent('ip');
    const told = await refused({ baseUrl: house.own.http, key }, 'DailyQuotaError', 429, 'rate_limit_exceeded');
    holdsBody(told, 'daily-quota');
    holdsLimits(told, 1);
    assert.match(told.error.enterprise, /^https:.*\/enterprise$/);
    assert.equal(told.asked, 1);
  });

  test('429: a burst pauses the key, and is never retried or resumed', async () => {
    const { key } = await house.own.hurried('ip');
    const options = { baseUrl: house.own.http, key, timeoutMs: 600_000 };
    const burst = await refused(options, 'BurstLimitError', 429, 'rate_limit_exceeded');
    holdsBody(burst, 'burst-limit');
    holdsLimits(burst, 300, 60);
    const after = await refused(options, 'PausedKeyError', 403, 'inactive_api_key');
    assert.deepEqual([burst.asked, after.asked], [1, 1]);
  });

  test('429: a spent demo', async () => {
    await house.own.spendDemo();
    const options = { baseUrl: house.own.http, scope: 'demo' };
    const told = await refused(options, 'DemoQuotaError', 429, 'rate_limit_exceeded');
    holdsBody(told, 'demo-quota');
    holdsLimits(told, 1000);
    assert.match(told.error.signup, /^https:.*\/signup$/);
    assert.equal(told.asked, 1);
  });

  test('500: a node without its stores, for a key and for the demo', async () => {
    const baseUrl = await house.own.failing();
    for (const options of [{ key: house.own.keys.ip }, { scope: 'demo' }]) {
      const told = await refused({ baseUrl, retryBudget: 0, ...options }, 'InternalError', 500, 'internal_error');
      holdsBody(told, 'internal_error');
      assert.equal(told.asked, 1);
    }
  });
}
