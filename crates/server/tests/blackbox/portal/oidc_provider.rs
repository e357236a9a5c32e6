//! An independent OpenID Connect provider (npm `oidc-provider`) for members. `just oidc` runs it, and the tests with its URL.

use std::collections::BTreeMap;
use std::fs;

use http::Method;
use http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use ipseity_testkit::{TestDir, TestResponse};
use reqwest::{Client, Url, redirect};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use super::browser::Browser;
use super::fixture::{PASSWORD, PortalFixture, TestMember};

const CLIENT_ID: &str = "portal";
const CLIENT_SECRET: &str = "a secret of the portal";
const LINK: &str = "/account/sign-in/providers/0";
const SIGN_IN: &str = "/signin/provider/0";
const STEPS_MAX: usize = 10;

/// A deployment with this provider, the only one of its portal.
pub(super) struct ProviderFixture {
    pub(super) portal: PortalFixture,
    http: Client,
    issuer: String,
    redirect_url: String,
    /// Tests change the provider, so only one of them uses it at a time.
    turn: Mutex<()>,
    _dir: TestDir,
}

static FIXTURE: OnceCell<Option<ProviderFixture>> = OnceCell::const_new();

/// The shared fixture, for one test at a time. `None` if no provider runs.
pub(super) async fn provider_fixture() -> Option<(&'static ProviderFixture, MutexGuard<'static, ()>)> {
    let fixture = FIXTURE.get_or_init(ProviderFixture::open).await.as_ref()?;
    let turn = fixture.turn.lock().await;
    fixture.reset().await;
    Some((fixture, turn))
}

/// The claims of a person at the provider.
pub(super) fn person(email: &str) -> Value {
    json!({ "email": email, "email_verified": true })
}

impl ProviderFixture {
    async fn open() -> Option<Self> {
        let issuer = format!("{}/members", std::env::var("IPSEITY_TEST_OIDC_PROVIDER").ok()?);
        let dir = TestDir::create().expect("directory is created");
        let secret_file = dir.path().join("client_secret");
        fs::write(&secret_file, CLIENT_SECRET).expect("file is written");
        let settings = [
            ("IPSEITY__PORTAL__OIDC_NAME", "Company"),
            ("IPSEITY__PORTAL__OIDC_ISSUER", issuer.as_str()),
            ("IPSEITY__PORTAL__OIDC_CLIENT_ID", CLIENT_ID),
            ("IPSEITY__PORTAL__OIDC_CLIENT_SECRET_FILE", &secret_file.display().to_string()),
        ];
        let portal = PortalFixture::open(&settings).await;
        let base_url = &portal.node().env()["IPSEITY__PUBLIC__BASE_URL"];
        let redirect_url = format!("{base_url}/signin/callback/oidc");
        // A connection ends with the runtime of its test.
        let http = Client::builder().redirect(redirect::Policy::none()).no_proxy().pool_max_idle_per_host(0).build();
        let http = http.expect("client is created");
        Some(Self { portal, http, issuer, redirect_url, turn: Mutex::new(()), _dir: dir })
    }

    /// Undoes what other tests changed. Two people have the same address.
    async fn reset(&self) {
        let client = json!({
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_uris": [self.redirect_url],
        });
        self.change(json!({
            "clients": [client],
            "accounts": { "ada": person("ada@example.com"), "bob": person("ada@example.com") },
            "claims": {},
        }))
        .await;
        self.portal.psql("delete from identities").await;
    }

    /// Changes the settings of the provider.
    pub(super) async fn change(&self, settings: Value) {
        let response = self.http.put(&self.issuer).body(settings.to_string()).send().await.expect("provider responds");
        assert_eq!(response.status(), 204);
    }

    /// Begins to link an account. The person signs in at the provider. Returns the path that the browser is sent back to.
    pub(super) async fn begin_link(&self, browser: &mut Browser, login: &str) -> String {
        let page = browser.post(LINK, &[("password", PASSWORD)]).await;
        self.visit(&page, Some(login)).await
    }

    /// The same for a sign-in that then leads to `next`.
    pub(super) async fn begin_sign_in(&self, browser: &mut Browser, login: &str, next: &str) -> String {
        let page = browser.post(SIGN_IN, &[("next", next)]).await;
        self.visit(&page, Some(login)).await
    }

    pub(super) async fn link(&self, member: &mut TestMember, login: &str) -> TestResponse {
        let callback = self.begin_link(&mut member.browser, login).await;
        member.browser.get(&callback).await
    }

    pub(super) async fn sign_in(&self, browser: &mut Browser, login: &str) -> TestResponse {
        let callback = self.begin_sign_in(browser, login, "").await;
        browser.get(&callback).await
    }

    /// Follows the link of a page to the provider, and the provider's redirects and forms like a browser. Without a login, the
    /// person cancels. Returns the path that the browser is sent back to.
    pub(super) async fn visit(&self, page: &TestResponse, login: Option<&str>) -> String {
        let (mut url, mut form, mut cookies) = (link_to_provider(page), None, BTreeMap::new());
        assert!(url.as_str().starts_with(&self.issuer), "{url}");
        for _ in 0..STEPS_MAX {
            let header = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
            let method = if form.is_some() { Method::POST } else { Method::GET };
            let request = self.http.request(method, url.clone()).header(COOKIE, header);
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            let response = request.body(form.take().unwrap_or_default()).send().await.expect("provider responds");
            for cookie in response.headers().get_all(SET_COOKIE) {
                let pair = cookie.to_str().expect("cookie is ASCII").split(';').next().unwrap_or_default();
                let (name, value) = pair.split_once('=').expect("cookie has a name and a value");
                cookies.insert(name.to_owned(), value.to_owned());
            }
            if let Some(location) = response.headers().get(LOCATION) {
                url = url.join(location.to_str().expect("location is ASCII")).expect("location is a URL");
                if url.as_str().starts_with(&self.redirect_url) {
                    return format!("{}?{}", url.path(), url.query().unwrap_or_default());
                }
                continue;
            }
            let page = response.text().await.expect("page is text");
            match login {
                None => url = Url::parse(&format!("{url}/abort")).expect("URL is valid"),
                Some(login) if page.contains(r#"name="prompt" value="login""#) => {
                    form = Some(format!("prompt=login&login={login}&password=any"));
                }
                Some(_) => {
                    assert!(page.contains(r#"name="prompt" value="consent""#), "{page}");
                    form = Some("prompt=consent".to_owned());
                }
            }
        }
        panic!("the provider did not redirect to the portal");
    }
}

/// The link of the page that continues at the provider.
pub(super) fn link_to_provider(page: &TestResponse) -> Url {
    let text = page.text();
    let (_, rest) = text.split_once(r#"id="continue" class="button primary" href=""#).unwrap_or_else(|| {
        panic!("no link to a provider: {} {text}", page.status);
    });
    let href = rest.split('"').next().unwrap_or_default();
    Url::parse(&href.replace("&#38;", "&").replace("&amp;", "&")).expect("link is a URL")
}
