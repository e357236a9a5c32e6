// Every error status of the service maps to its class, after a single request.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';

import * as ipseity from '../dist/index.js';

const { Client } = ipseity;
const UNKNOWN_KEY = 'ips_000000000000000000000000000000000000000000000000';

// Looks up, checks the class and fields of the error, and returns it with the number of requests.
async function lookupError(options, name, status, code) {
  let requestCount = 0;
  const inner = options.fetch ?? fetch;
  const countingFetch = (url, init) => (requestCount++, inner(url, init));
  const client = new Client({ scope: 'ip', ...options, fetch: countingFetch });
  const error = await client.lookup().then(assert.fail, (error) => error);
  for (const kind of [name, 'ApiError', 'IpseityError']) assert.ok(error instanceof ipseity[kind], String(error));
  assert.deepEqual([error.name, error.status, error.code], [name, status, code]);
  return { error, requestCount };
}

function assertBody({ error }, anchor) {
  assert.ok(error.docs.startsWith('https://localhost:') && error.docs.endsWith(`#${anchor}`), error.docs);
  assert.match(error.requestId, /^[0-9a-f]{16}$/);
  assert.ok(error.message.endsWith('.'));
}

function assertRateLimit({ error }, limit, retryAfterS) {
  assert.deepEqual([error.rateLimit.limit, error.rateLimit.remaining], [limit, 0]);
  const toReset = (error.rateLimit.reset - Date.now()) / 1000;
  assert.ok(Math.abs(toReset - error.retryAfterS) < 5, `${toReset} ${error.retryAfterS}`);
  if (retryAfterS) assert.equal(error.retryAfterS, retryAfterS);
}

export function errors(context) {
  test('every documented error has a class', async () => {
    const documentation = readFileSync(new URL('../../../docs/site/errors.md', import.meta.url), 'utf8');
    for (const [, body] of documentation.matchAll(/```json\n(.*?)```/gs)) {
      const { error: code } = JSON.parse(body);
      const options = { baseUrl: 'https://ip.example', key: UNKNOWN_KEY, scope: 'ip', retryBudget: 0 };
      const client = new Client({ ...options, fetch: async () => new Response(body, { status: 400 }) });
      const error = await client.lookup().then(assert.fail, (error) => error);
      assert.equal(error.code, code);
      assert.notEqual(error.name, 'UnexpectedResponseError', code);
    }
  });

  test('401 maps to missing and invalid key', async () => {
    const { http: baseUrl } = context.deployment;
    for (const [key, kind] of [['', 'missing'], [UNKNOWN_KEY, 'invalid']]) {
      const name = `${kind[0].toUpperCase()}${kind.slice(1)}KeyError`;
      const code = `${kind}_api_key`;
      const result = await lookupError({ baseUrl, key }, name, 401, code);
      assertBody(result, code);
      assert.deepEqual([result.requestCount, result.error.retryAfterS], [1, undefined]);
    }
  });

  test('403 maps to inactive and paused key', async () => {
    const { deployment } = context;
    const { http: baseUrl } = deployment;
    const [deactivated, overLimit] = [await deployment.deactivatedKey('ip'), await deployment.pausedKey('ip')];
    const inactive = await lookupError({ baseUrl, key: deactivated.key }, 'InactiveKeyError', 403, 'inactive_api_key');
    assertBody(inactive, 'inactive-keys');
    const paused = await lookupError({ baseUrl, key: overLimit.key }, 'PausedKeyError', 403, 'inactive_api_key');
    assertBody(paused, 'paused-keys');
    assert.deepEqual([inactive.requestCount, paused.requestCount], [1, 1]);
  });

  test('404, 405 and 414 map to their errors', async () => {
    const { http: baseUrl, keys } = context.deployment;
    const options = { baseUrl, key: keys.ip };
    const notFound = await lookupError({ ...options, baseUrl: `${baseUrl}/nowhere` }, 'NotFoundError', 404, 'not_found');
    assertBody(notFound, 'not_found');
    const post = (url, init) => fetch(url, { ...init, method: 'POST' });
    const notAllowed = await lookupError({ ...options, fetch: post }, 'MethodNotAllowedError', 405, 'method_not_allowed');
    assertBody(notAllowed, 'method_not_allowed');
    const lengthen = (url, init) => fetch(`${url}&x=${'x'.repeat(5000)}`, init);
    const tooLong = await lookupError({ ...options, fetch: lengthen }, 'UriTooLongError', 414, 'uri_too_long');
    assertBody(tooLong, 'bad_request');
    assert.deepEqual([notFound.requestCount, notAllowed.requestCount, tooLong.requestCount], [1, 1, 1]);
  });

  test('400 and 431 map to their errors', async () => {
    const { http: baseUrl, keys } = context.deployment;
    // fetch cannot send a malformed request, so this function writes one to a socket.
    const malformed = async (url) => {
      const socket = connect(url.port, url.hostname);
      await once(socket, 'connect');
      socket.write('GET /api/v1/ip HTTP/1.1\r\nno header\r\n\r\n');
      const [head, body] = (await text(socket)).split('\r\n\r\n');
      return new Response(body, { status: Number(head.split(' ')[1]) });
    };
    const large = { baseUrl, key: 'x'.repeat(20_000) };
    const badRequest = await lookupError({ baseUrl, key: keys.ip, fetch: malformed }, 'BadRequestError', 400, 'bad_request');
    const tooLarge = await lookupError(large, 'HeadersTooLargeError', 431, 'headers_too_large');
    assert.deepEqual([badRequest.requestCount, tooLarge.requestCount], [1, 1]);
  });

  test('429 for the daily quota is not retried if the reset is after the timeout', async () => {
    const { key } = await context.deployment.exhaustedKey('ip');
    const options = { baseUrl: context.deployment.http, key };
    const result = await lookupError(options, 'DailyQuotaError', 429, 'rate_limit_exceeded');
    assertBody(result, 'daily-quota');
    assertRateLimit(result, 1);
    assert.match(result.error.enterprise, /^https:.*\/enterprise$/);
    assert.equal(result.requestCount, 1);
  });

  test('429 for the burst limit pauses the key and is not retried', async () => {
    const { key } = await context.deployment.keyAtBurstLimit('ip');
    const options = { baseUrl: context.deployment.http, key, timeoutMs: 600_000 };
    const burst = await lookupError(options, 'BurstLimitError', 429, 'rate_limit_exceeded');
    assertBody(burst, 'burst-limit');
    assertRateLimit(burst, 300, 60);
    const paused = await lookupError(options, 'PausedKeyError', 403, 'inactive_api_key');
    assert.deepEqual([burst.requestCount, paused.requestCount], [1, 1]);
  });

  test('429 maps to the demo quota', async () => {
    await context.deployment.exhaustDemo();
    const options = { baseUrl: context.deployment.http, scope: 'demo' };
    const result = await lookupError(options, 'DemoQuotaError', 429, 'rate_limit_exceeded');
    assertBody(result, 'demo-quota');
    assertRateLimit(result, 1000);
    assert.match(result.error.signup, /^https:.*\/signup$/);
    assert.equal(result.requestCount, 1);
  });

  test('500 without Redis and PostgreSQL, for a key and for the demo', async () => {
    const baseUrl = await context.deployment.startFailingNode();
    for (const options of [{ key: context.deployment.keys.ip }, { scope: 'demo' }]) {
      const result = await lookupError({ baseUrl, retryBudget: 0, ...options }, 'InternalError', 500, 'internal_error');
      assertBody(result, 'internal_error');
      assert.equal(result.requestCount, 1);
    }
  });
}
