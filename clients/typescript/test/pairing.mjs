// Lookups with both addresses of the caller.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client } from '../dist/index.js';

const META = { ipv4_url: 'https://v4.example', ipv6_url: 'https://v6.example' };
const BODY = { status: 'success', ip: '203.0.113.7', ipv6: null };
const json = (body, status = 200) => new Response(JSON.stringify(body), { status });

// A service whose `respond` returns the response to a URL, or undefined for the usual one. Records all requests.
function service(respond = () => undefined) {
  const requests = [];
  const fetch = async (url, init) => {
    requests.push({ url: String(url), pair: init.headers?.get('ipseity-pair') ?? null, init });
    const response = await respond(String(url), init);
    if (response) return response;
    if (String(url).endsWith('/meta')) return json(META);
    return String(url).endsWith('/pair') ? json({ token: new URL(url).host }) : json(BODY);
  };
  const client = new Client({ baseUrl: 'https://ip.example', key: 'k', scope: 'ip', both: true, fetch });
  return { client, requests };
}

const lookupRequests = (requests) => requests.filter(({ url }) => url.includes('/ip?'));
const never = () => new Promise(() => {});

export function pairing(context) {
  test('a lookup sends a token of each family, and the key only to the base URL', async () => {
    const { client, requests } = service();
    await client.lookup();
    await client.lookup();
    assert.deepEqual(lookupRequests(requests).map(({ pair }) => pair), ['v4.example,v6.example', 'v4.example,v6.example']);
    assert.equal(requests.filter(({ url }) => url.endsWith('/meta')).length, 1);
    for (const { url, init } of requests) {
      assert.equal(init.headers?.has('authorization') ?? false, url.startsWith('https://ip.example/api/v1/ip?'), url);
    }
  });

  test('a lookup is sent without tokens that fail or take too long', async () => {
    const cases = [
      [(url) => (url.includes('v6') ? never() : undefined), 'v4.example'],
      [(url) => (url.includes('v4') ? json({ error: 'misdirected_request' }, 421) : undefined), 'v6.example'],
      [(url) => (url.includes('v4') ? Promise.reject(new Error('unreachable')) : undefined), 'v6.example'],
      [(url) => (url.endsWith('/pair') ? new Response('<html>') : undefined), null],
      [(url) => (url.endsWith('/meta') ? never() : undefined), null],
      [(url) => (url.endsWith('/meta') ? json({ ipv4_url: null, ipv6_url: null }) : undefined), null],
      [(url) => (url.endsWith('/meta') ? json({ error: 'not_found' }, 404) : undefined), null],
    ];
    for (const [respond, expected] of cases) {
      const { client, requests } = service(respond);
      const start = performance.now();
      assert.equal((await client.lookup()).facts.ip, BODY.ip);
      assert.ok(performance.now() - start < 1_500, String(respond));
      assert.deepEqual(lookupRequests(requests).map(({ pair }) => pair), [expected], String(respond));
    }
  });

  test('an aborted lookup sends no request after its tokens', async () => {
    const { client, requests } = service((url) => (url.endsWith('/pair') ? never() : undefined));
    const controller = new AbortController();
    const lookup = client.lookup({ signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 50);
    await assert.rejects(lookup, /enough/);
    assert.deepEqual(lookupRequests(requests), []);
  });

  test('a service without host names for one family returns one address', async () => {
    const { http: baseUrl, keys } = context.deployment;
    const { facts } = await new Client({ baseUrl, key: keys.ip, scope: 'ip', both: true }).lookup();
    assert.deepEqual([facts.ip, facts.ipv6], ['127.0.0.1', null]);
  });
}
