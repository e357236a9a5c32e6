// The client: `lookup`, `key` for the status of the key, and `createTicket`.

import { ConnectionError, InsufficientScopeError, InvalidTicketError } from './error.js';
import { apiErrorOf } from './error_mapping.js';
import { type Facts, type LookupScope, MARKER_FIELDS } from './facts.js';
import { PairTokens } from './pair.js';
import { type RateLimit, rateLimitOf } from './rate_limit.js';
import { RetryBudget, retryDelayMs, sleep } from './retry.js';
import type { TestCaller, TestFailure } from './test_key.js';
import { TicketCache, type TicketOptions, type TicketResponse, type TicketSource } from './ticket.js';
import { withTimeout } from './timeout.js';

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
  /** In place of a key, for web pages: gets a ticket from your server. Lookups share it until it expires or is used up. */
  ticket?: TicketSource;
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
  /** What the next request can expect, in the words of the portal. Absent in browsers, and in earlier versions. */
  key_status?:
    | 'active'
    | 'near_daily_limit'
    | 'near_burst_limit'
    | 'daily_limit_reached'
    | 'expired'
    | 'paused'
    | 'deactivated';
  /** Requests per day, and in any 60 seconds. Absent in browsers. */
  limits?: { day: number; burst: number };
  /** Requests today, and in the last 60 seconds; null while unknown. Absent in browsers. */
  usage?: { day: number | null; burst: number | null };
  /** When the key expires, or null. Absent in browsers. */
  expires_at?: string | null;
  /** Who may use the key; empty lists allow everyone. Absent in browsers. */
  restrictions?: { origins: string[]; networks: string[]; caller_limit: number | null; tickets_only: boolean };
}

/** Options of a request. */
interface Init extends RequestInit {
  headers: Headers;
  signal: AbortSignal;
}

/** A client for one scope. */
export class Client<S extends LookupScope> {
  readonly #scope: S;
  readonly #base: URL;
  readonly #url: URL;
  readonly #headers: Headers;
  readonly #timeoutMs: number;
  readonly #budget: RetryBudget;
  readonly #tickets: TicketCache | undefined;
  readonly #pairTokens: PairTokens | undefined;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions<S> & (S extends 'demo' ? { both?: false } : { key: string } | { ticket: TicketSource })) {
    const isDemo = options.scope === 'demo';
    this.#scope = options.scope;
    this.#base = new URL(`${options.baseUrl.replace(/\/+$/, '')}/api/v1/`);
    this.#url = new URL(isDemo ? 'ip/demo' : `ip?scope=${options.scope}`, this.#base);
    for (const [name, value] of Object.entries(options.test ?? {})) {
      if (value) this.#url.searchParams.set(name, value);
    }
    this.#headers = new Headers(isDemo || options.ticket ? {} : { authorization: `Bearer ${options.key}` });
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    if (options.ticket) this.#tickets = new TicketCache(options.ticket, this.#timeoutMs / 2);
    this.#budget = new RetryBudget(options.retryBudget ?? DEFAULT_RETRY_BUDGET);
    // Looked up at each call, because tests and monitoring libraries replace the global one.
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
    if (options.both && !isDemo) this.#pairTokens = new PairTokens(this.#base, this.#fetch);
  }

  /** Looks up the caller. Rejects with an `IpseityError`, or with the reason of an aborted signal or of `ticket`. */
  lookup({ signal }: LookupOptions = {}): Promise<LookupResponse<S>> {
    let tokens: string | undefined;
    return this.#run(signal, async (init) => {
      tokens ??= await this.#pairTokens?.request(init.signal, this.#timeoutMs / 2);
      if (tokens) init.headers.set('ipseity-pair', tokens);
      const { response, body } = await this.#send(this.#url, init);
      if (!(MARKER_FIELDS[this.#scope] in body)) {
        const message = `The key's scope is narrower than \`${this.#scope}\`. Use a narrower scope or another key.`;
        throw new InsufficientScopeError(message, body);
      }
      return { facts: body, rateLimit: rateLimitOf(response.headers), requestId: response.headers.get('x-request-id') };
    });
  }

  /** Gets the status of the key. It is not charged. Rejects like `lookup`. */
  key({ signal }: LookupOptions = {}): Promise<KeyStatusResponse> {
    return this.#run(signal, async (init) => (await this.#send('key', init)).body);
  }

  /**
   * Creates a ticket for a page of your web site. Not in browsers, and only with a key. It is not charged. Rejects like
   * `lookup`.
   */
  createTicket({ signal, lifetimeS, ...options }: TicketOptions & LookupOptions = {}): Promise<TicketResponse> {
    const json = JSON.stringify({ ...options, scope: options.scope ?? this.#scope, lifetime_s: lifetimeS });
    const body = new Blob([json], { type: 'application/json' });
    return this.#run(signal, async (init) => (await this.#send('tickets', { ...init, method: 'POST', body })).body);
  }

  /** Sends a request until it succeeds, or until a retry is pointless, too late or over the budget. */
  #run<T>(outerSignal: AbortSignal | undefined, send: (init: Init) => Promise<T>): Promise<T> {
    const deadline = performance.now() + this.#timeoutMs;
    let replaceable = this.#tickets;
    return withTimeout(outerSignal, this.#timeoutMs, async (signal) => {
      for (let attempts = 1; ; attempts++) {
        const ticket = await this.#tickets?.take();
        const headers = new Headers(this.#headers);
        if (ticket) headers.set('authorization', `Bearer ${ticket}`);
        try {
          const response = await send({ headers, signal });
          this.#budget.deposit();
          return response;
        } catch (error) {
          // The ticket may have expired on the way. If a new one is rejected too, a third would not help.
          if (replaceable && error instanceof InvalidTicketError) {
            replaceable.discard(ticket);
            replaceable = undefined;
            continue;
          }
          const delayMs = retryDelayMs(error, attempts);
          if (performance.now() + delayMs >= deadline || !this.#budget.withdraw()) throw error;
          await sleep(delayMs, signal);
        }
      }
    });
  }

  async #send(path: string | URL, init: Init) {
    let response: Response, text: string;
    try {
      init.signal.throwIfAborted();
      response = await this.#fetch(new URL(path, this.#base), init);
      text = await response.text();
    } catch (cause) {
      // A cancellation or timeout is not a network failure.
      init.signal.throwIfAborted();
      throw new ConnectionError('Failed to reach the service.', { cause });
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
