//! A member's request for a higher limit. Operators see it and answer it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::DAILY_LIMIT_MAX;
use ipseity_store::{
    LIMIT_REQUEST_CHARS_MAX, LimitRequest, LimitRequestState, NewLimitRequest, StoreError, StoreRefusal,
};

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::filters::with_commas;
use crate::view::frame::Tab;
use crate::view::limit_request::{LastLimitRequest, LimitRequestPage};

const PAGE: &str = "/account/limits";

/// The fields of the form as typed, and their error.
#[derive(Default)]
struct LimitRequestInput {
    daily_limit: String,
    message: String,
    form_error: Option<String>,
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    limit_request_page(&portal, &member, LimitRequestInput::default()).await
}

async fn limit_request_page(
    portal: &Portal,
    member: &CurrentMember,
    input: LimitRequestInput,
) -> Result<Response, PortalError> {
    let last_request = portal.store.limit_requests().find_newest(member.account.id).await?;
    Ok(render_page(&LimitRequestPage {
        frame: member.frame(portal, "Request a higher limit", Tab::Account),
        current_limit: member.account.daily_limit,
        last_request: last_request.map(last_request_view),
        daily_limit: input.daily_limit,
        message: input.message,
        message_chars_max: LIMIT_REQUEST_CHARS_MAX,
        form_error: input.form_error,
    }))
}

fn last_request_view(request: LimitRequest) -> LastLimitRequest {
    LastLimitRequest {
        state: request.state.name(),
        is_open: request.state == LimitRequestState::Open,
        daily_limit: request.daily_limit,
        message: request.message,
        requested_at: time::format_date(request.created_s),
        answer: request.answer,
    }
}

pub(crate) async fn create(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let (limit_input, message) = (form.field("daily_limit"), form.field("message").replace("\r\n", "\n"));
    let with_error = |form_error: String| LimitRequestInput {
        daily_limit: limit_input.to_owned(),
        message: message.clone(),
        form_error: Some(form_error),
    };
    let daily_limit = match parse_daily_limit(limit_input, member.account.daily_limit) {
        Ok(daily_limit) => daily_limit,
        Err(error) => return limit_request_page(&portal, &member, with_error(error)).await,
    };
    let message_chars = message.trim().chars().count();
    if !(1..=LIMIT_REQUEST_CHARS_MAX).contains(&message_chars) || message.contains('\0') {
        let error = format!("Say what it is for, in up to {LIMIT_REQUEST_CHARS_MAX} characters.");
        return limit_request_page(&portal, &member, with_error(error)).await;
    }
    portal.record_account_change(&member)?;
    let request = NewLimitRequest { account_id: member.account.id, daily_limit, message: message.trim() };
    match portal.store.limit_requests().create(&request).await {
        Ok(()) => Ok(redirect_with_notice(PAGE, "limit-requested")),
        Err(StoreError::Refused(StoreRefusal::LimitRequestOpen)) => {
            limit_request_page(&portal, &member, with_error("Your last request is still open.".to_owned())).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Parses a number that may have separators between thousands.
fn parse_daily_limit(text: &str, current_limit: u64) -> Result<u64, String> {
    let digits: String = text.chars().filter(|character| !matches!(character, ',' | ' ')).collect();
    let parsed = digits.parse().ok().filter(|limit| (current_limit + 1..=DAILY_LIMIT_MAX).contains(limit));
    let with_commas = |limit: u64| with_commas(&limit.to_string());
    parsed.ok_or_else(|| {
        format!(
            "Enter a number above your limit of {}, up to {}.",
            with_commas(current_limit),
            with_commas(DAILY_LIMIT_MAX)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_limit_is_above_the_current_one() {
        for (text, expected) in [
            ("10001", Some(10_001)),
            (" 1,000,000 ", Some(1_000_000)),
            ("99999999", Some(99_999_999)),
            ("10000", None),
            ("100000000", None),
            ("-1", None),
            ("many", None),
            ("", None),
        ] {
            assert_eq!(parse_daily_limit(text, 10_000).ok(), expected, "{text:?}");
        }
    }
}
