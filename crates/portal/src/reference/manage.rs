//! The list of the operations of the management API. The OpenAPI document has their fields.

use serde_json::Value;

use crate::reference::openapi::{object_entries, string_or_empty};

/// The start of their paths.
pub(super) const MANAGE_PREFIX: &str = "/api/v1/manage/";
/// The methods of operations. The page describes the others once.
const METHODS: [(&str, &str); 4] = [("get", "GET"), ("post", "POST"), ("patch", "PATCH"), ("delete", "DELETE")];

/// An operation of the management API.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ManageOperationDoc {
    /// Such as `GET`.
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) summary: String,
}

/// Every operation of the management API; none if the document does not describe it.
pub(super) fn manage_operation_docs(document: &Value) -> Vec<ManageOperationDoc> {
    let paths = object_entries(&document["paths"]).filter(|(path, _)| path.starts_with(MANAGE_PREFIX));
    let operations = paths.flat_map(|(path, item)| {
        let operations = METHODS.into_iter().filter(|(name, _)| item[name].is_object());
        operations.map(|(name, method)| ManageOperationDoc {
            method,
            path: path.clone(),
            summary: string_or_empty(&item[name]["summary"]),
        })
    });
    operations.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manage::{MANAGE_ROUTES, manage_openapi};
    use crate::reference::openapi::{operation_docs, schema_docs};

    #[test]
    fn reference_lists_the_management_api_and_describes_only_the_others() {
        let mut document = manage_openapi("https://ip.example");
        document["components"] = json!({ "schemas": document["schemas"] });
        document["components"]["schemas"]["Body"] = json!({});
        let content = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Body" } } });
        document["paths"]["/a"] =
            json!({ "get": { "operationId": "a", "responses": { "200": { "content": content } } } });
        let operations = operation_docs(&document, "https://ip.example");
        assert_eq!(operations.iter().map(|operation| operation.path.as_str()).collect::<Vec<_>>(), ["/a"]);
        let schemas = schema_docs(&document, &operations);
        assert_eq!(schemas.iter().map(|schema| schema.name.as_str()).collect::<Vec<_>>(), ["Body"]);

        let listed = manage_operation_docs(&document);
        assert_eq!(listed.len(), MANAGE_ROUTES.len());
        for route in MANAGE_ROUTES {
            let is_route = |operation: &ManageOperationDoc| {
                operation.method.eq_ignore_ascii_case(route.method)
                    && (operation.path.as_str(), operation.summary.as_str()) == (route.path, route.summary)
            };
            assert!(listed.iter().any(is_route), "{}", route.id);
        }
        assert_eq!(manage_operation_docs(&json!({ "paths": { "/a": { "get": {} } } })), []);
    }
}
