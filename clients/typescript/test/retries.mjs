// What is sent again, how often, and what ends a lookup early.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { before, after, test } from 'node:test';

import { ConnectionError, DailyQuotaError, InternalError, Ipseity, TimeoutError } from '../dist/index.js';

// A fetch that counts, and asks each of these addresses in turn; the last one again and again.
function through(...addresses) {
  const asking = (url, init) => {
    const base = addresses[Math.min(asking.asked++, addresses.length - 1)];
    return fetch(`${base}${url.pathname}${url.search}`, init);
  };
  asking.asked = 0;
  return asking;
}

const rejection = (promise) => promise.then(assert.fail, (error) => error);

export function retries(house) {
  // Takes connections and never answers.
  const silent = createServer();
  // Breaks off.
  const torn = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"status"'));
  let http, key, failing;
  const addressOf = (server) => `http://127.0.0.1:${server.address().port}`;
  before(async () => {
    await Promise.all([silent, torn].map((server) => once(server.listen(0, '127.0.0.1'), 'listening')));
    ({ http } = house.own);
    key = house.own.keys.ip;
    failing = await house.own.failing();
  });
  after(() => [silent, torn].forEach((server) => server.close()));

  test('a 500 and a connection that fails or breaks are tried again until an answer comes', async () => {
    for (const bad of [failing, 'http://127.0.0.1:1', addressOf(torn)]) {
      const fetch = through(bad, http);
      const { facts } = await new Ipseity({ baseUrl: http, key, scope: 'ip', fetch }).lookup();
      assert.deepEqual([facts.ip, fetch.asked], ['127.0.0.1', 2], bad);
    }
  });

  test('a lookup is tried three times at the most', async () => {
    for (const [bad, kind] of [[failing, InternalError], ['http://127.0.0.1:1', ConnectionError]]) {
      const fetch = through(bad);
      const error = await rejection(new Ipseity({ baseUrl: http, key, scope: 'ip', fetch }).lookup());
      assert.ok(error instanceof kind, String(error));
      assert.equal(fetch.asked, 3);
    }
  });

  test('the budget bounds all retries of a client, and ten answers earn one', async () => {
    const bad = through(failing);
    let fetch = bad;
    const options = { baseUrl: http, key, scope: 'ip', retryBudget: 3, fetch: (url, init) => fetch(url, init) };
    const client = new Ipseity(options);
    for (const asked of [3, 5, 6]) {
      await rejection(client.lookup());
      assert.equal(bad.asked, asked); // 1 + 2 retries, 1 + 1, 1 + 0
    }
    fetch = through(http);
    for (let answers = 0; answers < 11; answers++) await client.lookup();
    fetch = bad;
    await rejection(client.lookup());
    await rejection(client.lookup());
    assert.equal(bad.asked, 9); // 1 + 1, 1 + 0
  });

  test('Retry-After is waited for, if it ends before the time limit', async () => {
    const { key, account } = await house.own.spent('ip');
    // Midnight may be far: the wait is shortened on the way, and what heals the key is a larger plan.
    const shortened = async (url, init) => {
      const { status, headers, body } = await fetch(url, init);
      const told = new Headers(headers);
      if (told.has('retry-after')) told.set('retry-after', shortened.retryAfter);
      shortened.asked.push(performance.now());
      return new Response(body, { status, headers: told });
    };
    Object.assign(shortened, { asked: [], retryAfter: '2' });
    const options = { baseUrl: http, key, scope: 'ip', fetch: shortened };

    const early = await rejection(new Ipseity({ ...options, timeoutMs: 1500 }).lookup());
    assert.ok(early instanceof DailyQuotaError && early.retryAfterS === 2);
    assert.equal(shortened.asked.length, 1);

    const healed = house.own.cli('account', 'plan', '--email', account, '--plan', 'free');
    shortened.retryAfter = new Date(Date.now() + 3000).toUTCString();
    const { limits } = await new Ipseity(options).lookup();
    await healed;
    assert.equal(limits.limit, 10_000);
    const [, first, second = assert.fail('the plan was larger before it was asked')] = shortened.asked;
    assert.ok(second - first > 1900, `${second - first} ms`);
  });

  test('a time limit ends a lookup, which is then not sent again', async () => {
    const fetch = through(addressOf(silent));
    const start = performance.now();
    const error = await rejection(new Ipseity({ baseUrl: http, key, scope: 'ip', timeoutMs: 200, fetch }).lookup());
    assert.ok(error instanceof TimeoutError && error.message.includes('200 ms'), String(error));
    assert.ok(performance.now() - start < 2000);
    assert.equal(fetch.asked, 1);
  });

  test('a signal ends a lookup before it is sent, while it is, and between two tries', async () => {
    const reason = new Error('changed my mind');
    const fetch = through(failing);
    const client = new Ipseity({ baseUrl: http, key, scope: 'ip', fetch });
    assert.equal(await rejection(client.lookup({ signal: AbortSignal.abort(reason) })), reason);
    assert.equal(fetch.asked, 0);

    const between = new AbortController();
    const thenEnd = async (url, init) => {
      const answer = await fetch(url, init);
      setTimeout(() => between.abort(reason), 20);
      return answer;
    };
    const failed = new Ipseity({ baseUrl: http, key, scope: 'ip', fetch: thenEnd });
    assert.equal(await rejection(failed.lookup({ signal: between.signal })), reason);
    assert.equal(fetch.asked, 1);

    const silently = new Ipseity({ baseUrl: addressOf(silent), key, scope: 'ip' });
    const later = new AbortController();
    setTimeout(() => later.abort(reason), 50);
    assert.equal(await rejection(silently.lookup({ signal: later.signal })), reason);
  });

  test('what cannot be sent is told when the client is made', () => {
    assert.throws(() => new Ipseity({ baseUrl: 'no address', key, scope: 'ip' }), TypeError);
    assert.throws(() => new Ipseity({ baseUrl: http, key: 'two\nlines', scope: 'ip' }), TypeError);
  });
}
