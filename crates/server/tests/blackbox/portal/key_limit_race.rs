//! Concurrent key creation in two browsers.

use futures_util::future::join_all;

use super::browser::Browser;
use super::fixture::{key_shown_on, shared_fixture};

const CONCURRENT_REQUESTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_key_creation_stops_at_ten_keys() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let mut second = fixture.browser();
    let credentials = [("email", member.email.as_str()), ("password", super::fixture::PASSWORD)];
    second.post("/signin", &credentials).await;
    // The tokens are fetched before the race, and every request uses a separate connection.
    for browser in [&mut member.browser, &mut second] {
        browser.csrf_token().await;
    }
    let browsers: Vec<Browser> = (0..CONCURRENT_REQUESTS)
        .map(|index| if index % 2 == 0 { &member.browser } else { &second }.on_node(fixture.node()))
        .collect();
    let create_key = async |(index, mut browser): (usize, Browser)| {
        browser.post("/keys", &[("name", &format!("racer {index}")), ("scope", "ip")]).await
    };
    let pages = join_all(browsers.into_iter().enumerate().map(create_key)).await;

    let (created, rejected): (Vec<_>, Vec<_>) = pages.iter().partition(|page| key_shown_on(page).is_some());
    assert_eq!((created.len(), rejected.len()), (10, CONCURRENT_REQUESTS - 10));
    for page in rejected {
        assert_eq!(page.status, 200);
        // The form again, with the typed name and the reason.
        let text = page.text();
        assert!(
            text.contains("role=\"alert\"") && text.contains("10 keys") && text.contains("value=\"racer "),
            "{text}"
        );
    }
    let rows = format!(
        "select count(*), count(distinct seat), count(distinct digest) from keys where account_id = {}",
        member.id
    );
    assert_eq!(fixture.psql(&rows).await, "10|10|10");
    let history = "select count(*) from history join keys on keys.id = key_id where act = 'issued' and account_id";
    assert_eq!(fixture.psql(&format!("{history} = {}", member.id)).await, "10");
    let list = member.browser.get("/keys").await.text();
    assert_eq!(list.matches("<li class=\"key ").count(), 10);
}
