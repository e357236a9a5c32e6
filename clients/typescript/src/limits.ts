// What answers say of limits, in their headers.

/** A limit, and what is left of it. */
export interface Limits {
  /** Requests that are allowed: in a day, or in a minute for the burst limit. */
  limit: number;
  /** Requests that are left. */
  remaining: number;
  /** When the limit begins anew. */
  reset: Date;
}

export function limitsOf(headers: Headers): Limits {
  const number = (name: string) => Number(headers.get(`x-ratelimit-${name}`));
  return { limit: number('limit'), remaining: number('remaining'), reset: new Date(number('reset') * 1000) };
}

/** Seconds until it is worth asking again; undefined when the answer does not say. A proxy in front may name a date. */
export function retryAfterS(headers: Headers): number | undefined {
  const text = headers.get('retry-after');
  if (!text) return undefined;
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}
