//! Two tabs that make keys at once.

use futures_util::future::join_all;

use super::browser::Browser;
use super::stage::{minted_in, stage};

const RACERS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_from_two_browsers_make_exactly_ten_keys() {
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    let mut second = stage.browser();
    let credentials = [("email", member.email.as_str()), ("password", super::stage::PASSWORD)];
    second.post("/signin", &credentials).await;
    // The token is known before the race, and every racer has its own connection.
    for browser in [&mut member.browser, &mut second] {
        browser.token().await;
    }
    let racers: Vec<Browser> =
        (0..RACERS).map(|at| if at % 2 == 0 { &member.browser } else { &second }.on(stage.node())).collect();
    let make = async |(at, mut browser): (usize, Browser)| {
        browser.post("/keys", &[("name", &format!("racer {at}")), ("scope", "ip")]).await
    };
    let pages = join_all(racers.into_iter().enumerate().map(make)).await;

    let (made, refused): (Vec<_>, Vec<_>) = pages.iter().partition(|page| minted_in(page).is_some());
    assert_eq!((made.len(), refused.len()), (10, RACERS - 10));
    for page in refused {
        assert_eq!(page.status, 200);
        // The form again, with what was typed, and the reason.
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
    assert_eq!(stage.psql(&rows).await, "10|10|10");
    let history = "select count(*) from history join keys on keys.id = key_id where act = 'issued' and account_id";
    assert_eq!(stage.psql(&format!("{history} = {}", member.id)).await, "10");
    let list = member.browser.get("/keys").await.text();
    assert_eq!(list.matches("id=\"key-").count(), 10);
}
