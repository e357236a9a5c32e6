// The public interface of the package.

export { Ipseity } from './client.js';
export type { Answer, CallOptions, Options } from './client.js';
export * from './errors.js';
export type { DemoFacts, Facts, FullFacts, GeoFacts, IpFacts, Scope } from './facts.js';
export type { Limits } from './limits.js';
