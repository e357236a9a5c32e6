// The fields of each scope, from the real service.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Client, InsufficientScopeError } from '../dist/index.js';

const DAY_MS = 86_400_000;

// The fields that `facts.ts` declares for an interface, without those that it extends.
const FACTS = readFileSync(new URL('../src/facts.ts', import.meta.url), 'utf8');
const declared = (name) => Array.from(FACTS.match(`interface ${name} [^]*?\n}`)[0].matchAll(/^ {2}(\w+):/gm), ([, field]) => field);
const IP = declared('IpFacts');
const GEO = [...IP, ...declared('GeoFacts')];
const FULL = [...GEO, ...declared('FullFacts')];
const DEMO = [...GEO, ...FACTS.match(/Pick<FullFacts, (.*)>/)[1].replaceAll("'", '').split(' | ')];
const FIELDS = { ip: IP, geo: GEO, full: FULL };

// Sends the request from an address with a known country.
const fromParis = (url, init) => {
  init.headers.set('x-forwarded-for', '90.84.0.20');
  return fetch(url, init);
};

export function scopes(context) {
  for (const scope of Object.keys(FIELDS)) {
    test(`a client for ${scope} returns exactly the fields of its scope`, async () => {
      for (const key of [context.deployment.keys[scope], context.deployment.keys.full]) {
        const { facts, requestId } = await new Client({ baseUrl: context.deployment.http, key, scope }).lookup();
        assert.deepEqual(Object.keys(facts), FIELDS[scope]);
        assert.equal(facts.ip, '127.0.0.1');
        assert.match(requestId, /^[0-9a-f]{16}$/);
      }
    });
  }

  test('facts have their declared types', async () => {
    const { http: baseUrl, keys } = context.deployment;
    const client = new Client({ baseUrl, key: keys.full, scope: 'full', fetch: fromParis });
    const { city, latitude, is_eu, asn, as, hosting, ipv6, timezone_offset } = (await client.lookup()).facts;
    assert.deepEqual([city, latitude, is_eu, asn, as], ['Paris', 48.8534, true, 3215, 'AS3215 Orange']);
    assert.deepEqual([hosting, ipv6], [false, null]);
    assert.ok([3600, 7200].includes(timezone_offset));
  });

  test('the status of a key is not charged', async () => {
    const { key } = await context.deployment.issueKey('geo');
    const client = new Client({ baseUrl: context.deployment.http, key, scope: 'ip' });
    const { scope, state, limits, usage } = await client.key();
    assert.deepEqual([scope, state, limits.burst, usage.day], ['geo', 'active', 300, 0]);
    assert.equal((await client.lookup()).rateLimit.remaining, 9999);
    await assert.rejects(new Client({ baseUrl: context.deployment.http, scope: 'demo' }).key(), { name: 'MissingKeyError' });
  });

  test('the demo needs no key and has its fixed fields', async () => {
    const { facts, rateLimit } = await new Client({ baseUrl: context.deployment.http, scope: 'demo' }).lookup();
    assert.deepEqual(Object.keys(facts), DEMO);
    assert.equal(rateLimit.limit, 1000);
  });

  test('the rate limit counts down and resets at midnight', async () => {
    const { key } = await context.deployment.issueKey('ip');
    const client = new Client({ baseUrl: `${context.deployment.http}/`, key, scope: 'ip' });
    for (const remaining of [9999, 9998]) {
      const { rateLimit } = await client.lookup();
      assert.deepEqual([rateLimit.limit, rateLimit.remaining, rateLimit.reset % DAY_MS], [10_000, remaining, 0]);
    }
  });

  test('a key with a narrower scope is an error that carries the fields it returned', async () => {
    for (const [keyScope, scope] of [['ip', 'geo'], ['ip', 'full'], ['geo', 'full']]) {
      const client = new Client({ baseUrl: context.deployment.http, key: context.deployment.keys[keyScope], scope });
      await assert.rejects(client.lookup(), (error) => {
        assert.ok(error instanceof InsufficientScopeError && error.message.includes(`\`${scope}\``));
        assert.deepEqual(Object.keys(error.facts), FIELDS[keyScope]);
        return true;
      });
    }
  });
}
