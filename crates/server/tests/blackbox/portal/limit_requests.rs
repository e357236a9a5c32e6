//! Requests for higher limits: the form of members, and what they see of the answer.

use super::fixture::{assert_redirects_to, shared_fixture};

const PAGE: &str = "/account/limits";

#[tokio::test(flavor = "multi_thread")]
async fn member_requests_a_higher_limit_and_sees_the_answer() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    for (page, link) in [("/account", PAGE), ("/enterprise", PAGE)] {
        assert!(member.browser.get(page).await.text().contains(&format!("href=\"{link}\"")), "{page}");
    }
    for (fields, error) in [
        ([("daily_limit", "10000"), ("message", "A shop")], "Enter a number above your limit of 10,000"),
        ([("daily_limit", "100,000"), ("message", " ")], "Say what it is for"),
    ] {
        let page = member.browser.post(PAGE, &fields).await;
        assert!(page.status == 200 && page.text().contains(error), "{}", page.text());
    }
    let message = "Web & <b>mobile</b>\r\nshop";
    let fields = [("daily_limit", "100,000"), ("message", message)];
    assert_redirects_to(&member.browser.post(PAGE, &fields).await, PAGE);
    let stored = format!(
        "select daily_limit, message = E'Web & <b>mobile</b>\\nshop', state from limit_requests where account_id = {}",
        member.id
    );
    assert_eq!(fixture.psql(&stored).await, "100000|t|open");
    let page = member.browser.get(PAGE).await.text();
    assert!(page.contains(">Open</span>") && page.contains("100,000 requests per key per day"), "{page}");
    assert!(!page.contains("<b>") && !page.contains("name=\"message\""), "there is no form while a request is open");
    let second = member.browser.post(PAGE, &fields).await;
    assert!(second.status == 200 && second.text().contains("Your last request is still open."));

    let decide = "update limit_requests set state = 'declined', answer = 'Please upgrade first.', decided_at = now()";
    fixture.psql(&format!("{decide} where account_id = {}", member.id)).await;
    let page = member.browser.get(PAGE).await.text();
    assert!(page.contains(">Declined</span>") && page.contains("Please upgrade first."), "{page}");
    assert!(page.contains("name=\"message\""), "another request can be made");
    let audited = format!(
        "select string_agg(actor || ' ' || action || ' ' || subject, ', ' order by id) from audit_events where account_id = {} and action like 'limit%'",
        member.id
    );
    assert_eq!(
        fixture.psql(&audited).await,
        "owner limit_requested daily_limit 100000, operator limit_request_declined daily_limit 100000"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_see_the_contact_and_no_form() {
    let fixture = shared_fixture().await;
    let mut browser = fixture.browser();
    assert!(!browser.get("/enterprise").await.text().contains(PAGE));
    assert_redirects_to(&browser.get(PAGE).await, "/signin");
}
