// Test keys: every made-up caller and every error, from the real service.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Client, TEST_KEYS } from '../dist/index.js';

// The values that `test_key.ts` declares for a type.
const SOURCE = readFileSync(new URL('../src/test_key.ts', import.meta.url), 'utf8');
const declared = (type) => Array.from(SOURCE.match(`type ${type} =([^;]*);`)[1].matchAll(/'([^']+)'/g), ([, name]) => name);
const CALLERS = declared('TestCaller');
const ERRORS = {
  burst: 'BurstLimitError',
  paused: 'PausedKeyError',
  day: 'DailyQuotaError',
  inactive: 'InactiveKeyError',
  expired: 'ExpiredKeyError',
  origin: 'OriginNotAllowedError',
  caller: 'CallerLimitError',
  ticket: 'InvalidTicketError',
  500: 'InternalError',
};

export function testKeys(context) {
  const clientOf = (scope, test) =>
    new Client({ baseUrl: context.deployment.http, key: TEST_KEYS[scope], scope, test, retryBudget: 0 });

  test('a test key returns each made-up caller in each scope', async () => {
    for (const scope of Object.keys(TEST_KEYS)) {
      const bodies = new Set();
      for (const as of [undefined, ...CALLERS]) {
        const { facts, rateLimit } = await clientOf(scope, { as }).lookup();
        assert.deepEqual([facts.status, rateLimit.remaining], ['success', 9999], as);
        bodies.add(JSON.stringify(facts));
      }
      assert.equal(bodies.size, CALLERS.length, scope);
    }
  });

  test('a test key returns each error', async () => {
    assert.deepEqual(declared('TestFailure').sort(), Object.keys(ERRORS).sort());
    for (const [fail, name] of Object.entries(ERRORS)) {
      const error = await clientOf('ip', { fail }).lookup().then(assert.fail, (error) => error);
      assert.equal(error.name, name);
    }
    const unknown = await clientOf('ip', { as: 'x' }).lookup().then(assert.fail, (error) => error);
    assert.equal(unknown.name, 'BadRequestError');
  });
}
