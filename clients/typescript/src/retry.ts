// When a lookup may be sent again, and how often. A lookup that got no answer may have been charged, so each retry can
// cost one more request of the quota; the budget bounds that cost.

import { ConnectionError, DailyQuotaError, DemoQuotaError, Refusal } from './errors.js';

const TRIES_MAX = 3;
const FIRST_WAIT_MS = 250;
/** One retry is earned by so many answers. */
const ANSWERS_PER_RETRY = 10;

/** Retries that a client may make: a number to begin with, and one more for every ten answers, never above it. */
export class RetryBudget {
  #left: number;

  constructor(readonly max: number) {
    this.#left = max;
  }

  earn() {
    this.#left = Math.min(this.max, this.#left + 1 / ANSWERS_PER_RETRY);
  }

  spend(): boolean {
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}

/** Milliseconds to wait before the next try; undefined when another one would be in vain. */
export function waitMs(error: unknown, tries: number): number | undefined {
  if (tries >= TRIES_MAX) return undefined;
  const backoffMs = FIRST_WAIT_MS * 2 ** (tries - 1) * (0.5 + Math.random());
  if (error instanceof ConnectionError) return backoffMs;
  const heals = error instanceof DailyQuotaError || error instanceof DemoQuotaError;
  if (!(error instanceof Refusal) || !(heals || error.status >= 500)) return undefined;
  // On top of what the service asks for: its callers should not all come back at the same moment.
  return (error.retryAfterS ?? 0) * 1000 + backoffMs;
}

/** Waits, or rejects with the signal's reason. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
