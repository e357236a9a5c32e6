//! Email addresses: each has one form, and emails go only to the address of the account.

use super::fixture::{
    PASSWORD, PortalFixture, assert_redirects_to, fresh_email, fresh_email_with_look_alikes, shared_fixture,
};

/// The recipients of all remaining emails whose address contains this text.
fn recipients_containing(fixture: &PortalFixture, text: &str) -> Vec<String> {
    let recipients = fixture.smtp.emails().into_iter().flat_map(|email| email.to);
    recipients.filter(|to| to.contains(text)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn password_reset_for_a_look_alike_goes_to_no_other_mailbox() {
    let fixture = shared_fixture().await;
    let (email, look_alikes) = fresh_email_with_look_alikes();
    fixture.create_member_with_email(email.clone()).await;
    let mut stranger = fixture.browser();
    for typed in look_alikes.iter().chain([&email.to_uppercase(), &email]) {
        assert_eq!(stranger.post("/forgot", &[("email", typed)]).await.status, 200, "{typed}");
    }
    // Emails are sent in the order of their requests, so those to look-alikes would have arrived before.
    fixture.emailed_link_path(&email, "password").await;
    let (name, _) = email.split_once('@').expect("email has a name");
    let recipients = recipients_containing(fixture, name);
    assert!(recipients.iter().all(|to| *to == email), "{recipients:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn address_with_a_name_quotes_or_a_comment_gets_no_email() {
    let fixture = shared_fixture().await;
    let target = fresh_email();
    let (name, domain) = target.split_once('@').expect("email has a name");
    let mut browser = fixture.browser();
    for typed in [
        format!("Prize<{target}>"),
        format!("\"Win.a.prize:http://evil.example/0\"<{target}>"),
        format!("a0.b<{target}>"),
        format!("<{target}>"),
        format!("\"{name}\"@{domain}"),
        format!("{name}(prize)@{domain}"),
        format!("{target}(prize)"),
        format!("{name}\u{e9}@{domain}"),
    ] {
        for (path, fields) in [("/signup", &[("password", PASSWORD)][..]), ("/forgot", &[])] {
            let reply = browser.post(path, &[&[("email", typed.as_str())], fields].concat()).await;
            assert_eq!(reply.status, 200, "{typed}");
            assert!(reply.text().contains("Enter a valid email address"), "{path} accepted {typed}");
        }
    }
    let requests = format!("select count(*) from tickets where position('{name}' in email) > 0");
    assert_eq!(fixture.psql(&requests).await, "0");
    browser.post("/signup", &[("email", &target), ("password", PASSWORD)]).await;
    fixture.emailed_link_path(&target, "Confirm").await;
    assert_eq!(recipients_containing(fixture, name), [""; 0], "the plain address gets the only email");
}

#[tokio::test(flavor = "multi_thread")]
async fn international_domain_is_used_in_its_ascii_form() {
    let fixture = shared_fixture().await;
    let name = format!("{:016x}", fastrand::u64(..));
    let (typed, email) = (format!("{name}@B\u{fc}cher.example"), format!("{name}@xn--bcher-kva.example"));
    let mut browser = fixture.browser();
    let reply = browser.post("/signup", &[("email", &typed), ("password", PASSWORD)]).await;
    assert!(reply.text().contains(&email), "the page names the recipient: {}", reply.text());
    let link = fixture.emailed_link_path(&email, "Confirm").await;
    assert_redirects_to(&browser.post(&link, &[]).await, "/keys");
    for spelling in [typed, email] {
        let signed_in = fixture.browser().post("/signin", &[("email", &spelling), ("password", PASSWORD)]).await;
        assert_redirects_to(&signed_in, "/keys");
    }
}
