// What each scope is told, by the real service.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Ipseity, NarrowKeyError } from '../dist/index.js';

const DAY_MS = 86_400_000;
const IP = ['status', 'ip', 'ipv6'];
const GEO = [
  ...IP,
  ...['city', 'region', 'region_code', 'country', 'country_name', 'continent', 'latitude', 'longitude'],
  ...['timezone', 'timezone_offset', 'postal_code', 'asn', 'org', 'as', 'is_eu', 'currency'],
];
const FULL = [...GEO, 'http_protocol', 'tls_version', 'tls_cipher', 'rtt', 'colo', 'proxy', 'hosting'];
const DEMO = [...GEO, 'http_protocol', 'tls_version', 'rtt', 'colo'];
const FIELDS = { ip: IP, geo: GEO, full: FULL };

// Comes from an address that has a country.
const fromParis = (url, init) => {
  init.headers.set('x-forwarded-for', '90.84.0.20');
  return fetch(url, init);
};

export function scopes(house) {
  for (const scope of Object.keys(FIELDS)) {
    test(`a client for ${scope} is told its fields, all of them and no other`, async () => {
      for (const key of [house.own.keys[scope], house.own.keys.full]) {
        const { facts, requestId } = await new Ipseity({ baseUrl: house.own.http, key, scope }).lookup();
        assert.deepEqual(Object.keys(facts), FIELDS[scope]);
        assert.equal(facts.ip, '127.0.0.1');
        assert.match(requestId, /^[0-9a-f]{16}$/);
      }
    });
  }

  test('facts have the types that they are declared with', async () => {
    const { http: baseUrl, keys } = house.own;
    const client = new Ipseity({ baseUrl, key: keys.full, scope: 'full', fetch: fromParis });
    const { city, latitude, is_eu, asn, as, hosting, ipv6, timezone_offset } = (await client.lookup()).facts;
    assert.deepEqual([city, latitude, is_eu, asn, as], ['Paris', 48.8534, true, 3215, 'AS3215 Orange']);
    assert.deepEqual([hosting, ipv6], [false, null]);
    assert.ok([3600, 7200].includes(timezone_offset));
  });

  test('the demo needs no key and has its fixed fields', async () => {
    const { facts, limits } = await new Ipseity({ baseUrl: house.own.http, scope: 'demo' }).lookup();
    assert.deepEqual(Object.keys(facts), DEMO);
    assert.equal(limits.limit, 1000);
  });

  test('limits count down, and begin anew at midnight', async () => {
    const { key } = await house.own.issue('ip');
    const client = new Ipseity({ baseUrl: `${house.own.http}/`, key, scope: 'ip' });
    for (const remaining of [9999, 9998]) {
      const { limits } = await client.lookup();
      assert.deepEqual([limits.limit, limits.remaining, limits.reset % DAY_MS], [10_000, remaining, 0]);
    }
  });

  test('a key that is narrower than the client is told, with what it was answered', async () => {
    for (const [own, scope] of [['ip', 'geo'], ['ip', 'full'], ['geo', 'full']]) {
      const client = new Ipseity({ baseUrl: house.own.http, key: house.own.keys[own], scope });
      await assert.rejects(client.lookup(), (error) => {
        assert.ok(error instanceof NarrowKeyError && error.message.includes(`\`${scope}\``));
        assert.deepEqual(Object.keys(error.facts), FIELDS[own]);
        return true;
      });
    }
  });
}
