// The client: one method, `lookup`.

import { ConnectionError, NarrowKeyError, TimeoutError, refusalOf } from './errors.js';
import { type Facts, type Scope, WITNESS } from './facts.js';
import { type Limits, limitsOf } from './limits.js';
import { RetryBudget, sleep, waitMs } from './retry.js';

const TIMEOUT_MS = 10_000;
const RETRY_BUDGET = 10;

/** How a client is made. */
export interface Options<S extends Scope> {
  /** Where the service is, such as `https://ip.example`. */
  baseUrl: string;
  /** What to ask for: `ip`, `geo` or `full`, no wider than the key's own scope, or `demo`. */
  scope: S;
  /** The API key; the demo needs none. */
  key?: string;
  /** Time for a lookup, retries and the waits between them included: 10 seconds unless told. */
  timeoutMs?: number;
  /** Retries that the client may make, refilled by one for every ten answers: 10 unless told, 0 for none at all. */
  retryBudget?: number;
  /** Used in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** How a lookup is made. */
export interface CallOptions {
  /** Ends the lookup early; it then rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** A lookup's answer. */
export interface Answer<S extends Scope> {
  /** What the service knows of you. */
  facts: Facts[S];
  /** What is left of the day's quota. */
  limits: Limits;
  /** The request's id, to be told when you ask for help. */
  requestId: string | null;
}

/** A client for one scope. */
export class Ipseity<S extends Scope> {
  readonly #scope: S;
  readonly #url: URL;
  readonly #headers: Headers;
  readonly #timeoutMs: number;
  readonly #budget: RetryBudget;
  readonly #fetch: typeof fetch | undefined;

  constructor(options: Options<S> & (S extends 'demo' ? unknown : { key: string })) {
    const isDemo = options.scope === 'demo';
    const path = isDemo ? 'ip/demo' : `ip?scope=${options.scope}`;
    this.#scope = options.scope;
    this.#url = new URL(`${options.baseUrl.replace(/\/+$/, '')}/api/v1/${path}`);
    this.#headers = new Headers(isDemo ? {} : { authorization: `Bearer ${options.key}` });
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#budget = new RetryBudget(options.retryBudget ?? RETRY_BUDGET);
    this.#fetch = options.fetch;
  }

  /** Asks who you are. Rejects with an `IpseityError`, or with the reason of a signal that was aborted. */
  async lookup({ signal }: CallOptions = {}): Promise<Answer<S>> {
    signal?.throwIfAborted();
    const end = new AbortController();
    const abort = () => end.abort(signal?.reason);
    signal?.addEventListener('abort', abort);
    const late = () => end.abort(new TimeoutError(`No answer came within ${this.#timeoutMs} ms.`));
    const timer = setTimeout(late, this.#timeoutMs);
    try {
      return await this.#persist(end.signal, performance.now() + this.#timeoutMs);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Asks until an answer comes, or another try is in vain, too late or beyond the budget. */
  async #persist(signal: AbortSignal, deadline: number): Promise<Answer<S>> {
    for (let tries = 1; ; tries++) {
      try {
        const answer = await this.#ask(signal);
        this.#budget.earn();
        return answer;
      } catch (error) {
        const wait = waitMs(error, tries);
        if (wait === undefined || performance.now() + wait >= deadline || !this.#budget.spend()) throw error;
        await sleep(wait, signal);
      }
    }
  }

  /** Asks once. */
  async #ask(signal: AbortSignal): Promise<Answer<S>> {
    let response: Response, text: string;
    try {
      response = await (this.#fetch ?? fetch)(this.#url, { headers: this.#headers, signal });
      text = await response.text();
    } catch (cause) {
      // What the caller or the clock has ended is no failure of the network.
      throw signal.aborted ? signal.reason : new ConnectionError('The service cannot be reached.', { cause });
    }
    const body = parse(text);
    if (body.status !== 'success') throw refusalOf(response, body);
    const { [this.#scope]: witness } = WITNESS;
    if (!(witness in body)) {
      const message = `The key's scope is narrower than \`${this.#scope}\`; ask for less, or use another key.`;
      throw new NarrowKeyError(message, body);
    }
    return { facts: body, limits: limitsOf(response.headers), requestId: response.headers.get('x-request-id') };
  }
}

/** The object that a body holds; an empty one when it is something else. */
function parse(text: string) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
