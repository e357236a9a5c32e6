//! GET /api/v1/ip: which fields, of which type, with which values.

use std::collections::BTreeSet;

use domain::{Facts, Field, Network, Place, Scope};
use http::Method;
use serde_json::{Value, json};
use testkit::node::Env;
use testkit::samples::{self, Sample};
use testkit::{Caller, House, Issued, Reply};

use crate::errors::Refused;
use crate::limits::{clockwork, told};
use crate::shared::{fresh_key, house};

pub(crate) const IP: [&str; 3] = ["status", "ip", "ipv6"];
pub(crate) const GEO: [&str; 16] = [
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
const FULL: [&str; 7] = ["http_protocol", "tls_version", "tls_cipher", "rtt", "colo", "proxy", "hosting"];

/// Asks with a key, as the loopback address itself.
pub(crate) async fn ask(caller: &mut Caller, key: &Issued) -> Reply {
    caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer")
}

/// Asks with a key as a client with this address.
async fn ask_as(caller: &mut Caller, key: &Issued, query: &str, client: &str) -> Value {
    let headers = [("authorization", key.bearer()), ("x-forwarded-for", client.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let reply = caller.get(&format!("/api/v1/ip{query}"), &headers).await.expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.json().expect("JSON")
}

pub(crate) fn names(body: &Value) -> BTreeSet<&str> {
    body.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn fields_of(scope: Scope) -> BTreeSet<&'static str> {
    match scope {
        Scope::Ip => IP.into(),
        Scope::Geo => IP.into_iter().chain(GEO).collect(),
        Scope::Full => IP.into_iter().chain(GEO).chain(FULL).collect(),
    }
}

/// The whole answer for a sample whose client came through a proxy.
fn expected(sample: &Sample, timezone_offset: Value) -> Value {
    let Facts { place, network } = sample.facts;
    let Place { city, region, region_code, country, country_name, continent, .. } = place;
    let Place { latitude, longitude, timezone, postal_code, is_eu, currency, .. } = place;
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

/// A zone's offset now, as PostgreSQL knows it.
async fn offset_s(house: &House, zone: Option<&str>) -> Value {
    let Some(zone) = zone else { return Value::Null };
    let sql = format!("select extract(epoch from (now() at time zone '{zone}') - (now() at time zone 'utc'))::int");
    house.postgres.psql("ipseity", &sql).await.expect("an offset").parse::<i32>().expect("seconds").into()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_is_told_as_it_is() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Full).await);
    for sample in samples::ALL {
        let body = ask_as(&mut caller, &key, "", sample.address).await;
        let offset_s = offset_s(house, sample.facts.place.timezone).await;
        if let Some(known) = sample.facts.place.timezone_offset {
            assert_eq!(offset_s, known);
        }
        assert_eq!(body, expected(&sample, offset_s), "{}", sample.address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_shows_exactly_its_fields() {
    let house = house().await;
    let mut caller = house.nodes[0].caller();
    for scope in Scope::ALL {
        let key = fresh_key(house, scope).await;
        for client in samples::ALL.map(|sample| sample.address).into_iter().chain([samples::UNKNOWN]) {
            let body = ask_as(&mut caller, &key, "", client).await;
            assert_eq!(names(&body), fields_of(scope), "{scope} for {client}");
            assert_eq!(body["status"], "success");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_narrows_one_request_and_never_widens() {
    let house = house().await;
    let mut caller = house.nodes[0].caller();
    for own in Scope::ALL {
        let key = fresh_key(house, own).await;
        for wish in Scope::ALL {
            let narrowed = ask_as(&mut caller, &key, &format!("?scope={wish}"), samples::PARIS.address).await;
            assert_eq!(names(&narrowed), fields_of(own.min(wish)), "{own} asked for {wish}");
            let next = ask_as(&mut caller, &key, "", samples::PARIS.address).await;
            assert_eq!(names(&next), fields_of(own), "{own} after {wish}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_odd_wish_is_ignored_and_of_several_the_first_counts() {
    let house = house().await;
    let mut caller = house.nodes[0].caller();
    for own in Scope::ALL {
        let key = fresh_key(house, own).await;
        for odd in
            ["scope", "scope=", "scope=GEO", "scope=all", "scope=%20ip", "scope=ip,geo", "Scope=ip", "scope[]=ip"]
        {
            let body = ask_as(&mut caller, &key, &format!("?{odd}"), samples::PARIS.address).await;
            assert_eq!(names(&body), fields_of(own), "{own} asked with {odd}");
        }
        for (wishes, effective) in
            [("ip&scope=full", Scope::Ip), ("full&scope=ip", own), ("x&scope=ip", own), ("&scope=ip", own)]
        {
            let body = ask_as(&mut caller, &key, &format!("?scope={wishes}"), samples::PARIS.address).await;
            assert_eq!(names(&body), fields_of(effective), "{own} asked for {wishes}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unknown_is_null_and_not_absent() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Full).await);
    let body = ask_as(&mut caller, &key, "", samples::UNKNOWN).await;
    assert_eq!(names(&body), fields_of(Scope::Full));
    for (name, value) in body.as_object().expect("an object") {
        match name.as_str() {
            "status" => assert_eq!(value, "success"),
            "ip" => assert_eq!(value, samples::UNKNOWN),
            _ => assert_eq!(value, &Value::Null, "{name}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_is_a_number_and_not_null() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Geo).await);
    let body = ask_as(&mut caller, &key, "", samples::ZERO.address).await;
    assert_eq!(
        (&body["latitude"], &body["longitude"], &body["timezone_offset"]),
        (&json!(0.0), &json!(0.0), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_ipv4_or_ipv6_by_its_bits_and_not_by_its_notation() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    for (notation, ip, ipv6) in [
        ("198.51.100.7", Some("198.51.100.7"), None),
        ("::ffff:198.51.100.7", Some("198.51.100.7"), None),
        ("::FFFF:c633:6407", Some("198.51.100.7"), None),
        ("[0:0:0:0:0:ffff:c633:6407]:4711", Some("198.51.100.7"), None),
        ("2001:db8:5eed::53", None, Some("2001:db8:5eed::53")),
        ("2001:0DB8:5EED:0:0:0:0:53", None, Some("2001:db8:5eed::53")),
        ("[2001:db8:5eed::53]:443", None, Some("2001:db8:5eed::53")),
    ] {
        let body = ask_as(&mut caller, &key, "", notation).await;
        assert_eq!(body, json!({ "status": "success", "ip": ip, "ipv6": ipv6 }), "{notation}");
    }
    let geo = fresh_key(house, Scope::Geo).await;
    let mapped = ask_as(&mut caller, &geo, "", &format!("::ffff:{}", samples::PARIS.address)).await;
    assert_eq!(mapped, ask_as(&mut caller, &geo, "", samples::PARIS.address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_ask_about_another_address() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Geo).await);
    let own = ask_as(&mut caller, &key, "", samples::PARIS.address).await;
    for query in ["?ip=73.162.0.7", "?address=73.162.0.7", "?ipv6=2001:db8::1", "?host=example.com", "?q=73.162.0.7"] {
        assert_eq!(ask_as(&mut caller, &key, query, samples::PARIS.address).await, own, "{query}");
    }
    let path = "/api/v1/ip/73.162.0.7";
    let reply = caller.get(path, &[("authorization", &key.bearer())]).await.expect("an answer");
    Refused::NOT_FOUND.holds(&reply);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_offset_is_the_zones_at_the_time_of_the_request() {
    let stage = clockwork().await;
    let (mut caller, key) = (stage.house.nodes[0].caller(), fresh_key(&stage.house, Scope::Geo).await);
    // 2027-01-15 and 2027-07-15, noon UTC.
    for (unix_s, offset_s) in [(1_800_014_400, -28_800), (1_815_652_800, -25_200)] {
        stage.clock.freeze_at_ms(unix_s * 1000);
        let body = ask_as(&mut caller, &key, "", samples::CALIFORNIA.address).await;
        assert_eq!(body["timezone_offset"], offset_s);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connections_facts_are_those_of_the_clients_own() {
    let house = house().await;
    let colo = Env::from([("IPSEITY__EDGE__COLO".to_owned(), "FRA".to_owned())]);
    let (node, key) = (house.start_node(&colo).await.expect("a node"), fresh_key(house, Scope::Full).await);
    let (clear, secure) = (format!("http://{}/api/v1/ip", node.http()), format!("https://{}/api/v1/ip", node.https()));
    let bearer = format!("authorization: {}", key.bearer());
    let tls13 = ["--tlsv1.3", "--tls13-ciphers", "TLS_AES_128_GCM_SHA256"];
    let tls12 = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"];
    let (aes128, aes256) = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384");
    // Options of curl, address, and what the answer says: protocol, TLS version, suite.
    for (options, url, told) in [
        (&["--http1.0"][..], &clear, ["HTTP/1.0", "", ""]),
        (&["--http1.1"], &clear, ["HTTP/1.1", "", ""]),
        (&["--http2-prior-knowledge"], &clear, ["HTTP/2", "", ""]),
        (&[&["--http2"], &tls13[..]].concat(), &secure, ["HTTP/2", "TLSv1.3", aes128]),
        (&[&["--http1.1"], &tls12[..]].concat(), &secure, ["HTTP/1.1", "TLSv1.2", aes256]),
    ] {
        let [protocol, version, cipher] = told.map(|text| Some(text).filter(|text| !text.is_empty()));
        let output = house.curl(&[options, &["-H", &bearer, url]].concat()).await.expect("an answer");
        let body = output.json().expect("JSON");
        assert_eq!(names(&body), fields_of(Scope::Full));
        assert_eq!(body["http_protocol"], json!(protocol));
        assert_eq!((&body["tls_version"], &body["tls_cipher"]), (&json!(version), &json!(cipher)));
        assert!(body["rtt"].as_u64().is_some_and(|rtt_ms| rtt_ms < 1_000), "{}", body["rtt"]);
        assert_eq!((&body["colo"], &body["ip"]), (&json!("FRA"), &json!("127.0.0.1")));
    }
    // Through a proxy, the proxy's own hop tells nothing of the client; the site is the same.
    let body = ask_as(&mut node.caller(), &key, "", samples::PARIS.address).await;
    for name in ["http_protocol", "tls_version", "tls_cipher", "rtt"] {
        assert_eq!(body[name], Value::Null, "{name}");
    }
    assert_eq!(body["colo"], "FRA");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_has_its_type_wherever_it_is_known() {
    let house = house().await;
    let colo = Env::from([("IPSEITY__EDGE__COLO".to_owned(), "FRA".to_owned())]);
    let (node, key) = (house.start_node(&colo).await.expect("a node"), fresh_key(house, Scope::Full).await);
    let url = format!("https://{}/api/v1/ip?key={}", node.https(), key.key);
    let mut answers = vec![house.curl(&[&url]).await.expect("an answer").json().expect("JSON")];
    for sample in samples::ALL {
        answers.push(ask_as(&mut node.caller(), &key, "", sample.address).await);
    }
    for field in Field::ALL {
        let is_of_type: fn(&Value) -> bool = match field.name() {
            "latitude" | "longitude" => Value::is_f64,
            "timezone_offset" => Value::is_i64,
            "asn" | "rtt" => Value::is_u64,
            "is_eu" | "proxy" | "hosting" => Value::is_boolean,
            _ => Value::is_string,
        };
        let known: Vec<_> = answers.iter().map(|body| &body[field.name()]).filter(|value| !value.is_null()).collect();
        assert!(!known.is_empty() && known.iter().all(|value| is_of_type(value)), "{}: {known:?}", field.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_its_body() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Geo).await);
    let get = ask(&mut caller, &key).await;
    let head = caller.send(Method::HEAD, "/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer");
    assert_eq!((head.status, head.body.len()), (200, 0));
    for name in ["content-type", "content-length", "access-control-allow-origin", "x-ratelimit-limit"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    assert_eq!(told(&head).remaining, told(&get).remaining - 1);
    let refused = caller.send(Method::HEAD, "/api/v1/ip", &[]).await.expect("an answer");
    assert_eq!((refused.status, refused.body.len()), (401, 0));
    assert_eq!(refused.header("access-control-allow-origin"), Some("*"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_announces_an_end_of_service() {
    let house = house().await;
    let key = fresh_key(house, Scope::Ip).await;
    let reply = ask(&mut house.nodes[0].caller(), &key).await;
    for name in ["deprecation", "sunset", "warning", "set-cookie", "server"] {
        assert!(!reply.headers.contains_key(name), "{name}");
    }
}
