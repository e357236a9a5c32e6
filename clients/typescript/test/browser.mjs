// The package in a real browser, on a page of another origin than the service's.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';

import { build } from 'esbuild';

import { launch } from '../../../tools/chromium.mjs';

export function browser(house) {
  let chromium, page, site;
  before(async () => {
    const options = { entryPoints: ['dist/index.js'], bundle: true, format: 'iife', globalName: 'ipseity' };
    const { outputFiles } = await build({ ...options, write: false });
    const html = `<script>${outputFiles[0].text}</script>`;
    site = createServer((_asked, answer) => answer.setHeader('content-type', 'text/html').end(html));
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
        return await new ipseity.Ipseity(options).lookup();
      } catch (error) {
        return { ...error, name: error.name };
      }
    }, options);

  test('an answer is read, with its limits', async () => {
    const { http: baseUrl, keys } = house.own;
    const { facts, limits, requestId } = await lookup({ baseUrl, key: keys.geo, scope: 'geo' });
    assert.deepEqual([facts.ip, facts.country, limits.limit], ['127.0.0.1', null, 10_000]);
    assert.match(requestId, /^[0-9a-f]{16}$/);
  });

  test('a refusal is read, with its limits and its time to wait', async () => {
    const { key } = await house.own.spent('ip');
    const { name, limits, retryAfterS } = await lookup({ baseUrl: house.own.http, key, scope: 'ip' });
    assert.deepEqual([name, limits.limit, limits.remaining], ['DailyQuotaError', 1, 0]);
    assert.ok(retryAfterS > 0);
  });

  test('a service that is not there is a connection that failed', async () => {
    const { name } = await lookup({ baseUrl: 'http://127.0.0.1:1', key: 'ips_', scope: 'ip', retryBudget: 0 });
    assert.equal(name, 'ConnectionError');
  });
}
