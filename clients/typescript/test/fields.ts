// `types.mjs` compiles this file and never runs it. The compiler must report exactly the errors in the line comments.

import { Client, DailyQuotaError, InvalidKeyError, PausedKeyError } from '../dist/index.js';

const baseUrl = 'https://ip.example';
const ip = (await new Client({ baseUrl, key: 'ips_…', scope: 'ip' }).lookup()).facts;
const geo = (await new Client({ baseUrl, key: 'ips_…', scope: 'geo' }).lookup()).facts;
const full = (await new Client({ baseUrl, key: 'ips_…', scope: 'full' }).lookup()).facts;
const page = (await new Client({ baseUrl, ticket: async () => ({ ticket: 'ipt_…', uses: 5, expires_in_s: 300 }), scope: 'ip' }).lookup()).facts;
const demo = (await new Client({ baseUrl, scope: 'demo' }).lookup()).facts;

export const names: (string | null)[] = [ip.ipv6, page.ip, geo.city, full.city, full.tls_cipher, demo.city, demo.tls_version];
export const others: (number | boolean | null)[] = [geo.latitude, full.rtt, full.hosting, demo.rtt];
export const outside = [
  ip.city, // TS2339
  ip.rtt, // TS2339
  page.city, // TS2339
  geo.rtt, // TS2339
  geo.hosting, // TS2339
  demo.tls_cipher, // TS2339
  demo.hosting, // TS2339
];
export const certain: string = geo.city; // TS2322

new Client({ baseUrl, scope: 'geo' }); // TS2345
new Client({ baseUrl, scope: 'geo', ticket: async () => 'ipt_…' }); // TS2322

export function describe(error: unknown): string | number {
  if (error instanceof DailyQuotaError) return error.retryAfterS;
  if (error instanceof InvalidKeyError) return error.enterprise; // TS2339
  return error instanceof PausedKeyError ? error.docs : '';
}
