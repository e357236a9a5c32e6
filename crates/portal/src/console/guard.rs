//! Runs before every handler: finds the operator, checks the role that the table of routes states, and renders errors.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{HOST, ORIGIN, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

use crate::auth::session_cookie::SessionCookie;
use crate::auth::throttle::RetryAfter;
use crate::console::error::ConsoleError;
use crate::console::operator::ConsoleVisitor;
use crate::console::routes::ConsoleAccess;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::ConsoleErrorPage;
use crate::page::render_page;

/// Finds the operator and checks the role. The handler gets the [`ConsoleVisitor`].
pub(super) async fn authorize(
    State((console, access)): State<(Arc<Console>, ConsoleAccess)>,
    mut request: Request,
    next: Next,
) -> Response {
    let session_cookie = SessionCookie::of_console(request.headers());
    let found = console.find_operator(&session_cookie).await;
    let is_form = request.method() == Method::POST;
    let (signed_in, error) = match found {
        Ok(signed_in) => (signed_in, None),
        Err(error) => (None, Some(error)),
    };
    let visitor = ConsoleVisitor::new(session_cookie, signed_in, request.uri().query());
    let error = error.or_else(|| check(&console, access, &visitor, is_form).err());
    let response = if let Some(error) = error {
        error.into_response()
    } else {
        request.extensions_mut().insert(visitor.clone());
        let response = tokio::time::timeout(console.settings.page_timeout, next.run(request)).await;
        response.unwrap_or_else(|_elapsed| {
            tracing::error!("page of the console timed out");
            ConsoleError::Unavailable.into_response()
        })
    };
    render_error(&visitor, response)
}

fn check(
    console: &Console,
    access: ConsoleAccess,
    visitor: &ConsoleVisitor,
    is_form: bool,
) -> Result<(), ConsoleError> {
    let Some(role) = access.role() else { return Ok(()) };
    let operator = &visitor.signed_in.as_ref().ok_or(ConsoleError::NotSignedIn)?.operator;
    if operator.role < role {
        return Err(ConsoleError::RoleNeeded(role));
    }
    if is_form {
        console.action_throttle.record_attempt(operator.id)?;
    }
    Ok(())
}

fn render_error(visitor: &ConsoleVisitor, mut response: Response) -> Response {
    let Some(error) = response.extensions_mut().remove::<Arc<ConsoleError>>() else { return response };
    if matches!(*error, ConsoleError::NotSignedIn) {
        return Redirect::to("/signin").into_response();
    }
    let (heading, message) = error.heading_and_message();
    let mut response =
        render_page(&ConsoleErrorPage { frame: visitor.frame(heading, ConsoleTab::None), heading, message });
    *response.status_mut() = error.status();
    if let ConsoleError::Throttled(RetryAfter(wait)) = *error {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    response
}

/// Rejects requests for other hosts, and forms of other origins. A page can let its name lead to this listener (DNS
/// rebinding), but the browser sends the name.
pub(super) async fn check_host_and_origin(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let url = &console.settings.url;
    if !has_host_of(url, &request) {
        let text = format!("The admin console answers at {url} only.\n");
        return (http::StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    let visitor = ConsoleVisitor::new(SessionCookie::of_console(request.headers()), None, None);
    let response = if has_origin_of(url, request.headers()) {
        next.run(request).await
    } else {
        ConsoleError::CrossOrigin.into_response()
    };
    // A layer between this and the pages also rejects forms of other origins.
    render_error(&visitor, response)
}

fn has_host_of(url: &Url, request: &Request) -> bool {
    let expected = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut hosts = request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
    let host = request.uri().authority().map(|authority| authority.as_str().as_bytes()).or_else(|| hosts.next());
    let is_expected = |host: &[u8]| host.eq_ignore_ascii_case(expected.as_bytes());
    host.is_some_and(is_expected) && hosts.all(is_expected)
}

/// A request without the header is no form of a browser.
fn has_origin_of(url: &Url, headers: &HeaderMap) -> bool {
    let expected = url.origin().ascii_serialization();
    headers.get_all(ORIGIN).iter().all(|origin| origin.as_bytes() == expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_the_configured_host_is_answered() {
        let is_answered = |url: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri("/");
            for host in hosts {
                request = request.header(HOST, *host);
            }
            has_host_of(&Url::parse(url).expect("URL"), &request.body(Body::empty()).expect("request"))
        };
        let local = "http://localhost:9470";
        assert!(is_answered(local, &["localhost:9470"]) && is_answered(local, &["LocalHost:9470"]));
        assert!(is_answered("https://admin.ipseity.example", &["admin.ipseity.example"]));
        for hosts in [
            &[][..],
            &["localhost"],
            &["127.0.0.1:9470"],
            &["rebind.evil.example:9470"],
            &["localhost:9470.evil.example"],
            &["localhost:9470", "evil.example"],
        ] {
            assert!(!is_answered(local, hosts), "{hosts:?}");
        }
    }

    #[test]
    fn forms_of_other_origins_are_rejected() {
        let url = Url::parse("http://localhost:9470").expect("URL");
        let is_allowed = |origins: &[&'static str]| {
            has_origin_of(&url, &origins.iter().map(|origin| (ORIGIN, HeaderValue::from_static(origin))).collect())
        };
        assert!(is_allowed(&[]) && is_allowed(&["http://localhost:9470"]));
        for origins in [
            &["null"][..],
            &["https://localhost:9470"],
            &["http://localhost"],
            &["http://evil.example"],
            &["http://localhost:9470", "http://evil.example"],
        ] {
            assert!(!is_allowed(origins), "{origins:?}");
        }
    }
}
