// Reads the rate limit headers of a response.

/** A limit and what is left of it. */
export interface RateLimit {
  /** Maximum number of requests: per day, or per 60 seconds for the burst limit. */
  limit: number;
  /** Requests left. */
  remaining: number;
  /** When the limit resets. */
  reset: Date;
}

export function rateLimitOf(headers: Headers): RateLimit {
  const number = (name: string) => Number(headers.get(`x-ratelimit-${name}`));
  return { limit: number('limit'), remaining: number('remaining'), reset: new Date(number('reset') * 1000) };
}

/** Seconds in `Retry-After`, or undefined without one. A proxy may send a date instead of seconds. */
export function retryAfterS(headers: Headers): number | undefined {
  const text = headers.get('retry-after');
  if (!text) return undefined;
  const seconds = isNaN(+text) ? (Date.parse(text) - Date.now()) / 1000 : +text;
  return isNaN(seconds) ? undefined : Math.max(0, seconds);
}
