// Which lookups are retried, how often, and what ends a lookup early.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { before, after, test } from 'node:test';

import { Client, ConnectionError, DailyQuotaError, InternalError, TimeoutError } from '../dist/index.js';

const CLOSED_PORT = 'http://127.0.0.1:1';

// A fetch that counts its requests and sends them to these servers in turn, and all further ones to the last.
function fetchFrom(...baseUrls) {
  const countingFetch = (url, init) => {
    const base = baseUrls[Math.min(countingFetch.requestCount++, baseUrls.length - 1)];
    return fetch(`${base}${url.pathname}${url.search}`, init);
  };
  countingFetch.requestCount = 0;
  return countingFetch;
}

const rejection = (promise) => promise.then(assert.fail, (error) => error);

export function retries(context) {
  // Accepts connections and never responds.
  const silent = createServer();
  // Closes in the middle of a response.
  const truncating = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"status"'));
  let deployment, http, key, failing;
  const urlOf = (server) => `http://127.0.0.1:${server.address().port}`;
  before(async () => {
    await Promise.all([silent, truncating].map((server) => once(server.listen(0, '127.0.0.1'), 'listening')));
    ({ deployment } = context);
    ({ http } = deployment);
    key = deployment.keys.ip;
    failing = await deployment.startFailingNode();
  });
  after(() => [silent, truncating].forEach((server) => server.close()));

  test('a 500 and a failed or broken connection are retried', async () => {
    for (const bad of [failing, CLOSED_PORT, urlOf(truncating)]) {
      const fetch = fetchFrom(bad, http);
      const { facts } = await new Client({ baseUrl: http, key, scope: 'ip', fetch }).lookup();
      assert.deepEqual([facts.ip, fetch.requestCount], ['127.0.0.1', 2], bad);
    }
  });

  test('a lookup makes at most three attempts', async () => {
    for (const [bad, kind] of [[failing, InternalError], [CLOSED_PORT, ConnectionError]]) {
      const fetch = fetchFrom(bad);
      const error = await rejection(new Client({ baseUrl: http, key, scope: 'ip', fetch }).lookup());
      assert.ok(error instanceof kind, String(error));
      assert.equal(fetch.requestCount, 3);
    }
  });

  test('the budget limits all retries of a client, and ten responses add one back', async () => {
    const bad = fetchFrom(failing);
    let fetch = bad;
    const options = { baseUrl: http, key, scope: 'ip', retryBudget: 3, fetch: (url, init) => fetch(url, init) };
    const client = new Client(options);
    for (const requestCount of [3, 5, 6]) {
      await rejection(client.lookup());
      assert.equal(bad.requestCount, requestCount); // 1 + 2 retries, 1 + 1, 1 + 0
    }
    fetch = fetchFrom(http);
    for (let responses = 0; responses < 11; responses++) await client.lookup();
    fetch = bad;
    await rejection(client.lookup());
    await rejection(client.lookup());
    assert.equal(bad.requestCount, 9); // 1 + 1, 1 + 0
  });

  test('the client waits for Retry-After if it ends before the timeout', async () => {
    const { key, account } = await deployment.exhaustedKey('ip');
    // Midnight may be far away, so Retry-After is shortened and a larger plan makes the retry succeed.
    const shorten = async (url, init) => {
      const { status, headers, body } = await fetch(url, init);
      const changed = new Headers(headers);
      if (changed.has('retry-after')) changed.set('retry-after', shorten.retryAfter);
      shorten.requestTimes.push(performance.now());
      return new Response(body, { status, headers: changed });
    };
    Object.assign(shorten, { requestTimes: [], retryAfter: '2' });
    const options = { baseUrl: http, key, scope: 'ip', fetch: shorten };

    const error = await rejection(new Client({ ...options, timeoutMs: 1500 }).lookup());
    assert.ok(error instanceof DailyQuotaError && error.retryAfterS === 2);
    assert.equal(shorten.requestTimes.length, 1);

    const planChange = deployment.cli('account', 'plan', '--email', account, '--plan', 'free');
    shorten.retryAfter = new Date(Date.now() + 3000).toUTCString();
    const { rateLimit } = await new Client(options).lookup();
    await planChange;
    assert.equal(rateLimit.limit, 10_000);
    const [, first, second = assert.fail('the plan changed before the first attempt')] = shorten.requestTimes;
    assert.ok(second - first > 1900, `${second - first} ms`);
  });

  test('a timeout ends a lookup without a retry', async () => {
    const fetch = fetchFrom(urlOf(silent));
    const start = performance.now();
    const error = await rejection(new Client({ baseUrl: http, key, scope: 'ip', timeoutMs: 200, fetch }).lookup());
    assert.ok(error instanceof TimeoutError && error.message.includes('200 ms'), String(error));
    assert.ok(performance.now() - start < 2000);
    assert.equal(fetch.requestCount, 1);
  });

  test('a signal cancels a lookup before, during and between attempts', async () => {
    const reason = new Error('changed my mind');
    const fetch = fetchFrom(failing);
    const client = new Client({ baseUrl: http, key, scope: 'ip', fetch });
    assert.equal(await rejection(client.lookup({ signal: AbortSignal.abort(reason) })), reason);
    assert.equal(fetch.requestCount, 0);

    const between = new AbortController();
    const abortAfter = async (url, init) => {
      const response = await fetch(url, init);
      setTimeout(() => between.abort(reason), 20);
      return response;
    };
    const failingClient = new Client({ baseUrl: http, key, scope: 'ip', fetch: abortAfter });
    assert.equal(await rejection(failingClient.lookup({ signal: between.signal })), reason);
    assert.equal(fetch.requestCount, 1);

    const waitingClient = new Client({ baseUrl: urlOf(silent), key, scope: 'ip' });
    const during = new AbortController();
    setTimeout(() => during.abort(reason), 50);
    assert.equal(await rejection(waitingClient.lookup({ signal: during.signal })), reason);
  });

  test('the constructor rejects an invalid URL or key', () => {
    assert.throws(() => new Client({ baseUrl: 'no address', key, scope: 'ip' }), TypeError);
    assert.throws(() => new Client({ baseUrl: http, key: 'two\nlines', scope: 'ip' }), TypeError);
  });
}
