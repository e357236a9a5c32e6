//! Every page, rendered with edge cases: no data, ten keys, names that contain markup.

mod alerts;
mod console;
mod linked_accounts;
mod new_key;
mod status;
mod tokens;
mod usage;

use askama::Template;
use ipseity_domain::KeyStatus;

use crate::auth::next_path::NextPath;
use crate::docs::article::DocsArticle;
use crate::docs::index::DocsIndex;
use crate::docs::search::search;
use crate::host::DataAttribution;
use crate::landing::self_view::SelfViewSummary;
use crate::reference::openapi::{FieldDoc, OperationDoc, ParameterDoc, ResponseDoc, SchemaDoc};
use crate::view::account::{AccountPage, DeleteAccountPage, DeviceItem, EventItem, PasskeyItem, SessionItem};
use crate::view::auth::{
    ConfirmPage, EmailSentPage, ForgotPage, LinkAction, SecondFactorPage, SignInForm, SignInPage, SignInReason,
    SignUpPage,
};
use crate::view::bar_chart::daily_chart;
use crate::view::chart::pause_chart;
use crate::view::frame::{Notice, PageFrame, SeoMetadata, Tab};
use crate::view::keys::{
    DeleteKeyPage, FirstRequest, KeyCard, KeyHistoryRow, KeyPage, KeysPage, PausePage, PauseView, QuotaReset,
    RotateNowPage,
};
use crate::view::legal::LegalPage;
use crate::view::limit_request::{LastLimitRequest, LimitRequestPage};
use crate::view::public::{DocsPage, LandingLookup, LandingPage, ReferencePage, SearchPage};
use crate::view::restrictions::{
    FieldError, RestrictionField, RestrictionFields, RestrictionsError, RestrictionsPanel,
};
use crate::view::static_pages::{EnterprisePage, ErrorPage, ReportKeyPage};
use crate::view::two_factor::{RecoveryCodesPage, TotpSetupPage, TwoFactorPage};
use crate::view::usage::{UsageDayRow, UsageView};

pub(super) use console::{console_key_page, console_pages, console_visitor_pages};
pub(super) use usage::usage_page;

const BASE: &str = "https://ip.example";
const NAME: &str = "<i>Web & \"shop\"</i>";
const LINK_ACTIONS: [LinkAction; 7] = [
    LinkAction::ConfirmSignup { needs_password: false },
    LinkAction::ConfirmSignup { needs_password: true },
    LinkAction::ResetPassword,
    LinkAction::AcceptInvitation,
    LinkAction::ConfirmNewEmail { needs_password: false },
    LinkAction::ConfirmNewEmail { needs_password: true },
    LinkAction::RestoreEmail,
];

fn frame(member: Option<&str>) -> PageFrame {
    PageFrame {
        title: "A title".to_owned(),
        tab: Tab::Keys,
        member_email: member.map(str::to_owned),
        csrf_token: "the-token".to_owned(),
        notice: Some(Notice("Saved.")),
        banner: "Maintenance on Sunday.".to_owned(),
        contact: "mailto:support@ipseity.example".to_owned(),
        has_terms: true,
        has_privacy: true,
        signup_open: true,
        seo: None,
    }
}

fn public_frame() -> PageFrame {
    let seo =
        SeoMetadata { description: "A description.".to_owned(), path: "/a".to_owned(), base_url: BASE.to_owned() };
    PageFrame { seo: Some(seo), ..frame(None) }
}

fn member_frame() -> PageFrame {
    frame(Some("ada@example.org"))
}

fn form_error() -> Option<String> {
    Some("An error.".to_owned())
}

pub(super) fn key_card(id: usize, status: KeyStatus, is_paused: bool) -> KeyCard {
    KeyCard {
        id: format!("{id:010}"),
        name: NAME.to_owned(),
        scope: "geo",
        status,
        is_restricted: id > 0,
        expires_soon: false,
        expiry: (id > 0).then(|| "Expires 25 Nov 2026, 14:03 UTC".to_owned()),
        created: "3 Sep 2026".to_owned(),
        last_used: (id > 0).then(|| "today".to_owned()),
        used_today: 8_420,
        recent_days: (0..30).map(|day| day * 300).collect(),
        daily_limit: 10_000,
        reset: QuotaReset { at: "2026-11-16T00:00Z".to_owned(), remaining: "in 5 h 12 min".to_owned() },
        previous_valid_until: Some("16 Nov 2026, 14:03 UTC".to_owned()),
        burst_limit: 300,
        pause: is_paused.then(pause_view),
    }
}

fn pause_view() -> PauseView {
    let mut counts = [5; 60];
    counts[59] = 6;
    PauseView {
        paused_at: "15 Nov 2026, 14:03:22 UTC".to_owned(),
        requests: 301,
        peak_per_second: 6,
        chart: pause_chart(&counts),
    }
}

