// The package in a real browser, on a page of another origin than the service.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';

import { build } from 'esbuild';

import { launch } from '../../../tools/chromium.mjs';

export function browser(context) {
  let chromium, page, site;
  before(async () => {
    const options = { entryPoints: ['dist/index.js'], bundle: true, format: 'iife', globalName: 'ipseity' };
    const { outputFiles } = await build({ ...options, write: false });
    const html = `<script>${outputFiles[0].text}</script>`;
    site = createServer((_request, response) => response.setHeader('content-type', 'text/html').end(html));
    await once(site.listen(0, '127.0.0.1'), 'listening');
    chromium = await launch();
    page = await chromium.newPage();
    await page.goto(`http://127.0.0.1:${site.address().port}/`);
  });
  after(async () => {
    await chromium?.close();
    site.close();
  });

  const lookup = (options) =>
    page.evaluate(async (options) => {
      try {
        return await new ipseity.Client(options).lookup();
      } catch (error) {
        return { ...error, name: error.name };
      }
    }, options);

  test('a response is readable, with its rate limit', async () => {
    const { http: baseUrl, keys } = context.deployment;
    const { facts, rateLimit, requestId } = await lookup({ baseUrl, key: keys.geo, scope: 'geo' });
    assert.deepEqual([facts.ip, facts.country, rateLimit.limit], ['127.0.0.1', null, 10_000]);
    assert.match(requestId, /^[0-9a-f]{16}$/);
  });

  test('an error is readable, with its rate limit and Retry-After', async () => {
    const { key } = await context.deployment.exhaustedKey('ip');
    const { name, rateLimit, retryAfterS } = await lookup({ baseUrl: context.deployment.http, key, scope: 'ip' });
    assert.deepEqual([name, rateLimit.limit, rateLimit.remaining], ['DailyQuotaError', 1, 0]);
    assert.ok(retryAfterS > 0);
  });

  test('an unreachable service is a connection error', async () => {
    const { name } = await lookup({ baseUrl: 'http://127.0.0.1:1', key: 'ips_', scope: 'ip', retryBudget: 0 });
    assert.equal(name, 'ConnectionError');
  });
}
