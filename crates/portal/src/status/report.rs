//! What the state of a node means for users, in words.

use serde_json::{Value, json};

use crate::host::{ProbeState, ServiceHealth, SiteHeartbeat};
use crate::view::status::{StatusItem, StatusLevel};

/// All providers publish at least monthly.
const GEO_AGE_DAYS_MAX: u64 = 45;
/// Several heartbeats of a site are missing after this time.
const MISSING_AFTER_S: u64 = 90;
const NOT_CHECKED: &str = "Not checked yet. Reload this page in a few seconds.";

/// The state of the parts of the service, for users.
pub(super) struct StatusReport {
    pub(super) components: Vec<StatusItem>,
    /// Sites of remote nodes, by name.
    pub(super) sites: Vec<StatusItem>,
    level: StatusLevel,
}

impl StatusReport {
    /// `portal_url` is the portal of home.
    pub(super) fn new(health: &ServiceHealth, portal_url: &str) -> Self {
        let components = vec![lookups(health), dashboard(health, portal_url), counting(health), geo_data(health)];
        let sites: Vec<StatusItem> = health.sites.iter().map(site).collect();
        let is_impaired =
            components.iter().chain(&sites).any(|item| matches!(item.level, StatusLevel::Degraded | StatusLevel::Down));
        let level = match components.first().map(|lookups| lookups.level) {
            Some(StatusLevel::Down) => StatusLevel::Down,
            _ if is_impaired => StatusLevel::Degraded,
            _ => StatusLevel::Operational,
        };
        Self { components, sites, level }
    }

    pub(super) const fn heading(&self) -> &'static str {
        match self.level {
            StatusLevel::Down => "Lookups are down",
            StatusLevel::Degraded => "Some parts don’t work as usual",
            StatusLevel::Operational | StatusLevel::Unknown => "Everything works",
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let item =
            |item: &StatusItem| json!({ "name": item.name, "status": item.level.name(), "message": item.message });
        json!({
            "status": self.level.name(),
            "components": self.components.iter().map(item).collect::<Vec<_>>(),
            "sites": self.sites.iter().map(item).collect::<Vec<_>>(),
        })
    }
}

fn item(name: &str, level: StatusLevel, message: &str) -> StatusItem {
    StatusItem { name: name.to_owned(), level, message: message.to_owned(), link: None }
}

fn lookups(health: &ServiceHealth) -> StatusItem {
    let name = "API lookups";
    if !health.answers_lookups {
        return item(name, StatusLevel::Down, "Requests get a 503 error. Try again in a moment.");
    }
    if health.is_degraded || health.counting == ProbeState::Failed {
        let message = "Lookups continue with local limits: each node counts on its own.";
        let link = Some(("/docs/promises#bounds".to_owned(), "How far limits can be exceeded"));
        return StatusItem { link, ..item(name, StatusLevel::Degraded, message) };
    }
    if health.database == ProbeState::Failed {
        let message = "Keys in use keep working. A key that was not used for a while may get a 503 error.";
        return item(name, StatusLevel::Degraded, message);
    }
    item(name, StatusLevel::Operational, "Requests are answered.")
}

fn dashboard(health: &ServiceHealth, portal_url: &str) -> StatusItem {
    let name = "Sign-in and dashboard";
    match health.database {
        ProbeState::Works => item(name, StatusLevel::Operational, "You can sign in and manage your keys."),
        ProbeState::Failed => {
            item(name, StatusLevel::Down, "You can’t sign in or change keys right now. Keys in use keep working.")
        }
        ProbeState::NotProbed => item(name, StatusLevel::Unknown, NOT_CHECKED),
        ProbeState::Elsewhere => {
            let link = Some((format!("{portal_url}/status"), "Status at the main site"));
            StatusItem {
                link,
                ..item(name, StatusLevel::Unknown, "It runs at the main site. This site can’t check it.")
            }
        }
    }
}

fn counting(health: &ServiceHealth) -> StatusItem {
    let name = "Counting";
    match health.counting {
        ProbeState::Works => item(name, StatusLevel::Operational, "Requests are counted as they arrive."),
        ProbeState::Failed => item(
            name,
            StatusLevel::Down,
            "Nodes remember what they admit and add it later. Until then, usage on the dashboard may lag.",
        ),
        ProbeState::NotProbed | ProbeState::Elsewhere => item(name, StatusLevel::Unknown, NOT_CHECKED),
    }
}

