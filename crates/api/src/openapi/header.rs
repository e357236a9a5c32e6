//! Descriptions of all response headers.

use serde_json::{Map, Value, json};

/// Headers that not every response with their status has.
const OPTIONAL_NAMES: [&str; 1] = ["Ipseity-Pair-Unused"];

macro_rules! headers {
    ($($name:literal $meaning:literal $schema:tt $example:tt;)+) => {
        /// The names of the headers.
        pub(super) const NAMES: &[&str] = &[$($name),+];

        /// The component headers of the document.
        pub(super) fn components() -> Value {
            let mut all = Map::new();
            $(all.insert(
                $name.to_owned(),
                json!({ "description": $meaning, "required": !OPTIONAL_NAMES.contains(&$name), "schema": $schema, "example": $example }),
            );)+
            all.into()
        }
    };
}

headers! {
    "X-RateLimit-Limit" "Daily limit of requests, or 300 for the burst limit, or the key's limit per caller."
        { "type": "integer", "minimum": 0 } 10000;
    "X-RateLimit-Remaining" "Requests left."
        { "type": "integer", "minimum": 0 } 9958;
    "X-RateLimit-Reset" "Unix time of the next reset: midnight UTC, or within 60 seconds for the burst limit and the limit per caller."
        { "type": "integer", "minimum": 0 } 1794787200;
    "RateLimit" "Requests left and seconds until the reset, as in draft-ietf-httpapi-ratelimit-headers. `burst` is what the node that responds has seen, and is missing for a key with allowed origins."
        { "type": "string" } "\"day\";r=9958;t=35798, \"burst\";r=257;t=18";
    "RateLimit-Policy" "Limits and their windows in seconds, as in draft-ietf-httpapi-ratelimit-headers."
        { "type": "string" } "\"day\";q=10000;w=86400, \"burst\";q=300;w=60";
    "Retry-After" "Seconds until the limit resets. A paused key won't resume on its own."
        { "type": "integer", "minimum": 0 } 35798;
    "Ipseity-Pair-Unused" "Why no token of `Ipseity-Pair` was used. Only if one was sent."
        { "type": "string", "enum": ["expired", "same-family", "unreadable"] } "expired";
    "WWW-Authenticate" "How to send a key."
        { "type": "string", "const": "Bearer" } "Bearer";
    "X-Request-Id" "Random ID of the request. Include it when you contact support."
        { "type": "string", "pattern": "^[0-9a-f]{16}$" } "5d2c8f0a9b314e67";
    "Server-Timing" "Processing time in milliseconds, without network time."
        { "type": "string", "pattern": "^total;dur=[0-9]+\\.[0-9]{3}$" } "total;dur=0.417";
    "Cache-Control" "`no-store`, except for responses that are the same for every caller."
        { "type": "string" } "no-store";
    "Access-Control-Allow-Origin" "Any origin is allowed."
        { "type": "string", "const": "*" } "*";
    "Access-Control-Expose-Headers" "Response headers that scripts may read."
        { "type": "string" } "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Server-Timing, Ipseity-Test, Ipseity-Pair-Unused";
    "Access-Control-Allow-Methods" "Allowed methods."
        { "type": "string" } "GET, HEAD, OPTIONS";
    "Access-Control-Allow-Headers" "Request headers that scripts may set: those of the preflight, and always these two."
        { "type": "string" } "Authorization, Content-Type";
    "Access-Control-Max-Age" "Seconds for which browsers may cache the preflight."
        { "type": "integer" } 86400;
    "Cross-Origin-Resource-Policy" "Pages of any origin may load the response."
        { "type": "string", "const": "cross-origin" } "cross-origin";
    "Timing-Allow-Origin" "Pages of any origin may read how long the request took, with the Resource Timing API."
        { "type": "string", "const": "*" } "*";
    "X-Content-Type-Options" "Disables content type sniffing."
        { "type": "string", "const": "nosniff" } "nosniff";
    "Referrer-Policy" "Disables the Referer header."
        { "type": "string", "const": "no-referrer" } "no-referrer";
}
