//! The audit log in the console: filters, pages and export.

use ipseity_store::OperatorRole;

use super::fixture::{fresh_name, shared_fixture};

fn count_rows(page: &str) -> usize {
    page.matches("<td class=\"time\">").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_is_filtered_paged_and_exported() {
    let fixture = shared_fixture().await;
    let (mut viewer, name) = (fixture.sign_in(OperatorRole::Viewer).await, fresh_name("busy"));
    let sql = format!(
        "set ipseity.operator = '{name}';
         insert into plans (name, daily_limit) select '{name}' || n, 1 from generate_series(1, 250) n;
         delete from plans where name = '{name}1'"
    );
    fixture.psql(&sql).await;
    let mut path = format!("/audit?operator={name}");
    let mut counts = Vec::new();
    loop {
        let page = viewer.browser.get(&path).await.text();
        counts.push(count_rows(&page));
        let Some((_, older)) = page.split_once("id=\"older\" href=\"") else { break };
        path = older.split('"').next().expect("link").replace("&amp;", "&");
        assert!(path.starts_with(&format!("/audit?operator={name}&before=")), "{path}");
    }
    assert_eq!(counts, [100, 100, 51]);
    let removed = viewer.browser.get(&format!("/audit?operator={name}&action=plan_removed")).await.text();
    assert!(count_rows(&removed) == 1 && removed.contains(&format!("{name}1")), "{removed}");
    let export = viewer.browser.get(&format!("/audit.csv?operator={name}")).await;
    assert_eq!(export.header("content-type"), Some("text/csv; charset=utf-8"));
    let (text, line) = (export.text(), format!(",plan_removed,operator,\"{name}\",,,\"{name}1\",\"\""));
    assert_eq!(text.lines().count(), 252);
    assert!(text.lines().next() == Some("id,time,action,actor,operator,account,key,subject,token"), "{text}");
    assert!(text.lines().nth(1).is_some_and(|first| first.ends_with(&line)), "{text}");
    for (query, status) in [
        ("account=x", 422),
        ("account=99999999999999999999", 422),
        ("key=x", 422),
        ("operator=a%00b", 422),
        ("operator=%3Cb%3E&action=%22", 200),
        ("before=x", 200),
        ("account=999999999", 200),
    ] {
        let page = viewer.browser.get(&format!("/audit?{query}")).await;
        assert_eq!(page.status, status, "{query}: {}", page.text());
        assert!(!page.text().contains("<b>"), "{query}");
    }
}
