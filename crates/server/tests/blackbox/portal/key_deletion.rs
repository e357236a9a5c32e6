//! Deleting a key: its owner types its name or its ID.

use ipseity_domain::Scope;

use super::fixture::{assert_redirects_to, shared_fixture};

#[tokio::test(flavor = "multi_thread")]
async fn key_is_deleted_only_by_its_own_name_or_id() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let [one, two, three] = [
        member.create_key("one", Scope::Ip).await,
        member.create_key("two words", Scope::Ip).await,
        member.create_key("<b>3</b>", Scope::Ip).await,
    ];
    let path = |id: &str| format!("/keys/{id}/delete");
    let page = member.browser.get(&path(&three.id)).await.text();
    assert!(page.contains("Type <strong>&#60;b&#62;3&#60;/b&#62;</strong> or"), "{page}");
    for typed in ["", " ", "two words", "On", "one two", &two.id, &one.key] {
        let reply = member.browser.post(&path(&one.id), &[("typed", typed)]).await;
        assert!(reply.status == 200 && reply.text().contains("Nothing was deleted"), "{typed}: {}", reply.text());
        assert!(!reply.text().contains(&one.key), "the page repeats nothing that was typed");
    }
    assert_eq!(member.browser.post(&path(&one.id), &[]).await.status, 200, "without the field");
    let count = format!("select count(*) from keys where account_id = {}", member.id);
    assert_eq!(fixture.psql(&count).await, "3");
    let mut stranger = fixture.create_member().await.browser;
    assert_eq!(stranger.post(&path(&one.id), &[("typed", "one")]).await.status, 404);
    for (id, typed) in [(&one.id, " one "), (&two.id, "two  words"), (&three.id, &*format!("ips_{}", three.id))] {
        assert_redirects_to(&member.browser.post(&path(id), &[("typed", typed)]).await, "/keys");
        assert_eq!(member.browser.post(&path(id), &[("typed", typed)]).await.status, 404, "it is gone");
    }
    assert_eq!(fixture.psql(&count).await, "0");
}
