//! A browser without scripts. It stores cookies, does not follow redirects, and reads the CSRF token of pages.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use http::Method;
use ipseity_testkit::{Node, StreamingResponse, TestClient, TestResponse};

use super::fixture::fresh_secret;

/// The session cookie.
pub(crate) const SESSION_COOKIE: &str = "__Host-ipseity";
/// The session cookie of the admin console.
pub(crate) const CONSOLE_COOKIE: &str = "__Host-ipseity-console";
/// The device cookie of a browser that signed in before.
pub(crate) const DEVICE_COOKIE: &str = "__Host-device";

/// The header that browsers send with a form of the same origin.
pub(crate) const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");

/// A browser on the portal or the admin console of one node.
pub(crate) struct Browser {
    client: TestClient,
    session_cookie: &'static str,
    /// Pages of which one has a form, for visitors as well as members.
    form_pages: &'static [&'static str],
    /// Headers of every request, such as `x-forwarded-for`.
    extra_headers: Vec<(String, String)>,
    cookies: BTreeMap<String, String>,
    csrf_token: Option<String>,
}

impl Browser {
    pub(crate) fn open(node: &Node) -> Self {
        Self {
            client: node.client(),
            session_cookie: SESSION_COOKIE,
            form_pages: &["/leaked-keys"],
            extra_headers: Vec::new(),
            cookies: BTreeMap::new(),
            csrf_token: None,
        }
    }

    /// A browser in the admin console of a node.
    pub(crate) fn open_console(node: &Node) -> Self {
        Self::open_console_from(node, Ipv4Addr::LOCALHOST)
    }

    /// A browser at this address in the admin console of a node.
    pub(crate) fn open_console_from(node: &Node, source: Ipv4Addr) -> Self {
        let host = node.console_url().replace("http://", "");
        Self {
            client: TestClient::from_source(node.console(), source.into()).with_host(&host),
            session_cookie: CONSOLE_COOKIE,
            form_pages: &["/signin", "/profile"],
            ..Self::open(node)
        }
    }

    /// The same browser with another client address.
    pub(crate) fn with_network(mut self, address: &str) -> Self {
        self.set_extra_headers(vec![("x-forwarded-for".to_owned(), address.to_owned())]);
        self
    }

    /// Sends these headers with every further request.
    pub(crate) fn set_extra_headers(&mut self, extra_headers: Vec<(String, String)>) {
        self.extra_headers = extra_headers;
    }

    /// The same cookies on another node.
    pub(crate) fn on_node(&self, node: &Node) -> Self {
        let Self { extra_headers, cookies, csrf_token, .. } = self;
        Self {
            extra_headers: extra_headers.clone(),
            cookies: cookies.clone(),
            csrf_token: csrf_token.clone(),
            ..Self::open(node)
        }
    }

    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.get(name).map(String::as_str)
    }

    /// Sets a cookie.
    pub(crate) fn set_cookie(&mut self, name: &str, value: &str) {
        self.cookies.insert(name.to_owned(), value.to_owned());
        self.csrf_token = None;
    }

    pub(crate) async fn get(&mut self, path: &str) -> TestResponse {
        self.send(Method::GET, path).await
    }

    /// Sends a request without a body.
    pub(crate) async fn send(&mut self, method: Method, path: &str) -> TestResponse {
        let headers = self.request_headers(&[]);
        let reply = self.client.send(method, path, &as_str_pairs(&headers)).await.expect("response arrives");
        self.store_cookies(reply)
    }

    /// Submits a form as a page would, with the CSRF token, and with the token of a form that works once.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> TestResponse {
        let (csrf_token, form_token) = (self.csrf_token().await, fresh_secret());
        let tokens = [("csrf", csrf_token.as_str()), ("form", &form_token)];
        self.post_with(path, &[SAME_ORIGIN], &[&tokens, fields].concat()).await
    }

    /// Submits a form with exactly these headers and fields.
    pub(crate) async fn post_with(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> TestResponse {
        let headers = self.request_headers(headers);
        let reply = self.client.post_form(path, &as_str_pairs(&headers), fields).await.expect("response arrives");
        self.store_cookies(reply)
    }

    /// Sends a body of another content type.
    pub(crate) async fn post_body(&mut self, path: &str, kind: &str, body: String) -> TestResponse {
        let headers = self.request_headers(&[SAME_ORIGIN, ("content-type", kind)]);
        let reply = self.client.post(path, &as_str_pairs(&headers), body).await.expect("response arrives");
        self.store_cookies(reply)
    }

    /// Opens a streaming response on a new connection.
    pub(crate) async fn open_stream(&self, node: &Node, path: &str) -> StreamingResponse {
        node.client().get_streaming(path, &as_str_pairs(&self.request_headers(&[]))).await.expect("response arrives")
    }

    /// The CSRF token of this session, which is the same on every page.
    pub(crate) async fn csrf_token(&mut self) -> String {
        for page in self.form_pages {
            if self.csrf_token.is_none() {
                self.get(page).await;
            }
        }
        self.csrf_token.clone().expect("page has a form")
    }

    fn request_headers(&self, own: &[(&str, &str)]) -> Vec<(String, String)> {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = (!cookies.is_empty()).then(|| ("cookie".to_owned(), cookies.join("; ")));
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        cookies.into_iter().chain(self.extra_headers.clone()).chain(own).collect()
    }

    /// Stores the cookies and the CSRF token of a response.
    fn store_cookies(&mut self, reply: TestResponse) -> TestResponse {
        for line in reply.headers.get_all("set-cookie") {
            let line = line.to_str().expect("cookie is ASCII");
            let (name, value) =
                line.split(';').next().and_then(|pair| pair.split_once('=')).expect("cookie has a name and a value");
            if self.cookies.insert(name.to_owned(), value.to_owned()).as_deref() != Some(value)
                && name == self.session_cookie
            {
                self.csrf_token = None;
            }
        }
        self.csrf_token = csrf_token_in(&reply.text()).or(self.csrf_token.take());
        reply
    }
}

fn as_str_pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// The CSRF token of a page's forms.
fn csrf_token_in(page: &str) -> Option<String> {
    let (_, after) = page.split_once("name=\"csrf\" value=\"")?;
    after.split('"').next().map(str::to_owned)
}
