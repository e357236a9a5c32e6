// Tickets: created on a server, used in a page.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, InvalidTicketError, TimeoutError } from '../dist/index.js';

const BODY = { status: 'success', ip: '203.0.113.7', ipv6: null };
const REJECTION = { error: 'invalid_api_key', message: 'This ticket has expired.', docs: 'https://ip.example/docs/errors#tickets' };
const json = (body, status = 200) => new Response(JSON.stringify(body), { status });
const never = () => new Promise(() => {});
const rejection = (promise) => promise.then(assert.fail, (error) => error);

// A client whose source returns the tickets 1, 2, 3, … Records the tickets and the URLs of all requests.
function service({ source, respond = () => json(BODY), ...options } = {}) {
  const sent = [];
  let created = 0;
  const next = (details) => ({ ticket: String(++created), uses: 5, expires_in_s: 300, ...details });
  const fetch = async (url, init) => {
    const ticket = init.headers?.get('authorization')?.replace('Bearer ', '') ?? null;
    sent.push({ url: String(url), ticket, pair: init.headers?.get('ipseity-pair') ?? null });
    return respond(String(url), ticket);
  };
  const ticket = async (signal) => (source ? source(next, signal) : next());
  const client = new Client({ baseUrl: 'https://ip.example', scope: 'ip', ticket, fetch, ...options });
  return { client, sent, tickets: () => sent.map(({ ticket }) => ticket), created: () => created };
}

const lookups = (client, count) => Promise.all(Array.from({ length: count }, () => client.lookup()));

