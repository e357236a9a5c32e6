//! Every page, rendered with what is hard to show: nothing at all, ten keys, names that are markup.

use askama::Template;

use super::*;
use crate::Attribution;
use crate::docs::{Library, Page};
use crate::landing::Shown;
use crate::reference::{Answered, Body, Described, Explained};

const BASE: &str = "https://ip.example";
const NAME: &str = "<i>Web & \"shop\"</i>";
const WISHES: [LinkWish; 5] = [
    LinkWish::Confirm { with_password: false },
    LinkWish::Confirm { with_password: true },
    LinkWish::NewPassword,
    LinkWish::Invited,
    LinkWish::NewEmail,
];

fn frame(member: Option<&str>) -> Frame {
    Frame {
        title: "A title".to_owned(),
        tab: Tab::Keys,
        member: member.map(str::to_owned),
        csrf: "the-token".to_owned(),
        notice: Some(Notice("Something was done.")),
        signup_open: true,
        published: None,
    }
}

fn published() -> Frame {
    let published =
        Published { description: "What it is about.".to_owned(), path: "/a".to_owned(), base_url: BASE.to_owned() };
    Frame { published: Some(published), ..frame(None) }
}

fn inside() -> Frame {
    frame(Some("ada@example.org"))
}

fn problem() -> Option<String> {
    Some("What is wrong.".to_owned())
}

pub(super) fn card(id: usize, state: &'static str, is_paused: bool) -> KeyCard {
    let mut counts = [5; 60];
    counts[59] = 6;
    KeyCard {
        id: format!("{id:010}"),
        name: NAME.to_owned(),
        scope: "geo",
        state,
        created: "3 Sep 2026".to_owned(),
        last_day: (id > 0).then(|| "today".to_owned()),
        used: 8_420,
        limit: 10_000,
        old_until: Some("16 Nov 2026, 14:03 UTC".to_owned()),
        pause: is_paused.then(|| PauseView {
            at: "15 Nov 2026, 14:03:22 UTC".to_owned(),
            requests: 301,
            peak: 6,
            chart: minute_chart(&counts),
        }),
    }
}

fn usage() -> UsageView {
    let day = DayRow { day: "2026-11-15".to_owned(), admitted: 1_234_567, refused: 15, by_reason: [1, 2, 3, 4, 5] };
    UsageView {
        today: day.admitted,
        today_refused: day.refused,
        admitted: day.admitted,
        refused: day.refused,
        by_reason: day.by_reason,
        chart: days_chart(&[(day.day.clone(), day.admitted, day.refused)]),
        days: vec![day],
    }
}

pub(super) fn keys_page(keys: Vec<KeyCard>) -> String {
    text(&KeysPage { frame: inside(), keys, keys_max: 10, edition: "00ff".to_owned() })
}

pub(super) fn key_page(card: KeyCard) -> String {
    text(&KeyPage { frame: inside(), card, usage: usage(), history: Vec::new(), problem: problem() })
}

fn text(page: &impl Template) -> String {
    page.render().expect("pages render")
}

/// Every page of the documentation, by its name.
pub(super) fn docs() -> Vec<(&'static str, String)> {
    let library = Library::open(BASE);
    let show = |page: &Page| {
        let (before, after) = library.neighbours(page.slug);
        let html = page.html.clone();
        text(&DocsPage { frame: published(), groups: library.groups(), page, html, before, after })
    };
    library.pages().map(|page| (page.slug, show(page))).collect()
}

fn searches() -> Vec<String> {
    let library = Library::open(BASE);
    let show = |question: &str| {
        let (question, hits) = (question.to_owned(), library.search(question, 20));
        text(&SearchPage { frame: frame(None), groups: library.groups(), question, hits })
    };
    ["", "<i>", "missing_api_key"].map(show).into()
}

fn landing() -> String {
    let two = |first: &str| [first.to_owned(), "<i>".to_owned()];
    text(&LandingPage {
        frame: published(),
        base_url: BASE,
        map: "<svg></svg>".to_owned(),
        json: "{}".to_owned(),
        took: "42 µs".to_owned(),
        sight: Shown {
            address: two("203.0.113.7"),
            place: two("Paris"),
            network: two("Example"),
            connection: two("HTTP/2"),
            caption: "The circle.".to_owned(),
        },
        attributions: vec![Attribution { text: NAME.to_owned(), url: Some("https://a.example".to_owned()) }],
    })
}

