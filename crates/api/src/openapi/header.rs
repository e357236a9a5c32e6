//! Every header that an answer may carry, described once.

use serde_json::{Map, Value, json};

macro_rules! headers {
    ($($name:literal $meaning:literal $schema:tt $example:tt;)+) => {
        /// The headers' names.
        pub(super) const NAMES: &[&str] = &[$($name),+];

        /// The headers as components of the document.
        pub(super) fn components() -> Value {
            let mut all = Map::new();
            $(all.insert(
                $name.to_owned(),
                json!({ "description": $meaning, "required": true, "schema": $schema, "example": $example }),
            );)+
            all.into()
        }
    };
}

headers! {
    "X-RateLimit-Limit" "The limit that the answer speaks of: requests a day, or 300 for the burst limit."
        { "type": "integer", "minimum": 0 } 10000;
    "X-RateLimit-Remaining" "Requests left of it."
        { "type": "integer", "minimum": 0 } 9958;
    "X-RateLimit-Reset" "Unix time of its next reset: midnight UTC, or in 60 seconds for the burst limit."
        { "type": "integer", "minimum": 0 } 1794787200;
    "RateLimit" "The same as draft-ietf-httpapi-ratelimit-headers writes it: requests left and seconds to the reset."
        { "type": "string" } "\"day\";r=9958;t=35798";
    "RateLimit-Policy" "The limit and its window in seconds, in the same draft's words."
        { "type": "string" } "\"day\";q=10000;w=86400";
    "Retry-After" "Seconds until the limit is open again. A paused key stays paused, however long you wait."
        { "type": "integer", "minimum": 0 } 35798;
    "WWW-Authenticate" "How to send a key."
        { "type": "string", "const": "Bearer" } "Bearer";
    "X-Request-Id" "The answer's own random id, for asking about it."
        { "type": "string", "pattern": "^[0-9a-f]{16}$" } "5d2c8f0a9b314e67";
    "Server-Timing" "Milliseconds that the service took for the answer, without the way to it and back."
        { "type": "string", "pattern": "^total;dur=[0-9]+\\.[0-9]{3}$" } "total;dur=0.417";
    "Cache-Control" "`no-store`, except for what is the same for everybody."
        { "type": "string" } "no-store";
    "Access-Control-Allow-Origin" "Browsers may call from any origin."
        { "type": "string", "const": "*" } "*";
    "Access-Control-Expose-Headers" "The headers that a browser's script may read."
        { "type": "string" } "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Server-Timing";
    "Access-Control-Allow-Methods" "The methods of this address."
        { "type": "string" } "GET, HEAD, OPTIONS";
    "Access-Control-Allow-Headers" "The headers that a browser's script may set."
        { "type": "string" } "Authorization, Content-Type";
    "Access-Control-Max-Age" "Seconds for which a browser need not ask again."
        { "type": "integer" } 86400;
    "X-Content-Type-Options" "The body is of the type that it says."
        { "type": "string", "const": "nosniff" } "nosniff";
    "Referrer-Policy" "A page's own address is sent to nobody."
        { "type": "string", "const": "no-referrer" } "no-referrer";
}
