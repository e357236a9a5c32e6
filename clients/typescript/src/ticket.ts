// Tickets: short-lived replacements for a key, which a server creates for the pages that it serves.

import { withTimeout } from './timeout.js';

/** A ticket this close to its expiry is not sent any more. */
const EXPIRY_MARGIN_MS = 5_000;

/** Options of a new ticket. */
export interface TicketOptions {
  /** Origin of the pages that can use the ticket, such as `https://shop.example`. Default: every client can use it. */
  origin?: string;
  /** `ip`, `geo` or `full`, no wider than the key's scope. Default: the scope of the client. */
  scope?: 'ip' | 'geo' | 'full';
  /** Lifetime in seconds, from 30 to 900. Default: 300. */
  lifetimeS?: number;
  /** Number of lookups, from 1 to 100. Each node of the service counts by itself. Default: 5. */
  uses?: number;
}

/** A ticket. Your server sends it to the page as it is. */
export interface TicketResponse {
  /** Sent in place of a key. */
  ticket: string;
  /** Scope of the ticket. */
  scope: 'ip' | 'geo' | 'full';
  /** Origin of the pages that can use the ticket, or null for every client. */
  origin: string | null;
  /** Number of lookups. */
  uses: number;
  /** Seconds until the ticket expires. */
  expires_in_s: number;
  /** When the ticket expires. */
  expires_at: string;
}

/** Gets a ticket from your server. The signal is aborted when the client stops waiting for it. */
export type TicketSource = (signal: AbortSignal) => Promise<Pick<TicketResponse, 'ticket' | 'uses' | 'expires_in_s'>>;

/** The current ticket, which all lookups of a client share. */
export class TicketCache {
  readonly #request: () => ReturnType<TicketSource>;
  #ticket = '';
  #usesLeft = 0;
  #deadline = 0;
  #pending: Promise<void> | undefined;

  constructor(source: TicketSource, timeoutMs: number) {
    // A separate timeout: a lookup that ends must not cancel it, and a source that never ends must not block others.
    this.#request = () => withTimeout(undefined, timeoutMs, source);
  }

  /** A ticket for one request. Requests that need a new one at the same time wait for the same one. */
  async take(): Promise<string> {
    if (performance.now() > this.#deadline) this.#usesLeft = 0;
    while (this.#usesLeft < 1) await (this.#pending ??= this.#renew());
    this.#usesLeft--;
    return this.#ticket;
  }

  /** Stops using a ticket that the service rejected. Another lookup may have replaced it already. */
  discard(ticket: string | undefined) {
    if (ticket === this.#ticket) this.#usesLeft = 0;
  }

  async #renew() {
    try {
      const start = performance.now();
      const { ticket, uses, expires_in_s } = await this.#request();
      this.#ticket = ticket;
      // Without a number, a ticket is used once.
      this.#usesLeft = uses >= 1 ? uses : 1;
      this.#deadline = start + expires_in_s * 1000 - EXPIRY_MARGIN_MS;
    } finally {
      this.#pending = undefined;
    }
  }
}