fn reference() -> String {
    let response = Answered {
        status: "200".to_owned(),
        description: NAME.to_owned(),
        schema: "Body".to_owned(),
        headers: vec!["X-A".to_owned()],
        examples: vec![("one".to_owned(), "{}".to_owned())],
    };
    let field = |name: &str| Explained {
        name: name.to_owned(),
        kind: "string".to_owned(),
        meaning: NAME.to_owned(),
        scope: "ip".to_owned(),
        example: "1".to_owned(),
    };
    text(&ReferencePage {
        frame: published(),
        base_url: BASE,
        operations: vec![Described {
            id: "lookup".to_owned(),
            path: "/api/v1/ip".to_owned(),
            summary: "Look".to_owned(),
            description: NAME.to_owned(),
            needs_key: true,
            scopes: vec!["ip".to_owned()],
            responses: vec![response],
        }],
        bodies: vec![Body { name: "Body".to_owned(), description: NAME.to_owned(), fields: vec![field("a")] }],
        headers: vec![field("X-A")],
    })
}

fn doors() -> Vec<String> {
    let email = || "ada@example.org".to_owned();
    let signup =
        |open| SignUpPage { frame: frame(None), email: email(), problem: problem(), open, confirmed_by_mail: open };
    let forgot = |has_mail| ForgotPage { frame: frame(None), email: email(), problem: problem(), has_mail };
    let mut pages = vec![
        text(&signup(true)),
        text(&signup(false)),
        text(&SentPage { frame: frame(None), email: email(), sentence: "Follow it.", again: "/signup" }),
        text(&SignInPage { frame: frame(None), email: email(), problem: problem(), passkeys: true }),
        text(&forgot(true)),
        text(&forgot(false)),
        text(&ProblemPage {
            frame: frame(None),
            heading: "Nothing is here",
            sentence: "It never was.".to_owned(),
            next: ("/keys", "Open your keys"),
        }),
        text(&EnterprisePage { frame: frame(None) }),
        landing(),
        reference(),
    ];
    pages.extend(docs().into_iter().map(|(_, page)| page).chain(searches()));
    pages.extend(WISHES.map(|wish| {
        text(&LinkPage { frame: frame(None), wish, email: email(), token: "t".to_owned(), problem: problem() })
    }));
    pages
}

fn account() -> AccountPage {
    let session = |id, current| SessionRow {
        id,
        label: "Firefox on Linux".to_owned(),
        since: "3 Sep 2026".to_owned(),
        seen: "today".to_owned(),
        current,
    };
    AccountPage {
        frame: inside(),
        email: "ada@example.org".to_owned(),
        plan: "free".to_owned(),
        daily_limit: 10_000,
        alerts: Alerts { near: true, spent: false, paused: true },
        has_mail: true,
        sessions: vec![session(1, true), session(2, false)],
        passkeys: vec![PasskeyRow { id: 1, name: NAME.to_owned(), created: "3 Sep 2026".to_owned() }],
        passkeys_possible: true,
        new_email: "new@example.org".to_owned(),
        email_problem: problem(),
        password_problem: problem(),
    }
}

pub(super) fn rooms() -> Vec<String> {
    let scope = |name, chosen| ScopeChoice { name, sentence: "What it shows.", fields: vec![("ip", true)], chosen };
    let minted = |rolled| MintedPage {
        frame: inside(),
        id: "0123456789".to_owned(),
        name: NAME.to_owned(),
        clear: "ips_clear".to_owned(),
        curl: "curl 'ips_clear'".to_owned(),
        rolled,
    };
    let line = KeyUsage {
        id: "0123456789".to_owned(),
        name: NAME.to_owned(),
        state: "paused",
        today: 1,
        limit: 10,
        admitted: 1,
        refused: 0,
    };
    vec![
        keys_page(Vec::new()),
        keys_page((0..10).map(|id| card(id, "paused", true)).collect()),
        key_page(card(1, "active", false)),
        key_page(card(1, "inactive", true)),
        text(&NewKeyPage {
            frame: inside(),
            name: NAME.to_owned(),
            scopes: vec![scope("ip", false), scope("geo", true)],
            problem: problem(),
        }),
        text(&minted(None)),
        text(&minted(Some(None))),
        text(&minted(Some(Some("16 Nov 2026, 14:03 UTC".to_owned())))),
        text(&DeleteKeyPage { frame: inside(), id: "0123456789".to_owned(), name: NAME.to_owned() }),
        text(&UsagePage { frame: inside(), total: usage(), keys: vec![line] }),
        text(&account()),
        text(&DeleteAccountPage { frame: inside(), keys: 1, problem: problem() }),
    ]
}

pub(super) fn all() -> Vec<String> {
    doors().into_iter().chain(rooms()).collect()
}
