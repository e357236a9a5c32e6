// The client: `lookup`, and `key` for the status of the key.

import { ConnectionError, InsufficientScopeError, TimeoutError, apiErrorOf } from './error.js';
import { type Facts, type LookupScope, MARKER_FIELDS } from './facts.js';
import { PairTokens } from './pair.js';
import { type RateLimit, rateLimitOf } from './rate_limit.js';
import { RetryBudget, retryDelayMs, sleep } from './retry.js';
import type { TestCaller, TestFailure } from './test_key.js';

const DEFAULT_TIMEOUT_MS = 10_000;
const DEFAULT_RETRY_BUDGET = 10;

/** Options of a client. */
export interface ClientOptions<S extends LookupScope> {
  /** Base URL of the service, such as `https://ip.example`. */
  baseUrl: string;
  /** `ip`, `geo` or `full`, no wider than the key's scope; or `demo`. */
  scope: S;
  /** API key. The demo needs none. */
  key?: string;
  /** Timeout of a lookup in milliseconds, including retries and the waits between them. Default: 10,000. */
  timeoutMs?: number;
  /** Maximum number of retries. Ten successful responses add one back. Default: 10; 0 disables retries. */
  retryBudget?: number;
  /** Selects what a test key returns: a made-up caller, or an error. Other keys ignore it. */
  test?: { as?: TestCaller; fail?: TestFailure };
  /**
   * Whether lookups return both addresses of the caller, IPv4 and IPv6, if the service and the caller have both. A lookup
   * waits for at most half a second for this. Default: false. Not for the demo.
   */
  both?: boolean;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

/** Options of a lookup. */
export interface LookupOptions {
  /** Cancels the lookup, which then rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Response to a lookup. */
export interface LookupResponse<S extends LookupScope> {
  /** The fields of the scope. */
  facts: Facts[S];
  /** The daily quota and what is left of it. */
  rateLimit: RateLimit;
  /** Request ID. Include it when you contact support. */
  requestId: string | null;
}

/** Status of a key. */
export interface KeyStatusResponse {
  /** The key's scope. */
  scope: 'ip' | 'geo' | 'full';
  /** The key's state. */
  state: 'active' | 'paused' | 'inactive' | 'expired';
  /** Requests per day, and in any 60 seconds. Absent in browsers. */
  limits?: { day: number; burst: number };
  /** Requests today, and in the last 60 seconds; null while unknown. Absent in browsers. */
  usage?: { day: number | null; burst: number | null };
  /** When the key expires, or null. Absent in browsers. */
  expires_at?: string | null;
  /** Who may use the key; empty lists allow everyone. Absent in browsers. */
  restrictions?: { origins: string[]; networks: string[]; caller_limit: number | null };
}

/** A client for one scope. */
export class Client<S extends LookupScope> {
  readonly #scope: S;
  readonly #url: URL;
  readonly #keyUrl: URL;
  readonly #headers: Headers;
  readonly #timeoutMs: number;
  readonly #budget: RetryBudget;
  readonly #pairTokens: PairTokens | undefined;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions<S> & (S extends 'demo' ? { both?: false } : { key: string })) {
    const isDemo = options.scope === 'demo';
    const path = isDemo ? 'ip/demo' : `ip?scope=${options.scope}`;
    this.#scope = options.scope;
    const base = `${options.baseUrl.replace(/\/+$/, '')}/api/v1/`;
    this.#url = new URL(`${base}${path}`);
    this.#keyUrl = new URL(`${base}key`);
    for (const [name, value] of Object.entries(options.test ?? {})) {
      if (value !== undefined) this.#url.searchParams.set(name, value);
    }
    this.#headers = new Headers(isDemo ? {} : { authorization: `Bearer ${options.key}` });
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#budget = new RetryBudget(options.retryBudget ?? DEFAULT_RETRY_BUDGET);
    // Looked up at each call, because tests and monitoring libraries replace the global one.
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
    if (options.both && !isDemo) this.#pairTokens = new PairTokens(this.#url, this.#fetch);
  }

  /** Looks up the caller. Rejects with an `IpseityError`, or with the reason of an aborted signal. */
  lookup(options: LookupOptions = {}): Promise<LookupResponse<S>> {
    let headers: Headers | undefined;
    return this.#run(options, async (signal) => {
      headers ??= await this.#headersWithTokens(signal);
      const { response, body } = await this.#send(this.#url, headers, signal);
      const { [this.#scope]: markerField } = MARKER_FIELDS;
      if (!(markerField in body)) {
        const message = `The key's scope is narrower than \`${this.#scope}\`. Use a narrower scope or another key.`;
        throw new InsufficientScopeError(message, body);
      }
      return { facts: body, rateLimit: rateLimitOf(response.headers), requestId: response.headers.get('x-request-id') };
    });
  }

  /** Gets the status of the key. It is not charged. Rejects like `lookup`. */
  key(options: LookupOptions = {}): Promise<KeyStatusResponse> {
    return this.#run(options, async (signal) => (await this.#send(this.#keyUrl, this.#headers, signal)).body);
  }

  /** Runs a call with the timeout and the signal. */
  async #run<T>({ signal }: LookupOptions, send: (signal: AbortSignal) => Promise<T>): Promise<T> {
    signal?.throwIfAborted();
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    signal?.addEventListener('abort', abort);
    const expire = () => controller.abort(new TimeoutError(`No response within ${this.#timeoutMs} ms.`));
    const timer = setTimeout(expire, this.#timeoutMs);
    try {
      return await this.#retry(controller.signal, performance.now() + this.#timeoutMs, send);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Sends the request until it succeeds, or until a retry is pointless, too late or over the budget. */
  async #retry<T>(signal: AbortSignal, deadline: number, send: (signal: AbortSignal) => Promise<T>): Promise<T> {
    for (let attempts = 1; ; attempts++) {
      try {
        const response = await send(signal);
        this.#budget.deposit();
        return response;
      } catch (error) {
        const delayMs = retryDelayMs(error, attempts);
        if (delayMs === undefined || performance.now() + delayMs >= deadline || !this.#budget.withdraw()) throw error;
        await sleep(delayMs, signal);
      }
    }
  }

  /** The headers of a lookup, with tokens of both address families if the caller gets them in time. */
  async #headersWithTokens(signal: AbortSignal): Promise<Headers> {
    const tokens = await this.#pairTokens?.request(signal, this.#timeoutMs / 2);
    const headers = new Headers(this.#headers);
    if (tokens) headers.set('ipseity-pair', tokens);
    return headers;
  }

  async #send(url: URL, headers: Headers, signal: AbortSignal) {
    let response: Response, text: string;
    try {
      response = await this.#fetch(url, { headers, signal });
      text = await response.text();
    } catch (cause) {
      // A cancellation or timeout is not a network failure.
      throw signal.aborted ? signal.reason : new ConnectionError('Failed to reach the service.', { cause });
    }
    const body = parseObject(text);
    if (body.status !== 'success') throw apiErrorOf(response, body);
    return { response, body };
  }
}

/** Parses a body; anything but an object becomes an empty one. */
function parseObject(text: string) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
