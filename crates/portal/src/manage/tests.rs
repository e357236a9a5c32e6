//! The documentation and the OpenAPI document state what the operations do.

use std::collections::BTreeSet;

use super::openapi::errors;
use super::{MANAGE_ROUTES, manage_openapi};

const DOCUMENTATION: &str = include_str!("../../../../docs/site/management.md");

#[test]
fn documentation_has_a_section_and_an_example_of_every_error() {
    for (name, error) in MANAGE_ROUTES.iter().flat_map(errors) {
        let (status, code) = (error.status().as_u16(), error.code());
        let heading = format!(" {status} {code}");
        let has_section =
            |line: &str| line.starts_with("### ") && line.contains(&heading) && line.ends_with(&format!("{{#{code}}}"));
        assert!(DOCUMENTATION.lines().any(has_section), "{name}: {heading}");
    }
}

#[test]
fn documentation_lists_every_operation_with_its_scope() {
    for route in MANAGE_ROUTES {
        let path = route.path.trim_start_matches("/api/v1/manage");
        let row = format!("| `{} {path}` | `{}` |", route.method.to_uppercase(), route.scope);
        assert!(DOCUMENTATION.lines().any(|line| line.starts_with(&row)), "{row}");
    }
}

#[test]
fn openapi_describes_every_operation_once() {
    let document = manage_openapi("https://ip.example.com");
    let paths = document["paths"].as_object().expect("paths object");
    let operations = paths.values().flat_map(|item| item.as_object().expect("path item").values());
    let ids: BTreeSet<_> = operations.map(|operation| operation["operationId"].as_str().expect("text")).collect();
    assert_eq!(ids, MANAGE_ROUTES.iter().map(|route| route.id).collect());
    for route in MANAGE_ROUTES {
        let operation = &document["paths"][route.path][route.method];
        let has_body =
            matches!(route.method, "patch") || matches!(route.id, "createKey" | "rotateKey" | "createChannel");
        assert_eq!(operation["requestBody"].is_object(), has_body, "{}", route.id);
    }
}
