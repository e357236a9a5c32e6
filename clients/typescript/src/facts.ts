// The fields of each scope. Every field is always present; unknown values are null.

/** The fields of scope `ip`. */
export interface IpFacts {
  status: 'success';
  /** IPv4 address; null for a client on IPv6. */
  ip: string | null;
  /** IPv6 address; null for a client on IPv4. */
  ipv6: string | null;
}

/** The fields of scope `geo`. */
export interface GeoFacts extends IpFacts {
  /** City name in English. */
  city: string | null;
  /** Region or state name in English. */
  region: string | null;
  /** ISO 3166-2 code, such as `US-CA`. */
  region_code: string | null;
  /** ISO 3166-1 alpha-2 code of the country. */
  country: string | null;
  /** Country name in English. */
  country_name: string | null;
  /** Two-letter continent code. */
  continent: string | null;
  /** Degrees north. */
  latitude: number | null;
  /** Degrees east. */
  longitude: number | null;
  /** IANA time zone. */
  timezone: string | null;
  /** UTC offset in seconds at the time of the request. */
  timezone_offset: number | null;
  /** Postal code. */
  postal_code: string | null;
  /** Autonomous system number. */
  asn: number | null;
  /** Name of the network's organization. */
  org: string | null;
  /** `AS`, the number, a space and the organization; null unless both are known. */
  as: string | null;
  /** Whether the country is in the European Union. */
  is_eu: boolean | null;
  /** ISO 4217 code of the country's currency. */
  currency: string | null;
}

/** The fields of scope `full`. */
export interface FullFacts extends GeoFacts {
  /** HTTP version of the request. */
  http_protocol: string | null;
  /** TLS version of the connection; null for plain HTTP. */
  tls_version: string | null;
  /** IANA name of the TLS cipher suite; null for plain HTTP. */
  tls_cipher: string | null;
  /** Round-trip time in whole milliseconds, measured on the client's socket. */
  rtt: number | null;
  /** IATA code of the site that served the request. */
  colo: string | null;
  /** Whether the network belongs to a known VPN or proxy operator. */
  proxy: boolean | null;
  /** Whether the network belongs to a known hosting or cloud operator. */
  hosting: boolean | null;
}

/** The demo's fixed fields. */
export interface DemoFacts extends GeoFacts, Pick<FullFacts, 'http_protocol' | 'tls_version' | 'rtt' | 'colo'> {}

/** Maps each scope to its fields. */
export interface Facts {
  ip: IpFacts;
  geo: GeoFacts;
  full: FullFacts;
  demo: DemoFacts;
}

/** The scope of a key, or the demo, which needs no key. */
export type LookupScope = keyof Facts;

/** A field of each scope that no narrower scope has. */
export const MARKER_FIELDS = { ip: 'ip', geo: 'country', full: 'hosting', demo: 'colo' } as const;
