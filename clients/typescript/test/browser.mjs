// The package in a real browser, on a page of another origin than the service.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';

import { build } from 'esbuild';

import { launch } from '../../../tools/chromium.mjs';
import { Client } from '../dist/index.js';

export function browser(context) {
  let chromium, page, site;
  before(async () => {
    const options = { entryPoints: ['dist/index.js'], bundle: true, format: 'iife', globalName: 'ipseity' };
    const { outputFiles } = await build({ ...options, write: false });
    const html = `<script>${outputFiles[0].text}</script>`;
    site = createServer(async ({ url }, response) => {
      if (url !== '/ticket') return response.setHeader('content-type', 'text/html').end(html);
      const { http: baseUrl, keys } = context.deployment;
      const ticket = await new Client({ baseUrl, key: keys.geo, scope: 'geo' }).createTicket({ origin: originOf('localhost') });
      return response.end(JSON.stringify(ticket));
    });
    await once(site.listen(0, '127.0.0.1'), 'listening');
    chromium = await launch();
    page = await chromium.newPage();
    await page.goto(originOf('127.0.0.1'));
  });
  const originOf = (host) => `http://${host}:${site.address().port}`;
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

  test('a page uses tickets that its server creates, and a page of another origin cannot', async () => {
    const lookupWithTicket = (baseUrl) => {
      const ticket = async (signal) => (await fetch('/ticket', { signal })).json();
      return new ipseity.Client({ baseUrl, scope: 'geo', ticket }).lookup().then(({ facts }) => facts.ip, ({ name }) => name);
    };
    const results = [];
    for (const host of ['localhost', '127.0.0.1']) {
      await page.goto(originOf(host));
      results.push(await page.evaluate(lookupWithTicket, context.deployment.http));
    }
    assert.deepEqual(results, ['127.0.0.1', 'OriginNotAllowedError']);
  });
}
