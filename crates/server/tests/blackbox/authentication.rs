//! Keys: where they are found, which are refused, and their three states.

use domain::{ClearKey, Key, KeyId, Scope};
use serde_json::Value;
use testkit::{Caller, House, Issued, Reply};

use crate::errors::Refused;
use crate::limits::{clockwork, told};
use crate::lookup::{IP, ask, names};
use crate::shared::{fresh_key, house};

/// Asks with these Authorization lines and this query.
async fn send(caller: &mut Caller, lines: &[&str], query: &str) -> Reply {
    let headers: Vec<_> = lines.iter().map(|line| ("authorization", *line)).collect();
    caller.get(&format!("/api/v1/ip{query}"), &headers).await.expect("an answer")
}

async fn command(house: &House, arguments: &[&str]) -> testkit::CliOutput {
    house.cli(arguments).await.and_then(testkit::CliOutput::success).expect("done")
}

async fn roll(house: &House, key: &Issued, overlap_s: &str) -> Issued {
    let rolled = command(house, &["key", "roll", &key.id, "--overlap-s", overlap_s, "--json"]).await;
    serde_json::from_slice(&rolled.stdout).expect("the new key")
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_the_caller_is_told_both_ways_to_send_one() {
    let mut caller = house().await.nodes[0].caller();
    for query in ["", "?", "?scope=ip", "?Key=x", "?token=x"] {
        let message = Refused::MISSING.holds(&send(&mut caller, &[], query).await)["message"].to_string();
        assert!(message.contains("Authorization: Bearer <API_KEY>") && message.contains("key=<API_KEY>"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_taken_from_the_header_or_the_query() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let (bearer, encoded) = (key.bearer(), key.key.replacen('i', "%69", 1));
    let (plain, late) = (format!("?key={}", key.key), format!("?scope=ip&x=&key={encoded}"));
    let ways: [(&[&str], &str); 3] = [(&[&bearer], ""), (&[], &plain), (&[], &late)];
    for (lines, query) in ways {
        let reply = send(&mut caller, lines, query).await;
        assert_eq!((reply.status, names(&reply.json().expect("JSON"))), (200, IP.into()), "{lines:?} {query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schemes_letter_case_does_not_matter() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    for scheme in ["bearer", "BEARER", "bEaReR", "Bearer  "] {
        assert_eq!(send(&mut caller, &[&format!("{scheme} {}", key.key)], "").await.status, 200, "{scheme}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_wins_over_the_query_even_when_it_is_wrong() {
    let house = house().await;
    let mut caller = house.nodes[0].caller();
    let (narrow, wide) = (fresh_key(house, Scope::Ip).await, fresh_key(house, Scope::Full).await);
    let wide_query = format!("?key={}", wide.key);
    let reply = send(&mut caller, &[&narrow.bearer()], &wide_query).await;
    assert_eq!(names(&reply.json().expect("JSON")), IP.into());
    Refused::INVALID.holds(&send(&mut caller, &["Bearer nonsense"], &wide_query).await);
    assert_eq!(send(&mut caller, &[&narrow.bearer()], "?key=nonsense").await.status, 200);
    assert_eq!(told(&ask(&mut caller, &wide).await).remaining, 9_999, "the query's key was charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_scheme_and_an_empty_key_count_as_absent() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let query = format!("?key={}", key.key);
    for line in ["Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "Token x", "", "Digest a=b", &key.key] {
        assert_eq!(send(&mut caller, &[line], &query).await.status, 200, "{line:?}");
        Refused::MISSING.holds(&send(&mut caller, &[line], "").await);
    }
    for query in ["?key=", "?key", "?key=&scope=ip"] {
        Refused::MISSING.holds(&send(&mut caller, &[], query).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_credentials_the_first_counts() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let (good, bearer) = (&key.key, key.bearer());
    assert_eq!(send(&mut caller, &[], &format!("?key={good}&key=nonsense")).await.status, 200);
    Refused::INVALID.holds(&send(&mut caller, &[], &format!("?key=nonsense&key={good}")).await);
    Refused::MISSING.holds(&send(&mut caller, &[], &format!("?key=&key={good}")).await);
    assert_eq!(send(&mut caller, &[&bearer, "Bearer nonsense"], "").await.status, 200);
    Refused::INVALID.holds(&send(&mut caller, &["Bearer nonsense", &bearer], "").await);
    Refused::MISSING.holds(&send(&mut caller, &["Basic x", &bearer], "").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_does_not_exist_is_invalid() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let known = KeyId::parse(&key.id).expect("an id");
    let stranger = ClearKey::mint(|| fastrand::u8(..));
    let wrong_secret = ClearKey::roll(known, || fastrand::u8(..));
    for odd in [
        stranger.expose(),
        wrong_secret.expose(),
        "x",
        "ips_",
        &key.id,
        &key.key[..51],
        &format!("{}0", key.key),
        &key.key.to_uppercase(),
        &key.key.replacen("ips_", "ipx_", 1),
        "%FF%FE%00",
        "%E2%9C%93",
        &"0".repeat(1_000),
    ] {
        let reply = send(&mut caller, &[], &format!("?key={odd}")).await;
        let body = Refused::INVALID.holds(&reply);
        assert!(!body.to_string().contains(&key.key[14..46]), "the answer repeats a secret");
        if !odd.contains('%') {
            Refused::INVALID.holds(&send(&mut caller, &[&format!("Bearer {odd}")], "").await);
        }
    }
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, 9_999, "a stranger's tries were charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_keys_two_secrets_share_one_quota_until_the_old_one_ends() {
    let house = house().await;
    let (mut caller, old) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let first = told(&ask(&mut caller, &old).await).remaining;
    let new = roll(house, &old, "3600").await;
    assert_eq!((&new.id, new.key == old.key), (&old.id, false));
    for (key, remaining) in [(&old, first - 1), (&new, first - 2)] {
        assert_eq!(told(&ask(&mut caller, key).await).remaining, remaining);
    }
    let newest = roll(house, &old, "0").await;
    for gone in [&old, &new] {
        Refused::INVALID.holds(&ask(&mut caller, gone).await);
    }
    assert_eq!(told(&ask(&mut caller, &newest).await).remaining, first - 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_keys_old_secret_holds_as_long_as_was_said_and_no_longer() {
    let stage = clockwork().await;
    stage.clock.shift_ms(0);
    let (mut caller, old) = (stage.house.nodes[0].caller(), fresh_key(&stage.house, Scope::Ip).await);
    let new = roll(&stage.house, &old, "3600").await;
    for (later_ms, old_status) in [(0, 200), (3_500_000, 200), (3_601_000, 401)] {
        stage.clock.shift_ms(later_ms);
        assert_eq!(ask(&mut caller, &old).await.status, old_status, "after {later_ms} ms");
        assert_eq!(ask(&mut caller, &new).await.status, 200, "after {later_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_key_no_longer_exists() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    assert_eq!(ask(&mut caller, &key).await.status, 200);
    command(house, &["key", "delete", &key.id]).await;
    Refused::INVALID.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deactivated_key_is_refused_uncharged_until_it_is_reactivated() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let before = told(&ask(&mut caller, &key).await).remaining;
    command(house, &["key", "deactivate", &key.id]).await;
    for _ in 0..3 {
        let message = Refused::INACTIVE.holds(&ask(&mut caller, &key).await)["message"].to_string();
        assert!(message.contains("deactivated"), "{message}");
    }
    command(house, &["key", "reactivate", &key.id]).await;
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, before - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_paused_and_inactive_is_told_so_one_after_the_other() {
    let house = house().await;
    let (mut caller, key) = (house.nodes[0].caller(), fresh_key(house, Scope::Ip).await);
    let pause = format!("update keys set paused_at = now() where id = '{}'", key.id);
    house.postgres.psql("ipseity", &pause).await.expect("paused");
    let state = async || {
        let owner =
            format!("select email from accounts a join keys k on k.account_id = a.id where k.id = '{}'", key.id);
        let owner = house.postgres.psql("ipseity", &owner).await.expect("an owner");
        command(house, &["key", "list", "--account", &owner, "--json"]).await.json().expect("JSON")[0]["state"].clone()
    };
    Refused::PAUSED.holds(&ask(&mut caller, &key).await);
    assert_eq!(state().await, "paused");
    command(house, &["key", "deactivate", &key.id]).await;
    Refused::INACTIVE.holds(&ask(&mut caller, &key).await);
    assert_eq!(state().await, "inactive");
    command(house, &["key", "reactivate", &key.id]).await;
    Refused::PAUSED.holds(&ask(&mut caller, &key).await);
    command(house, &["key", "deactivate", &key.id]).await;
    command(house, &["key", "resume", &key.id]).await;
    Refused::INACTIVE.holds(&ask(&mut caller, &key).await);
    command(house, &["key", "reactivate", &key.id]).await;
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, 9_999, "a refusal was charged");
    assert_eq!(state().await, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_the_published_form() {
    let house = house().await;
    let key = fresh_key(house, Scope::Ip).await;
    let rest = key.key.strip_prefix("ips_").expect("the prefix");
    assert!(rest.len() == 48 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(&rest[..10], key.id);
    assert!(Key::parse(&key.key).is_some(), "the checksum");
    let page = house.nodes[0].caller().get("/docs/authentication", &[]).await.expect("a page").text();
    assert!(page.contains("ips_[0-9A-Za-z]{48}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_kept_as_a_digest_and_listed_by_its_id() {
    let house = house().await;
    house.account("digest@example.com").await.expect("an account");
    let key = house.issue("digest@example.com", Scope::Geo).await.expect("a key");
    let kept = format!("select digest = sha256('{}') from keys where id = '{}'", key.key, key.id);
    assert_eq!(house.postgres.psql("ipseity", &kept).await.expect("a row"), "t");
    let row = format!("select keys::text from keys where id = '{}'", key.id);
    assert!(!house.postgres.psql("ipseity", &row).await.expect("a row").contains(&key.key[14..]));
    let listed =
        command(house, &["key", "list", "--account", "digest@example.com", "--json"]).await.json().expect("JSON");
    assert_eq!((&listed[0]["id"], &listed[0]["scope"]), (&Value::from(key.id.as_str()), &Value::from("geo")));
    assert_eq!(listed[0]["state"], "active");
    assert!(!listed.to_string().contains(&key.key[14..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_body_is_ignored() {
    let house = house().await;
    let key = fresh_key(house, Scope::Ip).await;
    let url = format!("http://{}/api/v1/ip", house.nodes[0].http());
    let bearer = format!("authorization: {}", key.bearer());
    let plain = house.curl(&["-H", &bearer, &url]).await.expect("an answer").json().expect("JSON");
    assert_eq!(names(&plain), IP.into());
    for kind in ["content-type: application/json", "content-type: nonsense", "transfer-encoding: chunked"] {
        let sent = ["-X", "GET", "-H", kind, "--data-binary", "{\"key\":\"x\",\"scope\":\"full\"}"];
        let with_body = house.curl(&[&sent[..], &["-H", &bearer, &url]].concat()).await.expect("an answer");
        assert_eq!(with_body.json().expect("JSON"), plain, "{kind}");
    }
    let demo = format!("{url}/demo");
    let answer =
        house.curl(&["-X", "GET", "--data-binary", "{}", &demo]).await.expect("an answer").json().expect("JSON");
    assert_eq!(answer["status"], "success");
    let in_body = format!("key={}", key.key);
    let keyless = house.curl(&["-X", "GET", "--data-binary", &in_body, &url]).await.expect("an answer");
    assert_eq!(keyless.json().expect("JSON")["error"], "missing_api_key");
}
