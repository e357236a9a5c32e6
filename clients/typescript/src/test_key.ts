// Test keys, and what they can return.

/** The test key of each scope. They are public, return made-up data and have no limits. */
export const TEST_KEYS = {
  ip: 'ipst_TestIp0000NotASecret000000000000000000000019mvRI',
  geo: 'ipst_TestGeo000NotASecret00000000000000000000001mr5ps',
  full: 'ipst_TestFull00NotASecret000000000000000000000003k296',
} as const;

/** A made-up caller. */
export type TestCaller = 'home' | 'ipv6' | 'mobile' | 'datacenter' | 'vpn' | 'unknown' | 'no-address';

/** An error on request. */
export type TestFailure =
  'burst' | 'paused' | 'day' | 'inactive' | 'expired' | 'origin' | 'caller' | 'ticket' | '500';
