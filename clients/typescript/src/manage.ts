// The management API, for servers of an account's owner: keys, usage and channels of alerts. A separate entry, so that pages do not load it.

import { ConnectionError, IpseityError } from './error.js';
import { withTimeout } from './timeout.js';

/** Options of a client of the management API. */
export interface ManagementOptions {
  /** Base URL of the service, such as `https://ip.example`. */
  baseUrl: string;
  /** Personal token, which its owner creates on the account page. */
  token: string;
  /** Timeout of a request in milliseconds. Default: 10,000. */
  timeoutMs?: number;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

/** Restrictions of a key. What is missing or null does not restrict. */
export interface Restrictions {
  origins?: string[];
  networks?: string[];
  expires_at?: string | null;
  caller_limit?: number | null;
  daily_limit?: number | null;
  tickets_only?: boolean;
}

/** A key. */
export interface ManagedKey {
  id: string;
  name: string;
  scope: 'ip' | 'geo' | 'full';
  state: 'active' | 'paused' | 'inactive';
  /** What the next request can expect, in the words of the portal. */
  key_status: string;
  limits: { day: number; burst: number };
  used_today: number;
  last_used_on: string | null;
  created_at: string;
  previous_secret_until: string | null;
  restrictions: Required<Restrictions>;
  pause: Evidence | null;
}

/** A key after a change. */
export interface ChangedKey {
  key: ManagedKey;
  /** Whether requests see the change already. False while the service's Redis is unavailable: they see it as soon as it is back. */
  applied: boolean;
}

/** What a key did in the 60 seconds before a pause. */
export interface Evidence {
  paused_at: string;
  requests: number;
  requests_per_second: number[];
}

/** A pause of a key. */
export interface Pause extends Evidence {
  epoch: number;
  is_current: boolean;
  resumed_at: string | null;
  resumed_by: 'owner' | 'operator' | null;
}

/** Requests of a key on a day. */
export interface UsageDay {
  day: string;
  key: string;
  admitted: number;
  rejected: Record<string, number>;
}

/** A webhook or a Slack channel. */
export interface AlertChannel {
  id: number;
  kind: 'webhook' | 'slack';
  url: string;
  alerts: string[];
  pending: number;
  failing_since: string | null;
  /** Since when it is off, because its receiver answered that it is gone. A new URL turns it on. */
  off_since: string | null;
  previous_secret_until: string | null;
}

/** The management API returned an error. */
export class ManagementError extends IpseityError {
  override readonly name = 'ManagementError';
  constructor(
    message: string,
    /** HTTP status. */
    readonly status: number,
    /** Error code, such as `insufficient_scope`. Empty if the response is not from the service. */
    readonly code: string,
    /** URL of the error's documentation. */
    readonly docs: string,
    /** Seconds to wait, from `Retry-After`. */
    readonly retryAfterS: number | null,
  ) {
    super(message);
  }
}

/** A client of the management API. It never repeats a request, because most of them change something. */
export class ManagementClient {
  readonly #base: string;
  readonly #token: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(options: ManagementOptions) {
    this.#base = `${options.baseUrl.replace(/\/+$/, '')}/api/v1/manage/`;
    this.#token = options.token;
    this.#timeoutMs = options.timeoutMs ?? 10_000;
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
  }

  async listKeys(): Promise<ManagedKey[]> {
    return (await this.#send('GET', 'keys')).keys;
  }

  async getKey(id: string): Promise<ManagedKey> {
    return (await this.#send('GET', `keys/${encodeURIComponent(id)}`)).key;
  }

  /** The secret is returned once. */
  createKey(key: { name: string; scope: ManagedKey['scope']; restrictions?: Restrictions }): Promise<ChangedKey & { secret: string }> {
    return this.#send('POST', 'keys', key);
  }

  /** Restrictions replace all restrictions of the key. */
  updateKey(id: string, update: { name?: string; restrictions?: Restrictions; is_active?: boolean }): Promise<ChangedKey> {
    return this.#send('PATCH', `keys/${encodeURIComponent(id)}`, update);
  }

  /** The previous secret stays valid for this many seconds, at most a week. */
  rotateKey(id: string, overlapS: number): Promise<ChangedKey & { secret: string }> {
    return this.#send('POST', `keys/${encodeURIComponent(id)}/rotate`, { overlap_s: overlapS });
  }

  revokePreviousSecret(id: string): Promise<ChangedKey> {
    return this.#send('POST', `keys/${encodeURIComponent(id)}/revoke-previous`);
  }

  /** Only if the owner of the account lets tokens do it. */
  resumeKey(id: string): Promise<ChangedKey> {
    return this.#send('POST', `keys/${encodeURIComponent(id)}/resume`);
  }

  deleteKey(id: string): Promise<{ applied: boolean }> {
    return this.#send('DELETE', `keys/${encodeURIComponent(id)}`);
  }

  async listPauses(id: string): Promise<Pause[]> {
    return (await this.#send('GET', `keys/${encodeURIComponent(id)}/pauses`)).pauses;
  }

  /** The last 30 days of all keys, or of the one with this id: each key and day with requests. */
  async usage(key?: string): Promise<UsageDay[]> {
    return (await this.#send('GET', key === undefined ? 'usage' : `usage?key=${encodeURIComponent(key)}`)).days;
  }

  async listChannels(): Promise<AlertChannel[]> {
    return (await this.#send('GET', 'channels')).channels;
  }

  async getChannel(id: number): Promise<AlertChannel> {
    return (await this.#send('GET', `channels/${id}`)).channel;
  }

  /** The signing secret of a webhook is returned once. */
  createChannel(channel: Pick<AlertChannel, 'kind' | 'url' | 'alerts'>): Promise<{ channel: AlertChannel; secret?: string }> {
    return this.#send('POST', 'channels', channel);
  }

  async updateChannel(id: number, update: { url?: string; alerts?: string[] }): Promise<AlertChannel> {
    return (await this.#send('PATCH', `channels/${id}`, update)).channel;
  }

  rotateChannelSecret(id: number): Promise<{ channel: AlertChannel; secret: string }> {
    return this.#send('POST', `channels/${id}/rotate-secret`);
  }

  async testChannel(id: number): Promise<void> {
    await this.#send('POST', `channels/${id}/test`);
  }

  async deleteChannel(id: number): Promise<void> {
    await this.#send('DELETE', `channels/${id}`);
  }

  // The caller knows the type of the body.
  #send(method: string, path: string, json?: object): Promise<any> {
    return withTimeout(undefined, this.#timeoutMs, async (signal) => {
      const headers = { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json' };
      const init = { method, headers, signal, ...(json && { body: JSON.stringify(json) }) };
      let response: Response, text: string;
      try {
        response = await this.#fetch(this.#base + path, init);
        text = await response.text();
      } catch (cause) {
        signal.throwIfAborted();
        throw new ConnectionError('Failed to reach the service.', { cause });
      }
      let body: any = {};
      try {
        body = Object(JSON.parse(text));
      } catch {
        // Not from the service.
      }
      if (body.status === 'success') return body;
      const message = body.message ?? `Unexpected response with status ${response.status}. Check the base URL.`;
      const retryAfter = response.headers.get('retry-after');
      throw new ManagementError(message, response.status, body.error ?? '', body.docs ?? '', retryAfter === null ? null : Number(retryAfter));
    });
  }
}
