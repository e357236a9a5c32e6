//! Filters of the audit log.

use ipseity_store::{AuditFilter, Store};

use crate::fixture::StoreFixture;

async fn listed_ids(store: &Store, filter: &AuditFilter<'_>) -> Vec<i64> {
    let events = store.audit_log().list(filter, 2).await.expect("events are listed");
    events.into_iter().map(|event| event.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_by_operator_and_action_in_pages_backwards() {
    let fixture = StoreFixture::open().await;
    let store = fixture.node_store().await;
    fixture
        .sql(
            "insert into audit_events (actor, operator, action) values
                 ('operator', 'ada', 'invited'), ('operator', 'bob', 'invited'), ('operator', 'ada', 'plan_added'),
                 ('owner', null, 'issued'), ('operator', 'ada', 'invited')",
        )
        .await;
    let ada = AuditFilter { operator: Some("ada"), ..AuditFilter::default() };
    let invited = AuditFilter { action: Some("invited"), ..AuditFilter::default() };
    assert_eq!(listed_ids(&store, &ada).await, [5, 3]);
    assert_eq!(listed_ids(&store, &AuditFilter { before_id: Some(3), ..ada }).await, [1]);
    assert_eq!(listed_ids(&store, &invited).await, [5, 2]);
    assert_eq!(listed_ids(&store, &AuditFilter { before_id: Some(2), ..invited }).await, [1]);
    assert_eq!(listed_ids(&store, &AuditFilter { action: Some("invited"), before_id: Some(5), ..ada }).await, [1]);
    assert!(listed_ids(&store, &AuditFilter { operator: Some("eve"), ..ada }).await.is_empty());
}
