//! The usage explorer: a page and files with the requests of a range, by key and outcome.

mod files;
pub(crate) mod filter;
mod page;
pub(crate) mod report;

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipseity_domain::KeyId;

use crate::error::PortalError;
use crate::keys::explorer::filter::{FilterError, UsageFilter, UsageParams};
use crate::keys::explorer::page::{form_view, report_view};
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::frame::Tab;
use crate::view::usage::UsagePage;

pub(crate) async fn show(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    RawQuery(query): RawQuery,
) -> Result<Response, PortalError> {
    let params = UsageParams::parse(query.as_deref());
    let frame = member.frame(&portal, "Usage", Tab::Usage);
    match parse_filter(&params)? {
        Ok(filter) => {
            let report = portal.load_usage(member.account.id, filter).await?;
            let form = form_view(&params, &report.keys, None);
            Ok(render_page(&UsagePage { frame, form, report: Some(report_view(&report)) }))
        }
        Err(message) => {
            let keys = portal.store.keys().list(member.account.id).await?;
            let form = form_view(&params, &keys, Some(message));
            Ok((StatusCode::BAD_REQUEST, render_page(&UsagePage { frame, form, report: None })).into_response())
        }
    }
}

pub(crate) async fn download_csv(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    RawQuery(query): RawQuery,
) -> Result<Response, PortalError> {
    match parse_filter(&UsageParams::parse(query.as_deref()))? {
        Ok(filter) => Ok(files::csv(&portal.load_usage(member.account.id, filter).await?)),
        Err(message) => Ok((StatusCode::BAD_REQUEST, message).into_response()),
    }
}

pub(crate) async fn download_json(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    RawQuery(query): RawQuery,
) -> Result<Response, PortalError> {
    match parse_filter(&UsageParams::parse(query.as_deref()))? {
        Ok(filter) => Ok(files::json(&portal.load_usage(member.account.id, filter).await?)),
        Err(message) => Ok((StatusCode::BAD_REQUEST, message).into_response()),
    }
}

/// The last 30 days of one key.
pub(crate) async fn download_key_csv(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let id = KeyId::parse(&id).ok_or(PortalError::NotFound)?;
    Ok(files::csv(&portal.load_usage(member.account.id, UsageFilter::last_30_days(Some(id))).await?))
}

/// The filter, or the message for the member.
fn parse_filter(params: &UsageParams) -> Result<Result<UsageFilter, String>, PortalError> {
    match UsageFilter::parse(params, time::today()) {
        Ok(filter) => Ok(Ok(filter)),
        Err(FilterError::Invalid(message)) => Ok(Err(message)),
        Err(FilterError::UnknownKey) => Err(PortalError::NotFound),
    }
}
