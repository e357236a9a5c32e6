//! Whether the clocks agree: days and limits follow the counter store's, sessions and links PostgreSQL's, certificates this machine's.

use super::finding::{Finding, Findings};

/// How far clocks may be apart: more than any that are kept in step by NTP, less than any caller would notice.
const APART_MAX_MS: u64 = 2_000;

/// Somebody's clock.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) of: String,
    /// Milliseconds ahead of this machine's.
    pub(super) ahead_ms: i64,
}

pub(super) fn judge(stores: &[Clock]) -> Vec<Finding> {
    let mut findings = Findings::new("clocks");
    let own = Clock { of: "this machine".to_owned(), ahead_ms: 0 };
    let mut all = [&[own], stores].concat();
    all.sort_by_key(|clock| clock.ahead_ms);
    if let [early, late] = all.as_slice()
        && early.ahead_ms.abs_diff(late.ahead_ms) > APART_MAX_MS
    {
        findings.wrong(format!(
            "The clocks of {} and {} are {} apart: keep both in step by NTP, such as with chrony.",
            early.of,
            late.of,
            span(early.ahead_ms.abs_diff(late.ahead_ms))
        ));
    } else if all.len() > 2 {
        // Of three the one in the middle is right, if any two are.
        let right_ms = all[all.len() / 2].ahead_ms;
        for clock in all.iter().filter(|clock| clock.ahead_ms.abs_diff(right_ms) > APART_MAX_MS) {
            let side = if clock.ahead_ms > right_ms { "ahead of" } else { "behind" };
            let apart = span(clock.ahead_ms.abs_diff(right_ms));
            findings.wrong(format!(
                "The clock of {} is {apart} {side} the others: keep it in step by NTP, such as with chrony.",
                clock.of
            ));
        }
    }
    let widest = all.last().zip(all.first()).map_or(0, |(late, early)| late.ahead_ms.abs_diff(early.ahead_ms));
    findings.else_well(match all.len() {
        1 => "No store tells the time; only this machine does.".to_owned(),
        count => format!("{count} clocks agree to {widest} ms."),
    })
}

fn span(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms / 100 % 10)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Weight;
    use super::*;

    fn told(stores: &[(&str, i64)]) -> Vec<String> {
        let stores: Vec<_> = stores.iter().map(|&(of, ahead_ms)| Clock { of: of.to_owned(), ahead_ms }).collect();
        let wrong = judge(&stores).into_iter().filter(|finding| finding.weight == Weight::Wrong);
        wrong.map(|finding| finding.says).collect()
    }

    #[test]
    fn of_three_clocks_the_one_that_differs_is_named() {
        assert!(told(&[]).is_empty() && told(&[("Redis", 900), ("PostgreSQL", -900)]).is_empty());
        let redis = told(&[("Redis", 90_000), ("PostgreSQL", 3)]);
        assert!(
            redis.len() == 1 && redis[0].starts_with("The clock of Redis is 89.9 s ahead of the others:"),
            "{redis:?}"
        );
        let own = told(&[("Redis", 90_000), ("PostgreSQL", 90_003)]);
        assert!(
            own.len() == 1 && own[0].starts_with("The clock of this machine is 90.0 s behind the others:"),
            "{own:?}"
        );
        let two = told(&[("Redis", -7_500)]);
        assert!(two.len() == 1 && two[0].contains("Redis and this machine are 7.5 s apart:"), "{two:?}");
        assert_eq!(told(&[("Redis", 10_000), ("PostgreSQL", -10_000)]).len(), 2);
    }
}
