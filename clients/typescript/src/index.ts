// The public interface of the package.

export { Client } from './client.js';
export type { ClientOptions, KeyStatusResponse, LookupOptions, LookupResponse } from './client.js';
export * from './error.js';
export type { DemoFacts, Facts, FullFacts, GeoFacts, IpFacts, LookupScope } from './facts.js';
export type { RateLimit } from './rate_limit.js';
export { TEST_KEYS } from './test_key.js';
export type { TestCaller, TestFailure } from './test_key.js';
export type { TicketOptions, TicketResponse, TicketSource } from './ticket.js';
