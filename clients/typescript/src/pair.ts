// Tokens of the caller's connections over IPv4 and over IPv6, for a lookup with both addresses.

const PAIR_TIMEOUT_MS = 500;

/** Requests tokens. Without them, a lookup returns one address. */
export class PairTokens {
  readonly #metaUrl: URL;
  readonly #fetch: typeof fetch;
  /** The URLs for one address family, after they were read. Empty if the service has none. */
  #urls: string[] | undefined;

  constructor(lookupUrl: URL, fetcher: typeof fetch) {
    this.#metaUrl = new URL('meta', lookupUrl);
    this.#fetch = fetcher;
  }

  /** The tokens that arrive in time, as the value of the request header. Rejects only if the signal is aborted. */
  async request(lookupSignal: AbortSignal, timeoutMs: number): Promise<string> {
    const controller = new AbortController();
    const { signal } = controller;
    const stop = () => controller.abort();
    const timer = setTimeout(stop, Math.min(PAIR_TIMEOUT_MS, timeoutMs));
    lookupSignal.addEventListener('abort', stop);
    const stopped = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)));
    // A `fetch` that ignores its signal must not delay the lookup.
    const getJson = (url: string | URL) => Promise.race([this.#getJson(url, signal), stopped]);
    try {
      if (!this.#urls) {
        const meta = await getJson(this.#metaUrl);
        if (meta) this.#urls = [meta.ipv4_url, meta.ipv6_url].filter(Boolean);
      }
      const bodies = await Promise.all((this.#urls ?? []).map((url) => getJson(`${url}/api/v1/pair`)));
      lookupSignal.throwIfAborted();
      return bodies.flatMap((body) => body?.token ?? []).join(',');
    } finally {
      clearTimeout(timer);
      lookupSignal.removeEventListener('abort', stop);
    }
  }

  /** The body of a successful response, or undefined. */
  async #getJson(url: string | URL, signal: AbortSignal) {
    try {
      const response = await this.#fetch(url, { credentials: 'omit', signal });
      return response.ok ? await response.json() : undefined;
    } catch {
      return undefined;
    }
  }
}
