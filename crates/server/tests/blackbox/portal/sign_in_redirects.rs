//! Where a sign-in leads: to the page that was requested, and never to another site.

use ipseity_domain::Scope;

use super::fixture::{PASSWORD, shared_fixture};

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_returns_to_the_requested_page() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("deep", Scope::Ip).await;
    let page = format!("/keys/{}", key.id);
    let mut browser = fixture.browser();
    let redirect = browser.get(&page).await;
    let sign_in_path = format!("/signin?next={page}");
    assert_eq!((redirect.status, redirect.header("location")), (303, Some(sign_in_path.as_str())));
    let form = browser.get(&sign_in_path).await.text();
    assert!(form.contains("Sign in to see this page."), "{form}");
    let next_field = format!("name=\"next\" value=\"{page}\"");
    assert!(form.contains(&next_field), "{form}");
    let wrong = [("email", member.email.as_str()), ("password", "not the password"), ("next", &page)];
    assert!(browser.post("/signin", &wrong).await.text().contains(&next_field), "after a wrong password");
    let form = [("email", member.email.as_str()), ("password", PASSWORD), ("next", &page)];
    assert_eq!(browser.post("/signin", &form).await.header("location"), Some(page.as_str()));

    for (path, location) in [
        ("/signin", "/keys"),
        ("/signup", "/keys"),
        ("/signin?next=/account", "/account"),
        ("/signin?next=//evil.example", "/keys"),
    ] {
        let reply = browser.get(path).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some(location)), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_never_leads_to_another_site() {
    let fixture = shared_fixture().await;
    let member = fixture.create_member().await;
    for next in [
        "//evil.example",
        "/\\evil.example",
        "%2f%2fevil.example",
        "/%2fevil.example",
        "https://evil.example/keys",
        "javascript:alert(1)",
        "/keys.evil.example",
        "/keys\r\nset-cookie: a=b",
        "/keys\u{0}",
        "\t//evil.example",
        "/signout",
    ] {
        let form = [("email", member.email.as_str()), ("password", PASSWORD), ("next", next)];
        let reply = fixture.browser().post("/signin", &form).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/keys")), "{next:?}");
    }
    for query in ["//evil.example", "/\\evil.example", "%2f%2fevil.example", "https://evil.example"] {
        let page = fixture.browser().get(&format!("/signin?next={query}")).await.text();
        assert!(page.contains("name=\"next\" value=\"\"") && !page.contains("evil.example"), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_session_is_explained() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let mut other = fixture.browser();
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_eq!(other.post("/signin", &form).await.status, 303);
    assert_eq!(member.browser.post("/account/sessions/end-others", &[]).await.status, 303);
    let reply = other.get("/usage").await;
    assert_eq!(reply.header("location"), Some("/signin?next=/usage"));
    assert!(other.get("/signin?next=/usage").await.text().contains("You’re no longer signed in here"));
    let lost_form = other.post("/account/alerts", &[]).await;
    assert_eq!(lost_form.header("location"), Some("/signin?next=/account"));
}