fn geo_data(health: &ServiceHealth) -> StatusItem {
    let name = "Geo data";
    match health.geo_age_days {
        None => item(name, StatusLevel::Degraded, "There is no data, so locations and networks are null."),
        Some(days) => {
            let unit = if days == 1 { "day" } else { "days" };
            let (level, advice) = match days > GEO_AGE_DAYS_MAX {
                true => (StatusLevel::Degraded, " Recent changes are missing."),
                false => (StatusLevel::Operational, ""),
            };
            item(name, level, &format!("The oldest database is {days} {unit} old.{advice}"))
        }
    }
}

fn site(heartbeat: &SiteHeartbeat) -> StatusItem {
    match heartbeat.seen_ago_s {
        None => item(&heartbeat.name, StatusLevel::Unknown, "Not checked in the last minutes."),
        Some(seconds) if seconds > MISSING_AFTER_S => {
            item(&heartbeat.name, StatusLevel::Down, "Not connected. It may still answer for a few minutes.")
        }
        Some(_) => item(&heartbeat.name, StatusLevel::Operational, "Connected."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> ServiceHealth {
        let site = |name: &str, seen_ago_s| SiteHeartbeat { name: name.to_owned(), seen_ago_s };
        ServiceHealth {
            answers_lookups: true,
            is_degraded: false,
            database: ProbeState::Works,
            counting: ProbeState::Works,
            geo_age_days: Some(1),
            sites: vec![site("fra", Some(3))],
        }
    }

    fn report(health: &ServiceHealth) -> StatusReport {
        StatusReport::new(health, "https://home.example")
    }

    fn levels(health: &ServiceHealth) -> Vec<&'static str> {
        let report = report(health);
        [report.level]
            .into_iter()
            .chain(report.components.iter().chain(&report.sites).map(|item| item.level))
            .map(StatusLevel::name)
            .collect()
    }

    #[test]
    fn each_failure_has_its_level() {
        let up = "operational";
        assert_eq!(levels(&healthy()), [up; 6]);
        let redis_down = ServiceHealth { counting: ProbeState::Failed, is_degraded: true, ..healthy() };
        assert_eq!(levels(&redis_down), ["degraded", "degraded", up, "down", up, up]);
        let postgres_down = ServiceHealth { database: ProbeState::Failed, ..healthy() };
        assert_eq!(levels(&postgres_down), ["degraded", "degraded", "down", up, up, up]);
        let all_down = ServiceHealth { answers_lookups: false, database: ProbeState::Failed, ..redis_down };
        assert_eq!(levels(&all_down), ["down", "down", "down", "down", up, up]);
        for (geo_age_days, level) in [(None, "degraded"), (Some(45), up), (Some(46), "degraded")] {
            assert_eq!(levels(&ServiceHealth { geo_age_days, ..healthy() })[4], level, "{geo_age_days:?}");
        }
        for (seen_ago_s, level) in [(None, "unknown"), (Some(90), up), (Some(91), "down")] {
            let sites = vec![SiteHeartbeat { name: "fra".to_owned(), seen_ago_s }];
            assert_eq!(levels(&ServiceHealth { sites, ..healthy() })[5], level, "{seen_ago_s:?}");
        }
    }

    #[test]
    fn unknown_is_not_a_failure() {
        let starting = ServiceHealth { database: ProbeState::NotProbed, counting: ProbeState::NotProbed, ..healthy() };
        assert_eq!(
            levels(&starting),
            ["operational", "operational", "unknown", "unknown", "operational", "operational"]
        );
        let remote = report(&ServiceHealth { database: ProbeState::Elsewhere, ..healthy() });
        assert_eq!((remote.level, remote.heading()), (StatusLevel::Operational, "Everything works"));
        let link = remote.components[1].link.as_ref().expect("a remote node links to home");
        assert_eq!(link.0, "https://home.example/status");
    }

    #[test]
    fn json_names_every_part_with_its_status() {
        let json = report(&ServiceHealth { answers_lookups: false, ..healthy() }).to_json();
        assert_eq!((&json["status"], &json["components"][0]["name"]), (&"down".into(), &"API lookups".into()));
        assert_eq!(json["sites"], json!([{ "name": "fra", "status": "operational", "message": "Connected." }]));
    }
}
