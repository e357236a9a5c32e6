//! The badges of keys: what the pages say is what the next request gets.

use ipseity_domain::Scope;

use super::alert_emails::{DAILY_LIMIT, send_lookups, use_small_plan};
use super::fixture::shared_fixture;

#[tokio::test(flavor = "multi_thread")]
async fn key_at_its_daily_limit_is_not_shown_as_active() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    use_small_plan(fixture, &member).await;
    let key = member.create_key("shop", Scope::Ip).await;
    let badges = ["Active", "Near daily limit", "Daily limit reached"];
    for (requests, status, badge) in [(7, 200, badges[0]), (1, 200, badges[1]), (DAILY_LIMIT - 7, 429, badges[2])] {
        assert_eq!(send_lookups(fixture, &key, requests).await, status);
        for path in ["/keys", &format!("/keys/{}", key.id)] {
            let page = member.browser.get(path).await.text();
            for other in badges {
                assert_eq!(page.contains(&format!(">{other}</span>")), other == badge, "{other} on {path}");
            }
            assert_eq!(page.contains("are rejected with <code>429</code> until"), status == 429, "{path}");
        }
    }
    assert!(member.browser.get("/usage").await.text().contains(">Daily limit reached</span>"));
}
