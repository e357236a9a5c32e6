// The client, with one method: `lookup`.

import { ConnectionError, InsufficientScopeError, TimeoutError, apiErrorOf } from './error.js';
import { type Facts, type LookupScope, MARKER_FIELDS } from './facts.js';
import { type RateLimit, rateLimitOf } from './rate_limit.js';
import { RetryBudget, retryDelayMs, sleep } from './retry.js';

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

/** A client for one scope. */
export class Client<S extends LookupScope> {
  readonly #scope: S;
  readonly #url: URL;
  readonly #headers: Headers;
  readonly #timeoutMs: number;
  readonly #budget: RetryBudget;
  readonly #fetch: typeof fetch | undefined;

  constructor(options: ClientOptions<S> & (S extends 'demo' ? unknown : { key: string })) {
    const isDemo = options.scope === 'demo';
    const path = isDemo ? 'ip/demo' : `ip?scope=${options.scope}`;
    this.#scope = options.scope;
    this.#url = new URL(`${options.baseUrl.replace(/\/+$/, '')}/api/v1/${path}`);
    this.#headers = new Headers(isDemo ? {} : { authorization: `Bearer ${options.key}` });
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#budget = new RetryBudget(options.retryBudget ?? DEFAULT_RETRY_BUDGET);
    this.#fetch = options.fetch;
  }

  /** Looks up the caller. Rejects with an `IpseityError`, or with the reason of an aborted signal. */
  async lookup({ signal }: LookupOptions = {}): Promise<LookupResponse<S>> {
    signal?.throwIfAborted();
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    signal?.addEventListener('abort', abort);
    const expire = () => controller.abort(new TimeoutError(`No response within ${this.#timeoutMs} ms.`));
    const timer = setTimeout(expire, this.#timeoutMs);
    try {
      return await this.#lookupWithRetries(controller.signal, performance.now() + this.#timeoutMs);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Sends the request until it succeeds, or until a retry is pointless, too late or over the budget. */
  async #lookupWithRetries(signal: AbortSignal, deadline: number): Promise<LookupResponse<S>> {
    for (let attempts = 1; ; attempts++) {
      try {
        const response = await this.#sendOnce(signal);
        this.#budget.deposit();
        return response;
      } catch (error) {
        const delayMs = retryDelayMs(error, attempts);
        if (delayMs === undefined || performance.now() + delayMs >= deadline || !this.#budget.withdraw()) throw error;
        await sleep(delayMs, signal);
      }
    }
  }

  async #sendOnce(signal: AbortSignal): Promise<LookupResponse<S>> {
    let response: Response, text: string;
    try {
      response = await (this.#fetch ?? fetch)(this.#url, { headers: this.#headers, signal });
      text = await response.text();
    } catch (cause) {
      // A cancellation or timeout is not a network failure.
      throw signal.aborted ? signal.reason : new ConnectionError('Failed to reach the service.', { cause });
    }
    const body = parseObject(text);
    if (body.status !== 'success') throw apiErrorOf(response, body);
    const { [this.#scope]: markerField } = MARKER_FIELDS;
    if (!(markerField in body)) {
      const message = `The key's scope is narrower than \`${this.#scope}\`. Use a narrower scope or another key.`;
      throw new InsufficientScopeError(message, body);
    }
    return { facts: body, rateLimit: rateLimitOf(response.headers), requestId: response.headers.get('x-request-id') };
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
