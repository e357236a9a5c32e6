//! Past pauses: their chart and their end stay after the key is resumed.

use ipseity_domain::Scope;

use super::alert_emails::send_lookups;
use super::fixture::{assert_redirects_to, shared_fixture};

#[tokio::test(flavor = "multi_thread")]
async fn past_pause_opens_from_the_history_and_from_the_email() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("archive", Scope::Ip).await;
    let key_page = format!("/keys/{}", key.id);
    assert_eq!(send_lookups(fixture, &key, 301).await, 429);
    let email = fixture.smtp.wait_for_email(&member.email, "archive: Paused").await.expect("email arrives");
    let pause_page = format!("{key_page}/pauses/1");
    assert!(email.links().iter().any(|link| link.ends_with(&pause_page)), "{}", email.text);

    let paused = member.browser.get(&pause_page).await.text();
    assert!(paused.contains("Not resumed yet.") && paused.contains("action=\"/keys/"), "{paused}");
    assert_redirects_to(&member.browser.post(&format!("{key_page}/resume"), &[]).await, &key_page);
    let history = member.browser.get(&key_page).await.text();
    assert!(history.contains(&format!("href=\"{pause_page}\"")), "{history}");
    let past = member.browser.get(&pause_page).await.text();
    assert!(past.contains("class=\"chart seconds\" data-counts=\"0,0,") && past.contains("<dd>301</dd>"), "{past}");
    assert!(past.contains(" by you.") && !past.contains(&format!("action=\"{key_page}/resume\"")), "{past}");
    for other in ["0", "2", "-1", "x", "9999999999999999999"] {
        assert_eq!(member.browser.get(&format!("{key_page}/pauses/{other}")).await.status, 404, "{other}");
    }
    // It stays reachable after many later events.
    fixture
        .psql(&format!(
            "insert into history (key_id, at, act, actor) select '{}', now(), 'renamed', 'owner' from generate_series(1, 60)",
            key.id
        ))
        .await;
    let newest = member.browser.get(&key_page).await.text();
    assert!(!newest.contains(&pause_page), "{newest}");
    let (_, older) = newest.split_once("id=\"older\" href=\"").expect("there are older events");
    let older = member.browser.get(older.split_once('"').expect("the link ends").0).await.text();
    assert!(older.contains(&format!("href=\"{pause_page}\"")) && !older.contains("id=\"older\""), "{older}");
    let mut stranger = fixture.create_member().await;
    assert_eq!(stranger.browser.get(&pause_page).await.status, 404);
}
