//! Compares the clocks. Quotas and limits follow the clock of Redis, sessions and links that of PostgreSQL, and certificates that of this machine.

use crate::cli::doctor::backend_report::ClockOffset;
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings};

/// More than clocks synchronized by NTP differ, and less than a client would notice.
const CLOCK_SKEW_MAX_MS: u64 = 2_000;

pub(super) fn check_clocks(backends: &[ClockOffset]) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("clocks");
    let this_machine = ClockOffset { source: "this machine".to_owned(), offset_ms: 0 };
    let mut all = [&[this_machine], backends].concat();
    all.sort_by_key(|clock| clock.offset_ms);
    if let [earliest, latest] = all.as_slice()
        && earliest.offset_ms.abs_diff(latest.offset_ms) > CLOCK_SKEW_MAX_MS
    {
        findings.error(format!(
            "The clocks of {} and {} differ by {}. Synchronize both with NTP, for example with chrony.",
            earliest.source,
            latest.source,
            format_seconds(earliest.offset_ms.abs_diff(latest.offset_ms))
        ));
    } else if all.len() > 2 {
        // If two of three clocks are right, so is the median.
        let median_ms = all[all.len() / 2].offset_ms;
        for clock in all.iter().filter(|clock| clock.offset_ms.abs_diff(median_ms) > CLOCK_SKEW_MAX_MS) {
            let direction = if clock.offset_ms > median_ms { "ahead of" } else { "behind" };
            let distance = format_seconds(clock.offset_ms.abs_diff(median_ms));
            findings.error(format!(
                "The clock of {} is {distance} {direction} the others. Synchronize it with NTP, for example with chrony.",
                clock.source
            ));
        }
    }
    let spread_ms =
        all.last().zip(all.first()).map_or(0, |(latest, earliest)| latest.offset_ms.abs_diff(earliest.offset_ms));
    findings.ok_unless_error(match all.len() {
        1 => "Nothing to compare: neither Redis nor PostgreSQL answered.".to_owned(),
        count => format!("{count} clocks differ by at most {spread_ms} ms."),
    })
}

fn format_seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms / 100 % 10)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn skew_errors(backends: &[(&str, i64)]) -> Vec<String> {
        let backends: Vec<_> = backends
            .iter()
            .map(|&(source, ahead_ms)| ClockOffset { source: source.to_owned(), offset_ms: ahead_ms })
            .collect();
        let errors = check_clocks(&backends).into_iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.message).collect()
    }

    #[test]
    fn outlier_of_three_clocks_is_named() {
        assert!(skew_errors(&[]).is_empty() && skew_errors(&[("Redis", 900), ("PostgreSQL", -900)]).is_empty());
        let redis = skew_errors(&[("Redis", 90_000), ("PostgreSQL", 3)]);
        assert!(
            redis.len() == 1 && redis[0].starts_with("The clock of Redis is 89.9 s ahead of the others."),
            "{redis:?}"
        );
        let own = skew_errors(&[("Redis", 90_000), ("PostgreSQL", 90_003)]);
        assert!(
            own.len() == 1 && own[0].starts_with("The clock of this machine is 90.0 s behind the others."),
            "{own:?}"
        );
        let two = skew_errors(&[("Redis", -7_500)]);
        assert!(two.len() == 1 && two[0].contains("Redis and this machine differ by 7.5 s."), "{two:?}");
        assert_eq!(skew_errors(&[("Redis", 10_000), ("PostgreSQL", -10_000)]).len(), 2);
    }
}
