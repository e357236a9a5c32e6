//! The two newest days with requests, as a record keeps them.

use std::collections::BTreeMap;

use ipseity_domain::{DailyUsage, UtcDay};

/// Counts by day.
pub type Counts = BTreeMap<UtcDay, u64>;
/// Today and yesterday.
pub type DayColumns = [DailyUsage; 2];

pub const NO_USAGE: DailyUsage = DailyUsage { day: UtcDay(0), count: 0 };

/// Discards days that were written while the clock was wrong. The clock may have been set back by a day.
pub fn discard_future(columns: DayColumns, clock_day: UtcDay) -> DayColumns {
    let is_past = |usage: &DailyUsage| usage.day.0 <= clock_day.0 + 1;
    let [today, yesterday] = columns;
    let yesterday = Some(yesterday).filter(is_past).unwrap_or(NO_USAGE);
    if is_past(&today) { [today, yesterday] } else { [yesterday, NO_USAGE] }
}

/// The columns once a request is charged to `day`, and the count that no longer has a column.
pub fn start_day(columns: DayColumns, day: UtcDay) -> (DayColumns, Option<DailyUsage>) {
    let [today, yesterday] = columns;
    if today.day == day || today.day.0 == day.0 + 1 {
        return (columns, None);
    }
    let [today, yesterday] = discard_future([today, yesterday], day);
    let new_day = DailyUsage { day, count: 0 };
    match today {
        _ if today.day >= day => ([today, yesterday], None),
        _ if today.count == 0 => ([new_day, yesterday], None),
        _ => ([new_day, today], Some(yesterday).filter(|usage| usage.count > 0)),
    }
}

/// Merges counts from several sources, except those of future days.
pub fn merge_days(sources: impl IntoIterator<Item = DailyUsage>, clock_day: UtcDay) -> Counts {
    let mut counts = Counts::new();
    for usage in sources.into_iter().filter(|usage| usage.day.0 <= clock_day.0 + 1 && usage.count > 0) {
        raise_count(&mut counts, usage);
    }
    counts
}

pub fn raise_count(counts: &mut Counts, usage: DailyUsage) {
    let count = counts.entry(usage.day).or_insert(0);
    *count = usage.count.max(*count);
}

/// The two newest days.
pub fn newest_days(counts: &Counts) -> DayColumns {
    let mut newest = counts.iter().rev();
    [(); 2].map(|()| newest.next().map_or(NO_USAGE, |(&day, &count)| DailyUsage { day, count }))
}