fn pause_page(is_current: bool, resumed: Option<(String, &'static str)>) -> String {
    let (key_id, key_name) = ("0123456789".to_owned(), NAME.to_owned());
    render(&PausePage { frame: member_frame(), key_id, key_name, pause: pause_view(), is_current, resumed })
}

fn usage_view() -> UsageView {
    let day =
        UsageDayRow { day: "2026-11-15".to_owned(), admitted: 1_234_567, rejected: 21, by_reason: [1, 2, 3, 4, 5, 6] };
    UsageView {
        today_admitted: day.admitted,
        today_rejected: day.rejected,
        admitted: day.admitted,
        rejected: day.rejected,
        by_reason: day.by_reason,
        chart: daily_chart(&[(day.day.clone(), day.admitted, day.rejected)]),
        days: vec![day],
    }
}

pub(super) fn keys_page(keys: Vec<KeyCard>) -> String {
    render(&KeysPage { frame: member_frame(), keys, keys_max: 10, version: "00ff".to_owned() })
}

pub(super) fn key_page(card: KeyCard) -> String {
    key_page_with(
        card,
        RestrictionsPanel { fields: RestrictionFields::default(), has_tickets: true, version: 0, error: None },
    )
}

pub(super) fn key_page_with(card: KeyCard, restrictions: RestrictionsPanel) -> String {
    render(&KeyPage {
        frame: member_frame(),
        form_token: "t".to_owned(),
        first_request: if card.last_used.is_some() { FirstRequest::Received } else { FirstRequest::Waiting },
        code: card.last_used.is_none().then(new_key::code_tabs),
        card,
        usage: usage_view(),
        restrictions,
        history: vec![KeyHistoryRow {
            at: "15 Nov 2026, 14:03 UTC".to_owned(),
            description: "Paused".to_owned(),
            actor: "Ipseity",
            burst_epoch: Some(1),
        }],
        history_before: None,
        older_history: Some(7),
        form_error: form_error(),
    })
}

pub(super) fn invalid_field() -> RestrictionField {
    let error = |line: Option<&str>| FieldError { line: line.map(str::to_owned), reason: "has a defect".to_owned() };
    RestrictionField {
        value: NAME.to_owned(),
        errors: vec![error(None), error(Some(NAME))],
        warning: Some("A warning.".to_owned()),
    }
}

fn restricted_key_pages() -> Vec<String> {
    let fields = RestrictionFields {
        origins: invalid_field(),
        networks: invalid_field(),
        expires: invalid_field(),
        caller_limit: invalid_field(),
        daily_limit: invalid_field(),
        tickets_only: invalid_field(),
    };
    [
        RestrictionsError::Invalid,
        RestrictionsError::ConfirmationNeeded,
        RestrictionsError::Changed,
        RestrictionsError::NotEnabled,
    ]
    .map(|error| RestrictionsPanel { fields: fields.clone(), has_tickets: false, version: 0, error: Some(error) })
    .map(|restrictions| key_page_with(key_card(1, KeyStatus::Expired, false), restrictions))
    .into()
}

fn render(page: &impl Template) -> String {
    page.render().expect("page renders")
}

/// Every page of the documentation, with its slug.
pub(super) fn docs_pages() -> Vec<(&'static str, String)> {
    let docs_index = DocsIndex::build(BASE);
    let render_article = |page: &DocsArticle| {
        let (previous, next) = docs_index.previous_and_next(page.slug);
        let html = page.html.clone();
        render(&DocsPage { frame: public_frame(), groups: docs_index.groups(), page, html, previous, next })
    };
    docs_index.articles().map(|page| (page.slug, render_article(page))).collect()
}

fn search_pages() -> Vec<String> {
    let docs_index = DocsIndex::build(BASE);
    let render_search = |query: &str| {
        let (query, hits) = (query.to_owned(), search(docs_index.articles(), query, 20));
        render(&SearchPage { frame: frame(None), groups: docs_index.groups(), query, hits })
    };
    ["", "<i>", "missing_api_key"].map(render_search).into()
}

pub(super) fn landing_page(signup_open: bool) -> String {
    let two_lines = |first: &str| [first.to_owned(), "<i>".to_owned()];
    render(&LandingPage {
        frame: PageFrame { signup_open, ..public_frame() },
        demo_daily_limit: 1_000,
        base_url: BASE,
        lookup: Some(LandingLookup {
            map_svg: "<svg></svg>".to_owned(),
            json_html: "{}".to_owned(),
            elapsed: "42 µs".to_owned(),
            summary: SelfViewSummary {
                address: two_lines("203.0.113.7"),
                location: two_lines("Paris"),
                network: two_lines("Example"),
                connection: two_lines("HTTP/2"),
                map_caption: "A caption.".to_owned(),
            },
        }),
        pair_urls: Some(&["https://v4.example".to_owned(), "https://v6.example".to_owned()]),
        attributions: vec![DataAttribution { text: NAME.to_owned(), url: Some("https://a.example".to_owned()) }],
    })
}

pub(super) fn reference_page() -> String {
    let response = ResponseDoc {
        status: "200".to_owned(),
        description: NAME.to_owned(),
        schema: "Body".to_owned(),
        headers: vec!["X-A".to_owned()],
        examples: vec![("one".to_owned(), "{}".to_owned())],
        errors: vec![(NAME.to_owned(), NAME.to_owned())],
    };
    let field = |name: &str| FieldDoc {
        name: name.to_owned(),
        json_type: "string".to_owned(),
        meaning: "Always `success`.".to_owned(),
        scope: "ip".to_owned(),
        example: "1".to_owned(),
    };
    render(&ReferencePage {
        frame: public_frame(),
        common_errors: Vec::new(),
        manage_operations: vec![tokens::manage_operation()],
        base_url: BASE,
        operations: vec![OperationDoc {
            id: "lookup".to_owned(),
            method: "GET",
            path: "/api/v1/ip".to_owned(),
            summary: "Lookup".to_owned(),
            description: NAME.to_owned(),
            needs_key: true,
            scopes: vec!["ip".to_owned()],
            body_schema: String::new(),
            parameters: vec![ParameterDoc {
                name: NAME.to_owned(),
                place: "query".to_owned(),
                meaning: "Always `success`.".to_owned(),
                values: vec![NAME.to_owned()],
            }],
            code: Some(new_key::code_tabs()),
            curl_html: "curl".to_owned(),
            responses: vec![response],
        }],
        schemas: vec![SchemaDoc {
            name: "Body".to_owned(),
            description: NAME.to_owned(),
            fields: vec![field("a")],
            lookup_fields: vec!["b".to_owned()],
        }],
        headers: vec![field("X-A")],
    })
}

fn public_pages() -> Vec<String> {
    let email = || "ada@example.org".to_owned();
    let forgot =
        |email_enabled| ForgotPage { frame: frame(None), email: email(), form_error: form_error(), email_enabled };
    let mut pages = vec![
        signup_page(true, "ada@example.org"),
        signup_page(false, ""),
        render(&EmailSentPage { frame: frame(None), email: email(), message: "Open the link.", retry_href: "/signup" }),
        signin_page(None, "ada@example.org"),
        signin_page(Some(SignInReason::SessionEnded), "ada@example.org"),
        signin_page(Some(SignInReason::MembersOnly), "ada@example.org"),
        render(&SecondFactorPage {
            frame: frame(None),
            next: NextPath::parse("/keys"),
            has_totp: true,
            has_passkeys: true,
            form_error: form_error(),
        }),
        render(&forgot(true)),
        render(&forgot(false)),
        render(&ErrorPage {
            frame: frame(None),
            heading: "Page not found",
            message: "It may have been deleted.".to_owned(),
            next_link: ("/keys", "Go to your keys"),
        }),
        enterprise_page("mailto:support@ipseity.example"),
        enterprise_page(""),
        status::status_page(),
        render(&LegalPage { frame: public_frame(), title: NAME, html: "<p>Text.</p>" }),
        render(&ReportKeyPage { frame: frame(None), outcome: Some("Thank you."), email_enabled: true }),
        linked_accounts::continue_page(),
        landing_page(true),
        landing_page(false),
        reference_page(),
    ];
    pages.extend(docs_pages().into_iter().map(|(_, page)| page).chain(search_pages()));
    pages.extend(new_key::link_pages());
    pages
}

pub(super) fn enterprise_page(contact: &str) -> String {
    render(&EnterprisePage { frame: PageFrame { contact: contact.to_owned(), ..frame(None) } })
}

/// As after an error, with this email.
pub(super) fn signup_page(signup_open: bool, email: &str) -> String {
    render(&SignUpPage {
        frame: PageFrame { signup_open, ..frame(None) },
        email: email.to_owned(),
        form_error: form_error(),
        signup_open,
        needs_email_confirmation: signup_open,
    })
}

/// The same for the sign-in page.
pub(super) fn signin_page(reason: Option<SignInReason>, email: &str) -> String {
    let (email, next) = (email.to_owned(), NextPath::parse("/keys"));
    let form = SignInForm { email, next, reason, form_error: Some("An error.") };
    render(&SignInPage { frame: frame(None), form, passkeys_available: true, providers: linked_accounts::providers() })
}

fn account_page(needs_password: bool) -> AccountPage {
    let session = |id, current| SessionItem {
        id,
        label: "Firefox on Linux".to_owned(),
        signed_in_at: "3 Sep 2026".to_owned(),
        last_seen_at: "today".to_owned(),
        is_current: current,
    };
    AccountPage {
        frame: member_frame(),
        email: "ada@example.org".to_owned(),
        plan: "free".to_owned(),
        daily_limit: 10_000,
        burst_limit: 300,
        email_enabled: true,
        sessions: vec![session(1, true), session(2, false)],
        passkeys: vec![PasskeyItem { id: 1, name: NAME.to_owned(), created: "3 Sep 2026".to_owned() }],
        passkeys_available: true,
        linked_accounts: usize::from(needs_password),
        has_tokens: true,
        providers_available: true,
        needs_password,
        has_two_factor: !needs_password,
        devices: vec![DeviceItem { id: 1, label: NAME.to_owned(), signed_in_at: "3 Sep 2026".to_owned() }],
        events: vec![EventItem {
            at: "3 Sep 2026".to_owned(),
            description: NAME.to_owned(),
            key: Some("ips_0123456789".to_owned()),
        }],
        new_email: "new@example.org".to_owned(),
        email_error: form_error(),
        password_error: form_error(),
    }
}

pub(super) fn member_pages() -> Vec<String> {
    let mut pages = vec![
        keys_page(Vec::new()),
        keys_page((0..10).map(|id| key_card(id, KeyStatus::Paused, true)).collect()),
        keys_page(KeyStatus::ALL.into_iter().enumerate().map(|(id, status)| key_card(id, status, false)).collect()),
        key_page(key_card(1, KeyStatus::Active, false)),
        key_page(key_card(1, KeyStatus::Deactivated, true)),
        pause_page(true, None),
        pause_page(false, None),
        pause_page(false, Some(("15 Nov 2026, 14:10:00 UTC".to_owned(), "you"))),
        render(&RotateNowPage {
            frame: member_frame(),
            id: "0123456789".to_owned(),
            name: NAME.to_owned(),
            form_token: "t".to_owned(),
        }),
        render(&DeleteKeyPage {
            frame: member_frame(),
            id: "0123456789".to_owned(),
            name: NAME.to_owned(),
            form_error: form_error(),
        }),
        render(&account_page(true)),
        render(&account_page(false)),
        render(&DeleteAccountPage {
            email: "ada@example.org".to_owned(),
            frame: member_frame(),
            key_count: 1,
            needs_password: true,
            form_error: form_error(),
        }),
        render(&limit_request_page(None, true)),
        render(&limit_request_page(Some("Talk to us."), true)),
        render(&limit_request_page(Some(""), false)),
        render(&two_factor_page(false)),
        render(&two_factor_page(true)),
        render(&TotpSetupPage {
            frame: member_frame(),
            qr_code: "<svg></svg>".to_owned(),
            secret: "ABCD EFGH".to_owned(),
            form_error: form_error(),
        }),
        render(&RecoveryCodesPage { frame: member_frame(), codes: "abcd-efgh\nijkl-mnop".to_owned() }),
        render(&ConfirmPage {
            frame: member_frame(),
            email: "ada@example.org".to_owned(),
            next: NextPath::parse("/keys"),
            needs_code: true,
            has_passkeys: true,
            form_error: form_error(),
        }),
    ];
    pages.extend(new_key::new_key_pages());
    pages.extend(restricted_key_pages());
    pages.extend(alerts::alert_pages());
    pages.extend(linked_accounts::linked_accounts_pages());
    pages.extend(usage::usage_pages());
    pages.extend(tokens::token_pages());
    pages
}

fn limit_request_page(answer: Option<&str>, is_open: bool) -> LimitRequestPage {
    LimitRequestPage {
        frame: member_frame(),
        current_limit: 10_000,
        last_request: answer.map(|answer| LastLimitRequest {
            state: if is_open { "open" } else { "declined" },
            is_open,
            daily_limit: 1_000_000,
            message: NAME.to_owned(),
            requested_at: "3 Sep 2026".to_owned(),
            answer: answer.to_owned(),
        }),
        daily_limit: "many".to_owned(),
        message: NAME.to_owned(),
        message_chars_max: 1_000,
        form_error: form_error(),
    }
}

fn two_factor_page(is_enabled: bool) -> TwoFactorPage {
    TwoFactorPage {
        frame: member_frame(),
        is_enabled,
        is_required: !is_enabled,
        has_totp: is_enabled,
        passkeys: 1,
        recovery_codes: 9,
        needs_password: !is_enabled,
        form_error: form_error(),
    }
}

pub(super) fn all_pages() -> Vec<String> {
    public_pages().into_iter().chain(member_pages()).collect()
}
