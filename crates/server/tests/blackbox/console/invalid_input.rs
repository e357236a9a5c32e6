//! Invalid input is rejected with a page, and is no failure of a store.

use ipseity_store::OperatorRole;

use super::fixture::shared_fixture;
use super::routes::ROUTE_CASES;

/// Fields that a form may leave out.
const OPTIONAL_FIELDS: [&str; 9] =
    ["answer", "burst_limit", "keys_max", "networks", "expires", "caller_limit", "daily_limit", "version", "name"];

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_are_rejected() {
    let fixture = shared_fixture().await;
    let long = "x".repeat(3_000);
    for case in ROUTE_CASES.iter().filter(|case| case.is_form() && case.path != "/signout") {
        let (mut admin, target) = tokio::join!(fixture.sign_in(OperatorRole::Admin), fixture.create_target());
        let (path, valid) = (case.path_for(&target, Some(&admin)), case.fields_for(&target));
        for value in ["a\0b", "<b>", "-1", "9223372036854775808", &long] {
            let names = valid.iter().map(|(name, _)| *name).chain(["answer"]);
            // Each required field, and then all optional ones. The others stay valid, so that each is read.
            let replaced = names.map(|name| vec![name]).chain([OPTIONAL_FIELDS.to_vec()]);
            for names in replaced {
                let others = valid.iter().filter(|(name, _)| !names.contains(name));
                let others = others.map(|(name, value)| (*name, value.as_str()));
                let fields: Vec<_> = others.chain(names.iter().map(|name| (*name, value))).collect();
                let reply = admin.browser.post(&path, &fields).await;
                let shown: String = value.chars().take(8).collect();
                assert!(reply.status < 500, "{} with {names:?} = {shown:?}: {}", case.name(), reply.text());
                assert!(!reply.text().contains("<b>"), "{} with {names:?} = {shown:?}", case.name());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_ids_are_no_pages() {
    let fixture = shared_fixture().await;
    let mut admin = fixture.sign_in(OperatorRole::Admin).await;
    for case in ROUTE_CASES.iter().filter(|case| case.path.contains("{id}")) {
        for id in ["x", "-1", "0", "9223372036854775808", "%00", "%2e%2e", "%FF"] {
            let path = case.path.replace("{id}", id);
            let reply = match case.is_form() {
                true => {
                    admin.browser.post(&path, &[("decision", "granted"), ("role", "viewer"), ("plan", "free")]).await
                }
                false => admin.browser.get(&path).await,
            };
            assert!(reply.status == 404 && reply.text().contains("Page not found"), "{path}: {}", reply.text());
        }
    }
}
