// Tokens of the caller's connections over IPv4 and over IPv6, for a lookup with both addresses.

import { withTimeout } from './timeout.js';

const PAIR_TIMEOUT_MS = 500;

/** Requests tokens. Without them, a lookup returns one address. */
export class PairTokens {
  readonly #metaUrl: URL;
  readonly #fetch: typeof fetch;
  /** The URLs for one address family, after they were read. Empty if the service has none. */
  #urls: string[] | undefined;

  constructor(base: URL, fetcher: typeof fetch) {
    this.#metaUrl = new URL('meta', base);
    this.#fetch = fetcher;
  }

  /** The tokens that arrive in time, as the value of the request header. It never rejects. */
  async request(lookupSignal: AbortSignal, timeoutMs: number): Promise<string> {
    const tokens: string[] = [];
    const collect = async (signal: AbortSignal) => {
      if (!this.#urls) {
        const meta = await this.#getJson(this.#metaUrl, signal);
        this.#urls = [meta.ipv4_url, meta.ipv6_url].filter(Boolean);
      }
      const request = async (url: string, index: number) => {
        tokens[index] = (await this.#getJson(`${url}/api/v1/pair`, signal)).token;
      };
      await Promise.allSettled(this.#urls.map(request));
    };
    await withTimeout(lookupSignal, Math.min(PAIR_TIMEOUT_MS, timeoutMs), collect).catch(() => {});
    return tokens.filter(Boolean).join(',');
  }

  /** The body of a successful response. */
  async #getJson(url: string | URL, signal: AbortSignal) {
    const response = await this.#fetch(url, { credentials: 'omit', signal });
    if (!response.ok) throw response;
    return response.json();
  }
}
