// A key in a web page: pages of an allowed origin can use it, and nothing else can spend it.

import { once } from 'node:events';
import http from 'node:http';

import { keyId } from '../cross_origin_client.mjs';

// How often each kind of request is sent.
const ATTEMPTS = 20;

const WORKER = `
  addEventListener('install', () => skipWaiting());
  addEventListener('activate', (event) => event.waitUntil(clients.claim()));
  addEventListener('message', async ({ data: { url, key }, source }) => {
    const response = await fetch(url, { headers: { authorization: 'Bearer ' + key } });
    source.postMessage(response.status);
  });`;

export async function webKeys({ report, browser, deployment }) {
  const [shop, other] = [await openSite(browser, 'localhost'), await openSite(browser, '127.0.0.1')];
  const [url, key] = [`${deployment.portal}/api/v1/ip`, deployment.keys.geo];
  try {
    await deployment.cli('key', 'restrict', keyId(key), '--origin', shop.origin);
    const before = await lookUp(shop, url, key);
    await report.check('a page of an allowed origin can use the key', () => expectEqual(before.status, 200));
    await report.check('a page of another origin reads the reason', async () => {
      const { status, body } = await lookUp(other, url, key);
      expectEqual([status, body.error], [403, 'origin_not_allowed']);
      if (!body.message.includes('Origin')) throw new Error(body.message);
    });
    for (const [kind, site, attempt] of [
      ['images', shop, showImage],
      ['images of another origin', other, showImage],
      ['requests without CORS', other, sendWithoutCors],
      ['sandboxed frames', shop, sendFromSandbox],
      ['navigations', other, navigate],
      ['service workers of another origin', other, sendFromWorker],
    ]) {
      await report.check(`${kind} cannot use the key`, async () => {
        for (let count = 0; count < ATTEMPTS; count += 1) await attempt(site, url, key);
      });
    }
    await report.check('nothing but lookups of the allowed page was counted', async () => {
      const after = await lookUp(shop, url, key);
      expectEqual([after.status, Number(before.remaining) - Number(after.remaining)], [200, 1]);
    });
  } finally {
    await deployment.cli('key', 'restrict', keyId(key));
    shop.close();
    other.close();
  }
}

// A web site with one page and a service worker.
async function openSite(browser, host) {
  const server = http.createServer((request, response) => {
    const isWorker = request.url === '/worker.js';
    response.writeHead(200, { 'content-type': isWorker ? 'text/javascript' : 'text/html' });
    response.end(isWorker ? WORKER : '<!doctype html><title>A shop</title><link rel="icon" href="data:,">');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://${host}:${server.address().port}`;
  const context = await browser.context();
  const page = await context.newPage();
  await page.goto(`${origin}/`);
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { origin, context, page, close };
}

function lookUp({ page }, url, key) {
  return page.evaluate(
    async ([url, key]) => {
      const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } });
      return { status: response.status, remaining: response.headers.get('x-ratelimit-remaining'), body: await response.json() };
    },
    [url, key],
  );
}

function showImage({ page }, url, key) {
  const show = ([url, key]) =>
    new Promise((resolve) => {
      const image = new Image();
      image.onload = image.onerror = resolve;
      image.src = `${url}?key=${key}&${Math.random()}`;
    });
  return page.evaluate(show, [url, key]);
}

function sendWithoutCors({ page }, url, key) {
  return page.evaluate(([url, key]) => fetch(`${url}?key=${key}`, { mode: 'no-cors' }).then(() => {}), [url, key]);
}

async function sendFromSandbox({ page }, url, key) {
  const status = await page.evaluate(
    ([url, key]) =>
      new Promise((resolve) => {
        addEventListener('message', (event) => resolve(event.data), { once: true });
        const frame = document.createElement('iframe');
        frame.sandbox = 'allow-scripts';
        frame.srcdoc = `<script>fetch('${url}', { headers: { authorization: 'Bearer ${key}' } })
          .then((response) => parent.postMessage(response.status, '*'))</script>`;
        document.body.append(frame);
      }),
    [url, key],
  );
  expectEqual(status, 403);
}

async function navigate({ context }, url, key) {
  const tab = await context.newPage();
  const response = await tab.goto(`${url}?key=${key}`);
  await tab.close();
  expectEqual(response.status(), 403);
}

async function sendFromWorker({ page }, url, key) {
  const status = await page.evaluate(
    async ([url, key]) => {
      await navigator.serviceWorker.register('/worker.js');
      const { active } = await navigator.serviceWorker.ready;
      const answered = new Promise((resolve) => {
        navigator.serviceWorker.addEventListener('message', (event) => resolve(event.data), { once: true });
      });
      active.postMessage({ url, key });
      return answered;
    },
    [url, key],
  );
  expectEqual(status, 403);
}

export function expectEqual(actual, expected) {
  if (JSON.stringify(actual) !== JSON.stringify(expected)) {
    throw new Error(`${JSON.stringify(actual)} instead of ${JSON.stringify(expected)}`);
  }
}
