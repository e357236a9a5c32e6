// A page on another origin that calls the API, and an account of what it was answered.

import http from 'node:http';
import { once } from 'node:events';

// What refused a call, by the section of the documentation that the answer points at.
const REASONS = {
  'burst-limit': 'burst',
  'paused-keys': 'paused',
  'inactive-keys': 'inactive',
  'daily-quota': 'day',
  invalid_api_key: 'wrong_secret',
};

export const LIMIT_HEADERS = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'ratelimit', 'ratelimit-policy'];

export class Elsewhere {
  // For each key's id: outcome → number of calls.
  tally = new Map();

  static async open(browser, house) {
    const elsewhere = new Elsewhere();
    elsewhere.address = `${house.portal}/api/v1/ip`;
    elsewhere.server = http.createServer((_, answer) => {
      answer.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Elsewhere</title><link rel="icon" href="data:,">');
    });
    elsewhere.server.listen(0, '127.0.0.1');
    await once(elsewhere.server, 'listening');
    elsewhere.page = await (await browser.context()).newPage();
    await elsewhere.page.goto(`http://127.0.0.1:${elsewhere.server.address().port}/`);
    return elsewhere;
  }

  // One call with a key: status, the limits' headers as script may read them, body, and when the answer was there.
  async call(key) {
    const answer = await this.page.evaluate(fetched, [this.address, key, LIMIT_HEADERS]);
    const outcome = answer.status === 200 ? 'admitted' : REASONS[answer.body.docs?.split('#')[1]] ?? 'other';
    const id = idOf(key);
    const outcomes = this.tally.get(id) ?? {};
    this.tally.set(id, { ...outcomes, [outcome]: (outcomes[outcome] ?? 0) + 1 });
    return { ...answer, outcome };
  }

  // Calls one after the other with the given keys, and compares the statuses.
  async expect(...wanted) {
    for (const [key, status] of wanted) {
      const answer = await this.call(key);
      if (answer.status !== status) throw new Error(`${answer.status} instead of ${status}: ${JSON.stringify(answer.body)}`);
    }
  }

  // Many calls at once, in portions; all answers.
  async calls(key, count, atOnce = 10) {
    const answers = [];
    while (answers.length < count) {
      const portion = Math.min(atOnce, count - answers.length);
      answers.push(...(await Promise.all(Array.from({ length: portion }, () => this.call(key)))));
    }
    return answers;
  }

  end() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

// The public part of a key.
export function idOf(key) {
  return key.slice(4, 14);
}

async function fetched([address, key, names]) {
  const answer = await fetch(address, { headers: { authorization: `Bearer ${key}` } });
  const atMs = Date.now();
  const limits = Object.fromEntries(names.map((name) => [name, answer.headers.get(name)]));
  return { status: answer.status, atMs, limits, body: await answer.json() };
}
