//! Paths without a route: a page for browsers, the API's JSON error for all other clients.

use http::Method;
use ipseity_testkit::TestResponse;

use super::browser::Browser;
use super::fixture::{fresh_secret, shared_fixture};

/// What a browser sends when a person opens a URL.
const NAVIGATION: (&str, &str) = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

async fn request(browser: &mut Browser, method: Method, path: &str, accept: &[(&str, &str)]) -> TestResponse {
    let accept = accept.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    browser.set_extra_headers(accept);
    browser.send(method, path).await
}

fn is_page(reply: &TestResponse) -> bool {
    reply.header("content-type").is_some_and(|kind| kind.starts_with("text/html"))
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_gets_a_page_for_an_unknown_path() {
    let fixture = shared_fixture().await;
    let member = fixture.create_member().await.browser;
    let mistyped = format!("/{}", fresh_secret());
    for (mut browser, link) in [(fixture.browser(), "href=\"/signin\""), (member, "action=\"/signout\"")] {
        let reply = request(&mut browser, Method::GET, &mistyped, &[NAVIGATION]).await;
        let page = reply.text();
        assert_eq!((reply.status, is_page(&reply)), (404, true));
        assert!(page.contains("<h1>Page not found</h1>") && page.contains(link), "{page}");
        assert!(reply.header("content-security-policy").is_some() && !page.contains(&mistyped));
        let head = request(&mut browser, Method::HEAD, &mistyped, &[NAVIGATION]).await;
        assert_eq!((head.status, is_page(&head)), (404, true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_clients_get_the_error_of_the_api() {
    let fixture = shared_fixture().await;
    let mut browser = fixture.browser();
    let any: &[(&str, &str)] = &[("accept", "*/*")];
    let json: &[(&str, &str)] = &[("accept", "application/json")];
    for (method, path, accept) in [
        (Method::GET, "/pricing", &[][..]),
        (Method::GET, "/pricing", any),
        (Method::GET, "/pricing", json),
        (Method::POST, "/pricing", &[NAVIGATION]),
        (Method::GET, "/api", &[NAVIGATION]),
        (Method::GET, "/api/v1/ip/8.8.8.8", &[NAVIGATION]),
    ] {
        let reply = request(&mut browser, method.clone(), path, accept).await;
        assert_eq!((reply.status, is_page(&reply)), (404, false), "{method} {path} {accept:?}");
        assert_eq!(reply.json().expect("body is JSON")["error"], "not_found");
    }
}
