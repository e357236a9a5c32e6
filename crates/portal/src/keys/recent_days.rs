//! The requests of the last 30 days, for the small charts in the list of keys.

use ipseity_domain::{KeyId, UtcDay};
use ipseity_store::UsageRow;

use crate::error::PortalError;
use crate::state::Portal;
use crate::time;

/// Number of days, including today.
const DAYS: u32 = 30;

/// The usage of all keys of an account since a day.
pub(super) struct RecentDays {
    first: UtcDay,
    rows: Vec<UsageRow>,
}

impl RecentDays {
    /// Reads it with one query.
    pub(super) async fn load(portal: &Portal, account_id: i64) -> Result<Self, PortalError> {
        let today = time::today();
        let first = UtcDay(today.0.saturating_sub(DAYS - 1));
        Ok(Self { first, rows: portal.store.usage().list(account_id, None, first..=today).await? })
    }

    /// The admitted requests of a key on each day, oldest first, with today's live count.
    pub(super) fn of_key(&self, key: KeyId, used_today: u64) -> Vec<u64> {
        let mut days = vec![0; DAYS as usize];
        for row in self.rows.iter().filter(|row| row.key == key) {
            let index = row.day.0.checked_sub(self.first.0).and_then(|index| usize::try_from(index).ok());
            // The clock of Redis may be a day ahead.
            if let Some(day) = index.and_then(|index| days.get_mut(index)) {
                *day = row.admitted;
            }
        }
        if let Some(today) = days.last_mut() {
            *today = used_today.max(*today);
        }
        days
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_of_a_key_has_its_count_and_today_the_higher_one() {
        let [key, other] = ["0123456789", "9876543210"].map(|id| KeyId::parse(id).expect("key ID is valid"));
        let row = |key, day, admitted| UsageRow { key, day: UtcDay(day), admitted, refused: [9; 6] };
        let rows = vec![row(key, 100, 5), row(key, 129, 7), row(key, 130, 1), row(key, 99, 1), row(other, 101, 3)];
        let recent = RecentDays { first: UtcDay(100), rows };
        let days = recent.of_key(key, 9);
        assert_eq!((days.len(), days[0], days[1], days[29]), (30, 5, 0, 9));
        assert_eq!(recent.of_key(key, 0)[29], 7);
        assert_eq!(recent.of_key(other, 0).iter().sum::<u64>(), 3);
    }
}
