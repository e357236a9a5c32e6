//! The search for accounts and keys.

use ipseity_domain::Scope;
use ipseity_store::OperatorRole;

use super::fixture::shared_fixture;
use crate::fixture::fresh_key;
use crate::portal::fixture::assert_redirects_to;

/// A text as a query sends it.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_keys_are_found() {
    let fixture = shared_fixture().await;
    let (mut viewer, target) = tokio::join!(fixture.sign_in(OperatorRole::Viewer), fixture.create_target());
    let (account, key) = (format!("href=\"/accounts/{}\"", target.account), format!("href=\"/keys/{}\"", target.key));
    for (text, link) in [
        (target.email.clone(), &account),
        (target.email.to_uppercase(), &account),
        (target.email[..12].to_owned(), &account),
        (format!(" {} ", target.account), &account),
        (target.key.clone(), &key),
        (format!("ips_{}", target.key), &key),
        ("a key".to_owned(), &key),
    ] {
        let page = viewer.browser.get(&format!("/search?q={}", encoded(&text))).await;
        // Other tests create keys of the same name.
        let is_found = page.text().contains(link.as_str()) || text == "a key" && page.text().contains("a key</a>");
        assert!(page.status == 200 && is_found, "{text}: {}", page.text());
    }
    for text in ["nothing-like-this", "<b>\"&", "%", "_", "\\", "a\0b", "'; drop table accounts", &"x".repeat(2_000)] {
        let page = viewer.browser.get(&format!("/search?q={}", encoded(text))).await;
        assert!(page.status == 200 && !page.text().contains("<b>\"&"), "{text}: {}", page.text());
        assert!(!page.text().contains(&account), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pasted_key_does_not_stay_in_the_address_bar() {
    let fixture = shared_fixture().await;
    let mut viewer = fixture.sign_in(OperatorRole::Viewer).await;
    let key = fresh_key(&fixture.portal.deployment, Scope::Ip).await;
    let page = format!("/keys/{}", key.id);
    for pasted in [
        key.key.clone(),
        format!("  {}\n", key.key),
        format!("\"{}\"", key.key),
        format!("Bearer {}", key.key),
        format!("https://ip.example/api/v1/ip?key={}&pretty", key.key),
        key.key[..key.key.len() - 1].to_owned(),
    ] {
        let reply = viewer.browser.get(&format!("/search?q={}", encoded(&pasted))).await;
        assert_redirects_to(&reply, &page);
        assert!(reply.header("location") == Some(&page) && !reply.text().contains(&key.key[14..40]), "{pasted}");
    }
    assert_eq!(viewer.browser.get(&page).await.status, 200);
    let unknown = format!("ips_0000000000{}", &key.key[14..]);
    assert_redirects_to(&viewer.browser.get(&format!("/search?q={unknown}")).await, "/keys/0000000000");
}
