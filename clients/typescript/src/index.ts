// The public interface of the package.

export { Client } from './client.js';
export type { ClientOptions, LookupOptions, LookupResponse } from './client.js';
export * from './error.js';
export type { DemoFacts, Facts, FullFacts, GeoFacts, IpFacts, LookupScope } from './facts.js';
export type { RateLimit } from './rate_limit.js';
