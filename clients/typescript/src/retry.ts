// Decides when a lookup is retried, and how often. A lookup without a response may have been charged, so each retry can
// cost one more request of the quota. The budget limits that cost.

import { ApiError, BurstLimitError, ConnectionError, RateLimitError } from './error.js';
import { withTimeout } from './timeout.js';

const ATTEMPTS_MAX = 3;
const INITIAL_BACKOFF_MS = 250;
const RESPONSES_PER_RETRY = 10;

/** Retries that a client may make. Ten successful responses add one back, up to the initial number. */
export class RetryBudget {
  readonly #max: number;
  #left: number;

  constructor(max: number) {
    this.#max = this.#left = max;
  }

  deposit() {
    this.#left = Math.min(this.#max, this.#left + 1 / RESPONSES_PER_RETRY);
  }

  withdraw(): boolean {
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}

/** Milliseconds to wait before the next attempt. Infinity if a retry is pointless. */
export function retryDelayMs(error: unknown, attempts: number): number {
  if (attempts >= ATTEMPTS_MAX) return Infinity;
  const backoffMs = INITIAL_BACKOFF_MS * 2 ** (attempts - 1) * (0.5 + Math.random());
  if (error instanceof ConnectionError) return backoffMs;
  // The burst limit pauses the key, so waiting does not help.
  const resets = error instanceof RateLimitError && !(error instanceof BurstLimitError);
  if (!(error instanceof ApiError) || !(resets || error.status >= 500)) return Infinity;
  // The random backoff is added to Retry-After so that clients do not all return at the same moment.
  return (error.retryAfterS ?? 0) * 1000 + backoffMs;
}

/** Waits, or rejects with the signal's reason. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await withTimeout(signal, ms, () => new Promise(() => {})).catch(() => signal.throwIfAborted());
}
