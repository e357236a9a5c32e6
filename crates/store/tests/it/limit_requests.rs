//! Requests for higher limits.

use ipseity_store::{LimitDecision, LimitRequestState, NewLimitRequest, Store, StoreRefusal};

use crate::fixture::{StoreFixture, expect_refusal};

async fn request(store: &Store, account_id: i64, message: &str) -> Result<(), ipseity_store::StoreError> {
    store.limit_requests().create(&NewLimitRequest { account_id, daily_limit: 50_000, message }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn account_has_one_open_request_and_the_first_decision_counts() {
    let fixture = StoreFixture::open().await;
    // With the rights of a node.
    let store = fixture.node_store().await;
    let (account, other) = (fixture.create_account().await, fixture.create_account().await);
    let requests = store.limit_requests();
    assert!(requests.find_newest(account.id).await.expect("query succeeds").is_none());
    let (one, two) = tokio::join!(request(&store, account.id, "a shop"), request(&store, account.id, "a shop"));
    let refused = [one, two].into_iter().filter(Result::is_err).map(expect_refusal).collect::<Vec<_>>();
    assert_eq!(refused, [StoreRefusal::LimitRequestOpen]);
    request(&store, other.id, &"\u{e4}".repeat(1000)).await.expect("request is stored");

    let open = requests.list(LimitRequestState::Open, 10).await.expect("requests are listed");
    assert_eq!(open.iter().map(|request| request.account_id).collect::<Vec<_>>(), [account.id, other.id]);
    assert_eq!(
        (open[0].email.as_str(), open[0].daily_limit, open[0].message.as_str()),
        (&*account.email, 50_000, "a shop")
    );
    let first = requests.list(LimitRequestState::Open, 1).await.expect("requests are listed");
    assert_eq!(first, open[..1]);

    let id = open[0].id;
    let (granted, declined) = tokio::join!(
        requests.decide(id, LimitDecision::Grant, "until June"),
        requests.decide(id, LimitDecision::Decline, "")
    );
    let is_counted = |decision: Result<Option<Vec<_>>, _>| decision.expect("decision is stored").is_some();
    let (granted, declined) = (is_counted(granted), is_counted(declined));
    assert_ne!(granted, declined, "only one decision counts");
    let decided = requests.find(id).await.expect("query succeeds").expect("request exists");
    let expected = if granted { (LimitRequestState::Granted, "until June") } else { (LimitRequestState::Declined, "") };
    assert_eq!((decided.state, decided.answer.as_str()), expected);
    assert!(decided.decided_s.is_some());
    let limit = store.accounts().find(account.id).await.expect("query succeeds").expect("account exists").daily_limit;
    assert_eq!(limit, if granted { 50_000 } else { 10_000 }, "the limit is raised with the decision");
    request(&store, account.id, "again").await.expect("another request is stored");
    let newest = requests.find_newest(account.id).await.expect("query succeeds").expect("request exists");
    assert_eq!((newest.state, newest.message.as_str()), (LimitRequestState::Open, "again"));
    assert_eq!(requests.decide(0, LimitDecision::Grant, "").await.expect("query succeeds"), None);

    fixture.store.accounts().delete(account.id, None).await.expect("account is deleted");
    assert!(requests.find(id).await.expect("query succeeds").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_decisions_are_audited() {
    let fixture = StoreFixture::open().await;
    let store = fixture.node_store().await;
    let account = fixture.create_account().await;
    for decision in [LimitDecision::Grant, LimitDecision::Decline] {
        request(&store, account.id, "a shop").await.expect("request is stored");
        let newest =
            store.limit_requests().find_newest(account.id).await.expect("query succeeds").expect("request exists");
        store.limit_requests().decide(newest.id, decision, "").await.expect("decision is stored");
    }
    let events = fixture
        .sql(&format!(
            "select concat_ws(' ', actor, operator, action, subject) from audit_events
             where account_id = {} and action like 'limit%' order by id",
            account.id
        ))
        .await;
    assert_eq!(
        events,
        "owner limit_requested daily_limit 50000\noperator clerk limit_request_granted daily_limit 50000\n\
         operator clerk limits_changed daily_limit 50000\nowner limit_requested daily_limit 50000\noperator clerk limit_request_declined daily_limit 50000"
    );
    let error = fixture.sql_error("set session authorization clerk; select audit_limit_request()").await;
    assert!(error.contains("permission denied"), "{error}");
}
