// A page on another origin that calls the API. It counts the outcomes per key.

import http from 'node:http';
import { once } from 'node:events';

// The rejection reason, by the documentation anchor in the response.
const REASONS = {
  'burst-limit': 'burst',
  'paused-keys': 'paused',
  'inactive-keys': 'inactive',
  'daily-quota': 'day',
  invalid_api_key: 'wrong_secret',
  origin_not_allowed: 'restricted',
};

export const LIMIT_HEADERS = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'ratelimit', 'ratelimit-policy'];

export class CrossOriginClient {
  // For each key ID: outcome → number of requests.
  counts = new Map();

  static async open(browser, deployment) {
    const client = new CrossOriginClient();
    client.url = `${deployment.portal}/api/v1/ip`;
    client.server = http.createServer((_, response) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Another origin</title><link rel="icon" href="data:,">');
    });
    client.server.listen(0, '127.0.0.1');
    await once(client.server, 'listening');
    client.page = await (await browser.context()).newPage();
    client.origin = `http://127.0.0.1:${client.server.address().port}`;
    await client.page.goto(`${client.origin}/`);
    return client;
  }

  // Sends one request. Returns the status, the limit headers that scripts may read, the body, and the time of the response.
  async request(key) {
    const response = await this.page.evaluate(fetchInPage, [this.url, key, LIMIT_HEADERS]);
    const outcome = response.status === 200 ? 'admitted' : REASONS[response.body.docs?.split('#')[1]] ?? 'other';
    const id = keyId(key);
    const outcomes = this.counts.get(id) ?? {};
    this.counts.set(id, { ...outcomes, [outcome]: (outcomes[outcome] ?? 0) + 1 });
    return { ...response, outcome };
  }

  // Sends one request per [key, status] pair, in order, and compares the status.
  async expect(...pairs) {
    for (const [key, status] of pairs) {
      const response = await this.request(key);
      if (response.status !== status) throw new Error(`${response.status} instead of ${status}: ${JSON.stringify(response.body)}`);
    }
  }

  // Sends many requests, some of them concurrently. Returns all responses.
  async requests(key, count, concurrency = 10) {
    const responses = [];
    while (responses.length < count) {
      const batch = Math.min(concurrency, count - responses.length);
      responses.push(...(await Promise.all(Array.from({ length: batch }, () => this.request(key)))));
    }
    return responses;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

// The ID, which is the public part of a key.
export function keyId(key) {
  return key.slice(4, 14);
}

async function fetchInPage([url, key, names]) {
  const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } });
  const atMs = Date.now();
  const limits = Object.fromEntries(names.map((name) => [name, response.headers.get(name)]));
  return { status: response.status, atMs, limits, body: await response.json() };
}
