//! Pages that show a secret: reloading them creates no other, and ending a secret immediately is confirmed.

use ipseity_domain::Scope;
use ipseity_testkit::DeploymentOptions;

use super::browser::SAME_ORIGIN;
use super::fixture::{PortalFixture, TestMember, fresh_secret, key_shown_on, shared_fixture};
use crate::lookup::lookup_with_key;

async fn key_count(fixture: &PortalFixture, member: &TestMember) -> String {
    fixture.psql(&format!("select count(*) from keys where account_id = {}", member.id)).await
}

async fn digest(fixture: &PortalFixture, key: &str) -> String {
    fixture.psql(&format!("select digest from keys where id = '{key}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn reloaded_page_of_a_secret_creates_no_other() {
    let fixture =
        PortalFixture::with_options(DeploymentOptions { nodes: 2, ..DeploymentOptions::default() }, &[]).await;
    let mut member = fixture.create_member().await;
    let csrf = member.browser.csrf_token().await;
    let mut other_node = member.browser.on_node(&fixture.deployment.nodes[1]);

    let token = fresh_secret();
    let form = [("csrf", csrf.as_str()), ("form", &token), ("name", "shop"), ("scope", "ip")];
    let key = key_shown_on(&member.browser.post_with("/keys", &[SAME_ORIGIN], &form).await).expect("page shows a key");
    for browser in [&mut member.browser, &mut other_node] {
        let reloaded = browser.post_with("/keys", &[SAME_ORIGIN], &form).await;
        assert_eq!((reloaded.status, reloaded.header("location")), (303, Some("/keys?done=created-before")));
        assert!(browser.get("/keys?done=created-before").await.text().contains("already sent"));
    }
    assert_eq!(key_count(&fixture, &member).await, "1");

    let (rotate, token) = (format!("/keys/{}/rotate", key.id), fresh_secret());
    let form = [("csrf", csrf.as_str()), ("form", &token), ("overlap_s", "3600")];
    let rotated = member.browser.post_with(&rotate, &[SAME_ORIGIN], &form).await;
    assert!(key_shown_on(&rotated).is_some(), "{}", rotated.text());
    let digest_before = digest(&fixture, &key.id).await;
    let reloaded = other_node.post_with(&rotate, &[SAME_ORIGIN], &form).await;
    assert_eq!(reloaded.header("location"), Some(format!("/keys/{}?done=rotated-before", key.id).as_str()));
    assert_eq!(digest(&fixture, &key.id).await, digest_before);

    for form in [&form[..1], &[form[0], ("form", "short")]] {
        let fields = [form, &[("name", "shop"), ("scope", "ip")]].concat();
        assert_eq!(member.browser.post_with("/keys", &[SAME_ORIGIN], &fields).await.status, 403);
    }
    assert_eq!(key_count(&fixture, &member).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_that_creates_a_secret_has_another_token() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("shop", Scope::Ip).await;
    let token_of = |page: &str| {
        let (_, after) = page.split_once("name=\"form\" value=\"").expect("form has a token");
        after.split('"').next().map(str::to_owned).expect("token ends")
    };
    for path in ["/keys/new", &format!("/keys/{}", key.id)] {
        let [one, two] =
            [member.browser.get(path).await.text(), member.browser.get(path).await.text()].map(|page| token_of(&page));
        assert_ne!(one, two, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_that_ends_the_old_secret_immediately_is_confirmed() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("shop", Scope::Ip).await;
    let rotate = format!("/keys/{}/rotate", key.id);
    let question = member.browser.post(&rotate, &[("overlap_s", "0")]).await;
    let text = question.text();
    assert!(question.status == 200 && text.contains("Rotate without an overlap?"), "{text}");
    assert!(key_shown_on(&question).is_none());
    let mut caller = fixture.node().client();
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200, "nothing changed");

    let confirmed = member.browser.post(&rotate, &[("overlap_s", "0"), ("confirmed", "yes")]).await;
    let new_key = key_shown_on(&confirmed).expect("page shows a key");
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 401);
    assert_eq!(lookup_with_key(&mut caller, &new_key).await.status, 200);
}
