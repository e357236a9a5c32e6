//! Accounts and plans.

use ipseity_domain::{Limits, Plan};
use ipseity_store::StoreRefusal;

use crate::fixture::{StoreFixture, email, expect_refusal};

#[tokio::test(flavor = "multi_thread")]
async fn account_email_is_unique_ignoring_case() {
    let StoreFixture { store, .. } = &StoreFixture::open().await;
    let created = store.accounts().create(&email("Ada@Ipseity.example"), "free").await.expect("account is created");
    assert_eq!(
        expect_refusal(store.accounts().create(&email("ada@ipseity.EXAMPLE"), "free").await),
        StoreRefusal::AccountExists
    );
    let found = store.accounts().get_by_email(&email("ADA@ipseity.example")).await.expect("account exists");
    assert_eq!((found.id, found.email.as_str(), found.plan.as_str()), (created.id, "ada@ipseity.example", "free"));
    assert_eq!(
        expect_refusal(store.accounts().get_by_email(&email("unknown@ipseity.example")).await),
        StoreRefusal::UnknownAccount
    );

    for number in 0..4 {
        store
            .accounts()
            .create(&email(&format!("{number}@ipseity.example")), "free")
            .await
            .expect("account is created");
    }
    let mut ids = Vec::new();
    while let page =
        store.accounts().list_after(ids.last().copied().unwrap_or(0), 2).await.expect("accounts are listed")
        && !page.is_empty()
    {
        ids.extend(page.iter().map(|account| account.id));
    }
    assert_eq!(ids.len(), 5);
    assert!(ids.is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_plan_is_rejected_and_plan_change_reaches_every_key() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    assert_eq!(expect_refusal(store.accounts().create(&email("a@b.example"), "gold").await), StoreRefusal::UnknownPlan);
    let account = fixture.create_account().await;
    let (first, second, other_key) =
        (fixture.create_key_for(&account).await, fixture.create_key_for(&account).await, fixture.create_key().await);
    assert_eq!(expect_refusal(store.accounts().set_plan(&account, "gold").await), StoreRefusal::UnknownPlan);
    assert_eq!(fixture.outbox_rows().await, [""; 0], "a rejected change adds no outbox row");

    let gold = Plan { name: "gold".to_owned(), limits: Limits { daily_limit: 50_000, burst_limit: 600, keys_max: 20 } };
    store.plans().create(&gold).await.expect("plan is created");
    assert_eq!(expect_refusal(store.plans().create(&gold).await), StoreRefusal::PlanExists);
    let free = Plan { name: "free".to_owned(), limits: Limits::SPECIFIED };
    assert_eq!(store.plans().list().await.expect("plans are listed"), [free, gold]);

    let mut changed = store.accounts().set_plan(&account, "gold").await.expect("plan is set");
    changed.sort_unstable();
    let mut expected = [first.id, second.id];
    expected.sort_unstable();
    assert_eq!(changed, expected);
    for id in changed {
        let record = fixture.key_record(id).await;
        assert_eq!((record.daily_limit, record.generation, record.burst_epoch), (50_000, 2, 1));
    }
    assert_eq!(fixture.key_record(other_key.id).await.daily_limit, 10_000);
    assert_eq!(fixture.outbox_rows().await.len(), 2);
}