export function tickets(context) {
  const issue = async (scope) => {
    const { key, id } = await context.deployment.issueKey(scope);
    return { id, client: new Client({ baseUrl: context.deployment.http, key, scope, retryBudget: 0 }) };
  };

  test('lookups share a ticket until it is used up', async () => {
    const { client, tickets } = service();
    for (let count = 0; count < 7; count++) await client.lookup();
    assert.deepEqual(tickets(), ['1', '1', '1', '1', '1', '2', '2']);
  });

  test('concurrent lookups wait for one ticket', async () => {
    const slow = async (next) => (await new Promise((resolve) => setTimeout(resolve, 20)), next());
    const { client, tickets } = service({ source: slow });
    await lookups(client, 12);
    assert.deepEqual(tickets().sort(), [...'111112222233']);
  });

  test('a ticket that is about to expire, or has no numbers, is used once', async () => {
    for (const details of [{ expires_in_s: 5 }, { uses: undefined }, { uses: 0 }]) {
      const { client, tickets } = service({ source: (next) => next(details) });
      for (let count = 0; count < 3; count++) await client.lookup();
      assert.deepEqual(tickets(), ['1', '2', '3'], JSON.stringify(details));
    }
  });

  test('a rejected ticket is replaced once, and the lookup repeated', async () => {
    const { client, tickets } = service({ respond: (_url, ticket) => (ticket === '1' ? json(REJECTION, 401) : json(BODY)) });
    assert.equal((await client.lookup()).facts.ip, BODY.ip);
    assert.deepEqual(tickets(), ['1', '2']);
  });

  test('concurrent lookups replace a rejected ticket together', async () => {
    const { client, created, tickets } = service({ respond: (_url, ticket) => (ticket === '1' ? json(REJECTION, 401) : json(BODY)) });
    await lookups(client, 4);
    assert.deepEqual(tickets(), [...'11112222']);
    assert.equal(created(), 2);
  });

  test('a lookup does not replace a second rejected ticket, also between retries', async () => {
    const { client, tickets } = service({ respond: () => json(REJECTION, 401) });
    assert.ok((await rejection(client.lookup())) instanceof InvalidTicketError);
    assert.deepEqual(tickets(), ['1', '2']);
    const statuses = [401, 500, 401];
    const failing = service({ respond: () => json(REJECTION, statuses.shift()) });
    assert.ok((await rejection(failing.client.lookup())) instanceof InvalidTicketError);
    assert.deepEqual(failing.tickets(), ['1', '2', '2']);
  });

  test('a key is never replaced', async () => {
    const { client, tickets } = service({ respond: () => json(REJECTION, 401), ticket: undefined, key: 'ips_' });
    assert.ok((await rejection(client.lookup())) instanceof InvalidTicketError);
    assert.deepEqual(tickets(), ['ips_']);
  });

  test('a failed source is the reason of all waiting lookups, and is asked again by the next one', async () => {
    const reason = new Error('no session');
    let calls = 0;
    const { client, tickets } = service({ source: (next) => (++calls === 1 ? Promise.reject(reason) : next()) });
    assert.deepEqual(await Promise.all([1, 2].map(() => rejection(client.lookup()))), [reason, reason]);
    await client.lookup();
    assert.deepEqual([calls, tickets()], [2, ['1']]);
  });

  test('a source that never ends times out, and does not block later lookups', async () => {
    const signals = [];
    const source = (next, signal) => (signals.push(signal) === 1 ? never() : next());
    const { client, tickets } = service({ source, timeoutMs: 100 });
    assert.ok((await rejection(client.lookup())) instanceof TimeoutError);
    assert.ok(signals[0].aborted);
    await client.lookup();
    assert.deepEqual([signals.length, tickets()], [2, ['1']]);
  });

  test('an aborted lookup sends nothing, and other lookups still get the ticket', async () => {
    const controller = new AbortController();
    const slow = async (next) => (await new Promise((resolve) => setTimeout(resolve, 50)), next());
    const { client, tickets, created } = service({ source: slow });
    const aborted = rejection(client.lookup({ signal: controller.signal }));
    const other = client.lookup();
    controller.abort(new Error('enough'));
    assert.match(String(await aborted), /enough/);
    await other;
    assert.deepEqual([tickets(), created()], [['1'], 1]);
  });

  test('a ticket works for both addresses, and goes only to the base URL', async () => {
    const respond = (url) => {
      if (url.endsWith('/meta')) return json({ ipv4_url: 'https://v4.example', ipv6_url: 'https://v6.example' });
      return url.endsWith('/pair') ? json({ token: new URL(url).host }) : json(BODY);
    };
    const { client, sent } = service({ respond, both: true });
    await client.lookup();
    const [{ pair, ticket }, ...others] = sent.reverse();
    assert.deepEqual([pair, ticket], ['v4.example,v6.example', '1']);
    assert.deepEqual(others.map(({ ticket }) => ticket), [null, null, null]);
  });

  test('a server creates a ticket without a charge, with its options', async () => {
    const { client } = await issue('geo');
    const { ticket, expires_at, ...rest } = await client.createTicket();
    assert.deepEqual(rest, { status: 'success', scope: 'geo', origin: null, uses: 5, expires_in_s: 300 });
    assert.match(ticket, /^ipt_/);
    const lifetimeMs = Date.parse(expires_at) - Date.now();
    assert.ok(Math.abs(lifetimeMs - 300_000) < 10_000, expires_at);
    const options = { origin: 'https://shop.example', scope: 'ip', lifetimeS: 30, uses: 1 };
    const { scope, origin, uses, expires_in_s } = await client.createTicket(options);
    assert.deepEqual([scope, origin, uses, expires_in_s], ['ip', 'https://shop.example', 1, 30]);
    assert.equal((await client.lookup()).rateLimit.remaining, 9999);
  });

  test('a page looks up its visitor with tickets, which are charged to the key', async () => {
    const { client: server } = await issue('geo');
    let created = 0;
    const ticket = () => (created++, server.createTicket({ uses: 2 }));
    const page = new Client({ baseUrl: context.deployment.http, scope: 'geo', ticket });
    for (const remaining of [9999, 9998, 9997]) {
      const { facts, rateLimit } = await page.lookup();
      assert.deepEqual([facts.ip, rateLimit.remaining], ['127.0.0.1', remaining]);
    }
    assert.equal(created, 2);
    const { status, scope, state, ...others } = await page.key();
    assert.deepEqual([status, scope, state, others], ['success', 'geo', 'active', {}]);
  });

  test('the service rejects a ticket that is used up, and the page gets a new one', async () => {
    const { client: server } = await issue('ip');
    const used = await server.createTicket({ uses: 1 });
    const responses = [{ ...used, uses: 9 }, await server.createTicket()];
    const page = new Client({ baseUrl: context.deployment.http, scope: 'ip', ticket: async () => responses.shift() });
    for (const remaining of [9999, 9998]) assert.equal((await page.lookup()).rateLimit.remaining, remaining);
    assert.deepEqual(responses, []);
  });

  test('errors of tickets have their classes', async () => {
    const { client: server, id } = await issue('ip');
    const page = (ticket) => new Client({ baseUrl: context.deployment.http, scope: 'ip', ticket: async () => ticket });
    const names = async (...promises) => Promise.all(promises.map(async (promise) => (await rejection(promise)).name));
    const forged = { ticket: 'ipt_forged', uses: 1, expires_in_s: 300 };
    const foreign = await server.createTicket({ origin: 'https://shop.example' });
    assert.deepEqual(await names(server.createTicket({ uses: 101 }), page(forged).lookup(), page(foreign).lookup()), [
      'BadRequestError',
      'InvalidTicketError',
      'OriginNotAllowedError',
    ]);
    await context.deployment.cli('key', 'restrict', id, '--tickets-only');
    assert.deepEqual(await names(server.lookup()), ['TicketRequiredError']);
    await page(await server.createTicket()).lookup();
    await context.deployment.cli('key', 'restrict', id, '--origin', 'https://shop.example');
    const error = await rejection(server.createTicket());
    assert.deepEqual([error.name, error.status], ['OriginNotAllowedError', 403]);
    assert.ok(error.docs.endsWith('#ticket-creation'), error.docs);
  });

  test('a key that creates too many tickets is limited', async () => {
    const { client } = await issue('ip');
    let error;
    for (let count = 0; !error && count < 10_000; count++) await client.createTicket().catch((reason) => (error = reason));
    assert.deepEqual([error.name, error.status, error.rateLimit.remaining], ['TicketLimitError', 429, 0]);
    assert.ok(error.retryAfterS > 0 && error.retryAfterS <= 65, String(error.retryAfterS));
  });
}
