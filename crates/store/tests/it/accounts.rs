//! Accounts and plans.

use domain::Plan;
use store::Refused;

use crate::stage::{Stage, email, refused};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_one_account_whatever_its_letters_case() {
    let Stage { store, .. } = &Stage::open().await;
    let made = store.create_account(&email("Ada@House.example"), "free").await.expect("an account");
    assert_eq!(refused(store.create_account(&email("ada@house.EXAMPLE"), "free").await), Refused::AccountExists);
    let found = store.account(&email("ADA@house.example")).await.expect("an account");
    assert_eq!((found.id, found.email.as_str(), found.plan.as_str()), (made.id, "Ada@House.example", "free"));
    assert_eq!(refused(store.account(&email("nobody@house.example")).await), Refused::UnknownAccount);

    for number in 0..4 {
        store.create_account(&email(&format!("{number}@house.example")), "free").await.expect("an account");
    }
    let mut seen = Vec::new();
    while let page = store.accounts_after(seen.last().copied().unwrap_or(0), 2).await.expect("a page")
        && !page.is_empty()
    {
        seen.extend(page.iter().map(|account| account.id));
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_known_or_refused_and_a_new_one_reaches_every_key() {
    let stage = Stage::open().await;
    let store = &stage.store;
    assert_eq!(refused(store.create_account(&email("a@b.example"), "gold").await), Refused::UnknownPlan);
    let account = stage.account().await;
    let (first, second, stranger) = (stage.key_of(&account).await, stage.key_of(&account).await, stage.key().await);
    assert_eq!(refused(store.set_plan(&account, "gold").await), Refused::UnknownPlan);
    assert_eq!(stage.outbox().await, [""; 0], "a refused change announces nothing");

    let gold = Plan { name: "gold".to_owned(), daily_limit: 50_000 };
    store.add_plan(&gold).await.expect("a plan");
    assert_eq!(refused(store.add_plan(&gold).await), Refused::PlanExists);
    let free = Plan { name: "free".to_owned(), daily_limit: 10_000 };
    assert_eq!(store.plans().await.expect("plans"), [free, gold]);

    let mut changed = store.set_plan(&account, "gold").await.expect("a plan");
    changed.sort_unstable();
    let mut expected = [first.id, second.id];
    expected.sort_unstable();
    assert_eq!(changed, expected);
    for id in changed {
        let standing = stage.standing(id).await;
        assert_eq!((standing.daily_limit, standing.generation, standing.window), (50_000, 2, 1));
    }
    assert_eq!(stage.standing(stranger.id).await.daily_limit, 10_000);
    assert_eq!(stage.outbox().await.len(), 2);
}
