//! Security headers of every page: cookie attributes and the content security policy.

use ipseity_testkit::TestResponse;

use super::browser::{DEVICE_COOKIE, SESSION_COOKIE};
use super::fixture::{PASSWORD, assert_redirects_to, shared_fixture};
use super::routes::{AccountFixture, ROUTE_CASES};

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const PERMISSIONS_POLICY: &str = "accelerometer=(), autoplay=(), camera=(), display-capture=(), encrypted-media=(), fullscreen=(), geolocation=(), \
                      gyroscope=(), hid=(), magnetometer=(), microphone=(), midi=(), payment=(), picture-in-picture=(), \
                      screen-wake-lock=(), serial=(), usb=(), xr-spatial-tracking=()";

fn set_cookie_lines(reply: &TestResponse) -> Vec<String> {
    reply.headers.get_all("set-cookie").iter().map(|line| line.to_str().expect("header is ASCII").to_owned()).collect()
}

/// Asserts that a response sets exactly these cookies, with the expected attributes.
#[track_caller]
fn assert_sets_cookies(reply: &TestResponse, expected: &[(&str, u64)]) {
    let found = set_cookie_lines(reply);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (line, (name, max_age_s)) in found.iter().zip(expected) {
        let (pair, attributes) = line.split_once("; ").expect("cookie has attributes");
        assert_eq!(attributes, format!("Path=/; Max-Age={max_age_s}; Secure; HttpOnly; SameSite=Lax"), "{name}");
        let value =
            pair.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).expect("cookie has the expected name");
        assert!(name.starts_with("__Host-"));
        assert!(value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "256 bits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_host_only_secure_and_http_only() {
    const SESSION_S: u64 = 30 * 86_400;
    const DEVICE_S: u64 = 365 * 86_400;
    let fixture = shared_fixture().await;
    let member = fixture.create_member().await;
    let mut browser = fixture.browser();
    assert_sets_cookies(&browser.get("/signin").await, &[(SESSION_COOKIE, SESSION_S)]);
    assert_sets_cookies(&browser.get("/signin").await, &[]);
    let wrong = [("email", member.email.as_str()), ("password", "not the password")];
    assert_sets_cookies(&browser.post("/signin", &wrong).await, &[]);
    let right = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_sets_cookies(
        &browser.post("/signin", &right).await,
        &[(SESSION_COOKIE, SESSION_S), (DEVICE_COOKIE, DEVICE_S)],
    );
    assert_sets_cookies(&browser.get("/keys").await, &[]);
    assert_sets_cookies(&browser.post("/signout", &[]).await, &[(SESSION_COOKIE, SESSION_S)]);
}

#[track_caller]
fn assert_security_headers(reply: &TestResponse, what: &str) {
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", PERMISSIONS_POLICY),
    ] {
        let lines: Vec<_> = reply.headers.get_all(name).iter().collect();
        assert_eq!(lines, [value], "{name} of {what}");
    }
    assert!(!reply.headers.contains_key("access-control-allow-credentials"), "{what}");
    let text = reply.text();
    for inline in ["<style", "style=\"", "<script>", "javascript:", "onclick=", "onload=", "src=\"http", "src=\"//"] {
        assert!(!text.contains(inline), "{inline} in {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_csp_and_is_not_cached() {
    let fixture = shared_fixture().await;
    let (owner, mut member) = AccountFixture::create(fixture).await;
    for row in ROUTE_CASES.iter().filter(|row| !row.is_form()) {
        let (name, path) = (row.name(), owner.path_for(row));
        if row.is_stream() {
            let stream = member.open_stream(fixture.node(), &path).await;
            let reply = TestResponse { status: stream.status, headers: stream.headers.clone(), body: "".into() };
            assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
            assert_security_headers(&reply, &name);
        } else {
            let reply = member.get(&path).await;
            assert_eq!(reply.status, row.status, "{name}");
            assert_security_headers(&reply, &name);
        }
        assert_security_headers(&fixture.browser().get(&path).await, &format!("{name} for an anonymous visitor"));
    }
    for path in ["/keys/0123456789", "/link/x", "/keys/0123456789/usage.csv"] {
        assert_security_headers(&member.get(path).await, path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_responses_have_security_headers() {
    let fixture = shared_fixture().await;
    for row in ROUTE_CASES.iter().filter(|row| row.is_form()) {
        let (owner, mut browser) = AccountFixture::create(fixture).await;
        assert_security_headers(
            &browser.post_with(&owner.path_for(row), &[], &owner.fields_for(row)).await,
            "a rejected form",
        );
        assert_security_headers(&owner.visit(&mut browser, row).await, &row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_input_is_html_escaped() {
    const TYPED: &str = "\"><script>alert(1)</script>'&amp;";
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key(TYPED, ipseity_domain::Scope::Ip).await;
    let mut anonymous = fixture.browser();
    let mut pages = Vec::new();
    for path in ["/signin", "/signup", "/forgot"] {
        pages.push(anonymous.post(path, &[("email", TYPED), ("password", TYPED)]).await);
    }
    assert_redirects_to(
        &member.browser.post(&format!("/keys/{}/rename", key.id), &[("name", TYPED)]).await,
        &format!("/keys/{}", key.id),
    );
    let own = [format!("/keys/{}", key.id), format!("/keys/{}/delete", key.id)];
    for path in
        ["/keys", "/usage", "/account", "/keys?done=%3Cscript%3E"].into_iter().chain(own.iter().map(String::as_str))
    {
        pages.push(member.browser.get(path).await);
    }
    pages.push(member.browser.post("/keys", &[("name", TYPED), ("scope", TYPED)]).await);
    pages.push(anonymous.get("/docs/search?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await);
    for page in pages {
        assert!(page.status == 200 && !page.text().contains("<script>"), "{}: {}", page.status, page.text());
    }
}
