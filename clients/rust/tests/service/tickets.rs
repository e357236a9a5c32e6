//! Tickets: created with a key, used without one.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipseity_client::{ApiError, ApiErrorKind, Client, Error, Geo, Ip, KeyScope, TicketRequest, TicketResponse};
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{CommandOutput, Node, TestDir};
use tokio::sync::OnceCell;

use crate::counting_proxy::CountingProxy;
use crate::{base_url, deployment, issue_key};

/// A node that has the keys for tickets.
async fn node() -> &'static Node {
    static NODE: OnceCell<(Node, TestDir)> = OnceCell::const_new();
    let start = async || {
        let dir = TestDir::create().expect("directory");
        let file = dir.path().join("sealing-keys");
        fs::write(&file, format!("seal {}\n", "1".repeat(64))).expect("write file");
        let env: Env = [("IPSEITY__PUBLIC__SEALING_KEY_FILE".to_owned(), file.display().to_string())].into();
        (deployment().await.start_node(&env).await.expect("node starts"), dir)
    };
    &NODE.get_or_init(start).await.0
}

/// A client with a new key, and the ID of the key.
async fn server<S: KeyScope>(scope: Scope) -> (Client<S>, String) {
    let key = issue_key(deployment().await, scope).await;
    (
        Client::open(&format!("http://{}", node().await.http()), &key.key).expect("create a client").retry_budget(0),
        key.id,
    )
}

/// A client without a key, whose tickets this function returns. The argument is the number of tickets before it.
fn page<R>(url: &str, source: impl Fn(usize) -> R + Send + Sync + 'static) -> (Client<Ip>, Arc<AtomicUsize>)
where
    R: Future<Output = Result<TicketResponse, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let source = move || source(counted.fetch_add(1, Ordering::Relaxed));
    (Client::open_with_tickets(url, source).expect("create a client"), count)
}

fn unwrap_api_error<A: std::fmt::Debug>(outcome: Result<A, Error>) -> ApiError {
    let error = outcome.expect_err("the request fails");
    let Error::Api(api_error) = error else { panic!("{error}") };
    *api_error
}

#[tokio::test(flavor = "multi_thread")]
async fn server_creates_a_ticket_without_a_charge() {
    let (client, _) = server::<Geo>(Scope::Full).await;
    let ticket = client.create_ticket(&TicketRequest::new()).await.expect("create a ticket");
    assert!(ticket.ticket.starts_with("ipt_"));
    assert_eq!((ticket.scope.as_str(), ticket.origin, ticket.uses, ticket.expires_in_s), ("geo", None, 5, 300));
    let request = TicketRequest::new().origin("https://shop.example").lifetime(Duration::from_secs(30)).uses(1);
    let ticket = client.create_ticket(&request).await.expect("create a ticket");
    assert_eq!((ticket.origin.as_deref(), ticket.uses, ticket.expires_in_s), (Some("https://shop.example"), 1, 30));
    assert_eq!(client.lookup().await.expect("lookup succeeds").rate_limit.remaining, 9_999);
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_share_tickets_and_are_charged_to_the_key() {
    let (server, _) = server::<Ip>(Scope::Ip).await;
    let (client, count) = page(&format!("http://{}", node().await.http()), move |_| {
        let server = server.clone();
        async move { Ok(server.create_ticket(&TicketRequest::new().uses(2)).await?) }
    });
    for remaining in [9_999, 9_998, 9_997] {
        assert_eq!(client.clone().lookup().await.expect("lookup succeeds").rate_limit.remaining, remaining);
    }
    let (first, second, third) = tokio::join!(client.lookup(), client.lookup(), client.lookup());
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_ticket_is_replaced_once() {
    let (server, _) = server::<Ip>(Scope::Ip).await;
    let ticket = server.create_ticket(&TicketRequest::new()).await.expect("create a ticket");
    let mut forged = ticket.clone();
    "ipt_forged".clone_into(&mut forged.ticket);
    let proxy = CountingProxy::start(vec![node().await.http()], |text| text).await;

    let tickets = [forged.clone(), ticket];
    let (client, count) = page(&proxy.url(), move |number| {
        let ticket = tickets[number].clone();
        async move { Ok(ticket) }
    });
    for request_count in [2, 3] {
        client.lookup().await.expect("lookup succeeds");
        assert_eq!((count.load(Ordering::Relaxed), proxy.request_count()), (2, request_count));
    }

    let (client, count) = page(&proxy.url(), move |_| {
        let forged = forged.clone();
        async move { Ok(forged) }
    });
    let error = unwrap_api_error(client.lookup().await);
    assert_eq!((error.status, error.kind), (401, ApiErrorKind::InvalidTicket));
    assert_eq!((count.load(Ordering::Relaxed), proxy.request_count()), (2, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_source_is_an_error_without_a_request() {
    let proxy = CountingProxy::start(vec![node().await.http()], |text| text).await;
    let (client, count) = page(&proxy.url(), |_| async { Err("no session".into()) });
    let error = client.lookup().await.expect_err("the source fails");
    assert!(matches!(&error, Error::Ticket(cause) if cause.to_string() == "no session"), "{error}");
    assert_eq!((count.load(Ordering::Relaxed), proxy.request_count()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_errors_of_tickets() {
    let (server, id) = server::<Ip>(Scope::Ip).await;
    let error = unwrap_api_error(server.create_ticket(&TicketRequest::new().uses(101)).await);
    assert_eq!((error.status, error.kind), (400, ApiErrorKind::BadRequest));

    let foreign = server.create_ticket(&TicketRequest::new().origin("https://shop.example")).await;
    let foreign = foreign.expect("create a ticket");
    let (client, _) = page(&format!("http://{}", node().await.http()), move |_| {
        let foreign = foreign.clone();
        async move { Ok(foreign) }
    });
    let error = unwrap_api_error(client.lookup().await);
    assert_eq!((error.status, error.kind), (403, ApiErrorKind::OriginNotAllowed));

    let restrict = ["key", "restrict", &id, "--origin", "https://shop.example"];
    deployment().await.cli(&restrict).await.and_then(CommandOutput::ensure_success).expect("restrict the key");
    let error = unwrap_api_error(server.create_ticket(&TicketRequest::new()).await);
    assert_eq!((error.status, error.kind), (403, ApiErrorKind::OriginNotAllowed));
    assert!(error.docs.ends_with("#ticket-creation"), "{}", error.docs);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_creates_too_many_tickets_is_limited() {
    let (server, _) = server::<Ip>(Scope::Ip).await;
    let error = loop {
        if let Err(error) = server.create_ticket(&TicketRequest::new()).await {
            break unwrap_api_error::<()>(Err(error));
        }
    };
    assert!(matches!(error.kind, ApiErrorKind::TicketLimit { rate_limit } if rate_limit.remaining == 0), "{error:?}");
    assert_eq!((error.status, error.retry_after.is_some()), (429, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn service_without_sealing_keys_has_no_tickets() {
    let deployment = deployment().await;
    let key = issue_key(deployment, Scope::Ip).await.key;
    let client = Client::<Ip>::open(&base_url(deployment), &key).expect("create a client");
    let error = unwrap_api_error(client.create_ticket(&TicketRequest::new()).await);
    assert_eq!((error.status, error.kind), (404, ApiErrorKind::NotFound));
}
