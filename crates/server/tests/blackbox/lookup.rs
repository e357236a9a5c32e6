//! GET /api/v1/ip: fields, types and values.

use std::collections::BTreeSet;

use http::Method;
use ipseity_domain::{Field, GeoFacts, Location, Network, Scope};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::fixtures::samples::{self, GeoSample};
use ipseity_testkit::{Deployment, IssuedKey, TestClient, TestResponse};
use serde_json::{Value, json};

use crate::errors::ExpectedError;
use crate::fixture::{fresh_key, shared_deployment};
use crate::limits::{frozen_clock, rate_limit_headers};

pub(crate) const IP_FIELDS: [&str; 3] = ["status", "ip", "ipv6"];
pub(crate) const GEO_FIELDS: [&str; 16] = [
    "city",
    "region",
    "region_code",
    "country",
    "country_name",
    "continent",
    "latitude",
    "longitude",
    "timezone",
    "timezone_offset",
    "postal_code",
    "asn",
    "org",
    "as",
    "is_eu",
    "currency",
];
const FULL_FIELDS: [&str; 7] = ["http_protocol", "tls_version", "tls_cipher", "rtt", "colo", "proxy", "hosting"];

/// Looks up with a key from the loopback address.
pub(crate) async fn lookup_with_key(caller: &mut TestClient, key: &IssuedKey) -> TestResponse {
    caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives")
}

