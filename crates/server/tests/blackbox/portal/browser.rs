//! A browser without script: keeps cookies, follows no redirect by itself, and finds the token of the forms that it is shown.

use std::collections::BTreeMap;

use http::Method;
use testkit::{Caller, Node, Reply, Stream};

/// The cookie of a visit, and of a session once somebody signed in.
pub(crate) const SESSION: &str = "__Host-ipseity";
/// The cookie of a browser that signed in before.
pub(crate) const DEVICE: &str = "__Host-device";

/// What browsers say of a form that was sent from our own page.
pub(crate) const OWN_PAGE: (&str, &str) = ("sec-fetch-site", "same-origin");

/// A browser on one node.
pub(crate) struct Browser {
    caller: Caller,
    /// What else it says of itself with every request, such as where it is, to a node that believes it.
    lines: Vec<(String, String)>,
    cookies: BTreeMap<String, String>,
    token: Option<String>,
}

impl Browser {
    pub(crate) fn open(node: &Node) -> Self {
        Self { caller: node.caller(), lines: Vec::new(), cookies: BTreeMap::new(), token: None }
    }

    /// The same browser, as seen from another network.
    pub(crate) fn in_network(mut self, address: &str) -> Self {
        self.say(vec![("x-forwarded-for".to_owned(), address.to_owned())]);
        self
    }

    /// Says this with every request from now on, beside cookies.
    pub(crate) fn say(&mut self, lines: Vec<(String, String)>) {
        self.lines = lines;
    }

    /// The same cookies on another node.
    pub(crate) fn on(&self, node: &Node) -> Self {
        let Self { lines, cookies, token, .. } = self;
        Self { caller: node.caller(), lines: lines.clone(), cookies: cookies.clone(), token: token.clone() }
    }

    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.get(name).map(String::as_str)
    }

    /// Plants a cookie, as if it had been there before.
    pub(crate) fn set_cookie(&mut self, name: &str, value: &str) {
        self.cookies.insert(name.to_owned(), value.to_owned());
        self.token = None;
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.send(Method::GET, path).await
    }

    /// Asks with any method and no body.
    pub(crate) async fn send(&mut self, method: Method, path: &str) -> Reply {
        let headers = self.headers(&[]);
        let reply = self.caller.send(method, path, &borrowed(&headers)).await.expect("an answer");
        self.learn(reply)
    }

    /// Sends a form as our own page would, with its token.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let token = self.token().await;
        self.post_with(path, &[OWN_PAGE], &[&[("csrf", token.as_str())], fields].concat()).await
    }

    /// Sends a form with just these headers and fields.
    pub(crate) async fn post_with(&mut self, path: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Reply {
        let headers = self.headers(headers);
        let reply = self.caller.post_form(path, &borrowed(&headers), fields).await.expect("an answer");
        self.learn(reply)
    }

    /// Sends a body that no form of ours makes.
    pub(crate) async fn post_body(&mut self, path: &str, kind: &str, body: String) -> Reply {
        let headers = self.headers(&[OWN_PAGE, ("content-type", kind)]);
        let reply = self.caller.post(path, &borrowed(&headers), body).await.expect("an answer");
        self.learn(reply)
    }

    /// Opens an answer that goes on, on a connection of its own.
    pub(crate) async fn listen(&self, node: &Node, path: &str) -> Stream {
        node.caller().listen(path, &borrowed(&self.headers(&[]))).await.expect("an answer")
    }

    /// The token of this visit's forms; every page with a form shows the same.
    pub(crate) async fn token(&mut self) -> String {
        if self.token.is_none() {
            self.get("/signin").await;
        }
        self.token.clone().expect("a page with a form")
    }

    fn headers(&self, own: &[(&str, &str)]) -> Vec<(String, String)> {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = (!cookies.is_empty()).then(|| ("cookie".to_owned(), cookies.join("; ")));
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        cookies.into_iter().chain(self.lines.clone()).chain(own).collect()
    }

    /// Keeps what an answer brought.
    fn learn(&mut self, reply: Reply) -> Reply {
        for line in reply.headers.get_all("set-cookie") {
            let line = line.to_str().expect("a cookie in plain text");
            let (name, value) =
                line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a name and a value");
            if self.cookies.insert(name.to_owned(), value.to_owned()).as_deref() != Some(value) && name == SESSION {
                self.token = None;
            }
        }
        self.token = token_in(&reply.text()).or(self.token.take());
        reply
    }
}

fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// The token of a page's forms.
fn token_in(page: &str) -> Option<String> {
    let (_, after) = page.split_once("name=\"csrf\" value=\"")?;
    after.split('"').next().map(str::to_owned)
}