/// Looks up with a key as a client with this address.
async fn lookup_as(caller: &mut TestClient, key: &IssuedKey, query: &str, client: &str) -> Value {
    let headers = [("authorization", key.bearer()), ("x-forwarded-for", client.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let reply = caller.get(&format!("/api/v1/ip{query}"), &headers).await.expect("response arrives");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.json().expect("valid JSON")
}

pub(crate) fn field_names(body: &Value) -> BTreeSet<&str> {
    body.as_object().expect("value is an object").keys().map(String::as_str).collect()
}

fn fields_of(scope: Scope) -> BTreeSet<&'static str> {
    match scope {
        Scope::Ip => IP_FIELDS.into(),
        Scope::Geo => IP_FIELDS.into_iter().chain(GEO_FIELDS).collect(),
        Scope::Full => IP_FIELDS.into_iter().chain(GEO_FIELDS).chain(FULL_FIELDS).collect(),
    }
}

/// The expected response for a sample address behind a proxy.
fn expected_response(sample: &GeoSample, timezone_offset: Value) -> Value {
    let GeoFacts { location, network } = sample.facts;
    let Location { city, region, region_code, country, country_name, continent, .. } = location;
    let Location { latitude, longitude, timezone, postal_code, is_eu, currency, .. } = location;
    let Network { asn, org, proxy, hosting } = network;
    let is_v6 = sample.address.contains(':');
    json!({
        "status": "success",
        "ip": (!is_v6).then_some(sample.address), "ipv6": is_v6.then_some(sample.address),
        "city": city, "region": region, "region_code": region_code,
        "country": country, "country_name": country_name, "continent": continent,
        "latitude": latitude, "longitude": longitude,
        "timezone": timezone, "timezone_offset": timezone_offset,
        "postal_code": postal_code, "is_eu": is_eu, "currency": currency,
        "asn": asn, "org": org, "as": asn.zip(org).map(|(asn, org)| format!("AS{asn} {org}")),
        "http_protocol": null, "tls_version": null, "tls_cipher": null, "rtt": null, "colo": null,
        "proxy": proxy, "hosting": hosting,
    })
}

/// Current UTC offset of a time zone according to PostgreSQL.
async fn current_offset_s(deployment: &Deployment, zone: Option<&str>) -> Value {
    let Some(zone) = zone else { return Value::Null };
    let sql = format!("select extract(epoch from (now() at time zone '{zone}') - (now() at time zone 'utc'))::int");
    deployment
        .postgres
        .psql("ipseity", &sql)
        .await
        .expect("query returns an offset")
        .parse::<i32>()
        .expect("valid seconds")
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_geo_sample_is_returned_exactly() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Full).await);
    for sample in samples::ALL {
        let body = lookup_as(&mut caller, &key, "", sample.address).await;
        let offset_s = current_offset_s(deployment, sample.facts.location.timezone).await;
        if let Some(known) = sample.facts.location.timezone_offset {
            assert_eq!(offset_s, known);
        }
        assert_eq!(body, expected_response(&sample, offset_s), "{}", sample.address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_returns_exactly_its_fields() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    for scope in Scope::ALL {
        let key = fresh_key(deployment, scope).await;
        for client in samples::ALL.map(|sample| sample.address).into_iter().chain([samples::UNKNOWN_ADDRESS]) {
            let body = lookup_as(&mut caller, &key, "", client).await;
            assert_eq!(field_names(&body), fields_of(scope), "{scope} for {client}");
            assert_eq!(body["status"], "success");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_parameter_narrows_one_request_and_never_widens() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    for key_scope in Scope::ALL {
        let key = fresh_key(deployment, key_scope).await;
        for requested in Scope::ALL {
            let narrowed = lookup_as(&mut caller, &key, &format!("?scope={requested}"), samples::PARIS.address).await;
            assert_eq!(
                field_names(&narrowed),
                fields_of(key_scope.min(requested)),
                "{key_scope}, requested {requested}"
            );
            let next = lookup_as(&mut caller, &key, "", samples::PARIS.address).await;
            assert_eq!(field_names(&next), fields_of(key_scope), "{key_scope} after {requested}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_scope_is_ignored_and_the_first_scope_counts_in_any_case() {
    let deployment = shared_deployment().await;
    let mut caller = deployment.nodes[0].client();
    for key_scope in Scope::ALL {
        let key = fresh_key(deployment, key_scope).await;
        for invalid in ["scope", "scope=", "scope=all", "scope=%20ip", "scope=ip,geo", "Scope=ip", "scope[]=ip"] {
            let body = lookup_as(&mut caller, &key, &format!("?{invalid}"), samples::PARIS.address).await;
            assert_eq!(field_names(&body), fields_of(key_scope), "{key_scope}, requested {invalid}");
        }
        for (requested, effective) in [
            ("ip&scope=full", Scope::Ip),
            ("IP", Scope::Ip),
            ("Geo", key_scope.min(Scope::Geo)),
            ("full&scope=ip", key_scope),
            ("x&scope=ip", key_scope),
            ("&scope=ip", key_scope),
        ] {
            let body = lookup_as(&mut caller, &key, &format!("?scope={requested}"), samples::PARIS.address).await;
            assert_eq!(field_names(&body), fields_of(effective), "{key_scope}, requested {requested}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_null_and_not_absent() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Full).await);
    let body = lookup_as(&mut caller, &key, "", samples::UNKNOWN_ADDRESS).await;
    assert_eq!(field_names(&body), fields_of(Scope::Full));
    for (name, value) in body.as_object().expect("value is an object") {
        match name.as_str() {
            "status" => assert_eq!(value, "success"),
            "ip" => assert_eq!(value, samples::UNKNOWN_ADDRESS),
            _ => assert_eq!(value, &Value::Null, "{name}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_values_are_numbers_and_not_null() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Geo).await);
    let body = lookup_as(&mut caller, &key, "", samples::ZERO_COORDINATES.address).await;
    assert_eq!(
        (&body["latitude"], &body["longitude"], &body["timezone_offset"]),
        (&json!(0.0), &json!(0.0), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mapped_ipv4_addresses_are_reported_as_ipv4() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Ip).await);
    for (notation, ip, ipv6) in [
        ("198.51.100.7", Some("198.51.100.7"), None),
        ("::ffff:198.51.100.7", Some("198.51.100.7"), None),
        ("::FFFF:c633:6407", Some("198.51.100.7"), None),
        ("[0:0:0:0:0:ffff:c633:6407]:4711", Some("198.51.100.7"), None),
        ("2001:db8:5eed::53", None, Some("2001:db8:5eed::53")),
        ("2001:0DB8:5EED:0:0:0:0:53", None, Some("2001:db8:5eed::53")),
        ("[2001:db8:5eed::53]:443", None, Some("2001:db8:5eed::53")),
    ] {
        let body = lookup_as(&mut caller, &key, "", notation).await;
        assert_eq!(body, json!({ "status": "success", "ip": ip, "ipv6": ipv6 }), "{notation}");
    }
    let geo = fresh_key(deployment, Scope::Geo).await;
    let mapped = lookup_as(&mut caller, &geo, "", &format!("::ffff:{}", samples::PARIS.address)).await;
    assert_eq!(mapped, lookup_as(&mut caller, &geo, "", samples::PARIS.address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_addresses_cannot_be_looked_up() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Geo).await);
    let unmodified = lookup_as(&mut caller, &key, "", samples::PARIS.address).await;
    for query in ["?ip=73.162.0.7", "?address=73.162.0.7", "?ipv6=2001:db8::1", "?host=example.com", "?q=73.162.0.7"] {
        assert_eq!(lookup_as(&mut caller, &key, query, samples::PARIS.address).await, unmodified, "{query}");
    }
    let path = "/api/v1/ip/73.162.0.7";
    let reply = caller.get(path, &[("authorization", &key.bearer())]).await.expect("response arrives");
    ExpectedError::NOT_FOUND.assert_matches(&reply);
}

#[tokio::test(flavor = "multi_thread")]
async fn timezone_offset_is_the_offset_at_request_time() {
    let fixture = frozen_clock().await;
    let (mut caller, key) = (fixture.deployment.nodes[0].client(), fresh_key(&fixture.deployment, Scope::Geo).await);
    // 2027-01-15 and 2027-07-15, noon UTC.
    for (unix_s, offset_s) in [(1_800_014_400, -28_800), (1_815_652_800, -25_200)] {
        fixture.clock.freeze_at_ms(unix_s * 1000);
        let body = lookup_as(&mut caller, &key, "", samples::CALIFORNIA.address).await;
        assert_eq!(body["timezone_offset"], offset_s);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_fields_describe_the_client_connection() {
    let deployment = shared_deployment().await;
    let colo = Env::from([("IPSEITY__EDGE__COLO".to_owned(), "FRA".to_owned())]);
    let (node, key) =
        (deployment.start_node(&colo).await.expect("node starts"), fresh_key(deployment, Scope::Full).await);
    let (clear, secure) = (format!("http://{}/api/v1/ip", node.http()), format!("https://{}/api/v1/ip", node.https()));
    let bearer = format!("authorization: {}", key.bearer());
    let tls13 = ["--tlsv1.3", "--tls13-ciphers", "TLS_AES_128_GCM_SHA256"];
    let tls12 = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"];
    let (aes128, aes256) = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384");
    // Options of curl, base URL, and the expected protocol, TLS version and cipher suite.
    for (options, url, expected_session) in [
        (&["--http1.0"][..], &clear, ["HTTP/1.0", "", ""]),
        (&["--http1.1"], &clear, ["HTTP/1.1", "", ""]),
        (&["--http2-prior-knowledge"], &clear, ["HTTP/2", "", ""]),
        (&[&["--http2"], &tls13[..]].concat(), &secure, ["HTTP/2", "TLSv1.3", aes128]),
        (&[&["--http1.1"], &tls12[..]].concat(), &secure, ["HTTP/1.1", "TLSv1.2", aes256]),
    ] {
        let [protocol, version, cipher] = expected_session.map(|text| Some(text).filter(|text| !text.is_empty()));
        let output = deployment.curl(&[options, &["-H", &bearer, url]].concat()).await.expect("response arrives");
        let body = output.json().expect("valid JSON");
        assert_eq!(field_names(&body), fields_of(Scope::Full));
        assert_eq!(body["http_protocol"], json!(protocol));
        assert_eq!((&body["tls_version"], &body["tls_cipher"]), (&json!(version), &json!(cipher)));
        assert!(body["rtt"].as_u64().is_some_and(|rtt_ms| rtt_ms < 1_000), "{}", body["rtt"]);
        assert_eq!((&body["colo"], &body["ip"]), (&json!("FRA"), &json!("127.0.0.1")));
    }
    // Behind a proxy, the proxy's connection says nothing about the client. The site is the same.
    let body = lookup_as(&mut node.client(), &key, "", samples::PARIS.address).await;
    for name in ["http_protocol", "tls_version", "tls_cipher", "rtt"] {
        assert_eq!(body[name], Value::Null, "{name}");
    }
    assert_eq!(body["colo"], "FRA");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_known_field_has_its_type() {
    let deployment = shared_deployment().await;
    let colo = Env::from([("IPSEITY__EDGE__COLO".to_owned(), "FRA".to_owned())]);
    let (node, key) =
        (deployment.start_node(&colo).await.expect("node starts"), fresh_key(deployment, Scope::Full).await);
    let url = format!("https://{}/api/v1/ip?key={}", node.https(), key.key);
    let mut responses = vec![deployment.curl(&[&url]).await.expect("response arrives").json().expect("valid JSON")];
    for sample in samples::ALL {
        responses.push(lookup_as(&mut node.client(), &key, "", sample.address).await);
    }
    for field in Field::ALL {
        let is_of_type: fn(&Value) -> bool = match field.name() {
            "latitude" | "longitude" => Value::is_f64,
            "timezone_offset" => Value::is_i64,
            "asn" | "rtt" => Value::is_u64,
            "is_eu" | "proxy" | "hosting" => Value::is_boolean,
            _ => Value::is_string,
        };
        let known: Vec<_> = responses.iter().map(|body| &body[field.name()]).filter(|value| !value.is_null()).collect();
        assert!(!known.is_empty() && known.iter().all(|value| is_of_type(value)), "{}: {known:?}", field.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_equals_get_without_a_body() {
    let deployment = shared_deployment().await;
    let (mut caller, key) = (deployment.nodes[0].client(), fresh_key(deployment, Scope::Geo).await);
    let get = lookup_with_key(&mut caller, &key).await;
    let head =
        caller.send(Method::HEAD, "/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives");
    assert_eq!((head.status, head.body.len()), (200, 0));
    for name in ["content-type", "content-length", "access-control-allow-origin", "x-ratelimit-limit"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    assert_eq!(rate_limit_headers(&head).remaining, rate_limit_headers(&get).remaining - 1);
    let refused = caller.send(Method::HEAD, "/api/v1/ip", &[]).await.expect("response arrives");
    assert_eq!((refused.status, refused.body.len()), (401, 0));
    assert_eq!(refused.header("access-control-allow-origin"), Some("*"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_response_has_deprecation_headers() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let reply = lookup_with_key(&mut deployment.nodes[0].client(), &key).await;
    for name in ["deprecation", "sunset", "warning", "set-cookie", "server"] {
        assert!(!reply.headers.contains_key(name), "{name}");
    }
}
