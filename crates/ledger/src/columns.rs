//! The byte columns of the strings in Redis. The Lua scripts and the parsers of their replies take every offset from
//! here.

/// A key record: name and width in bytes of each column, in order. Numbers are decimal, with leading zeros.
const RECORD: &[(&str, usize)] = &[
    // The Redis data set that the record was written in.
    ("incarnation", 16),
    ("digest", 32),
    ("paused", 1),
    // The time of the newest log entry.
    ("newest_ms", 13),
    // The newest day with requests.
    ("today", 6),
    ("today_count", 12),
    // The day with requests before that. Both columns are 0 once PostgreSQL has the count.
    ("yesterday", 6),
    ("yesterday_count", 12),
    ("deactivated", 1),
    ("daily_limit", 12),
    ("burst_epoch", 9),
    ("scope", 4),
    ("generation", 9),
    // When the record was filled from PostgreSQL.
    ("filled_ms", 13),
    // The last two are absent if the key has no previous secret.
    ("previous_digest", 32),
    ("previous_expires_s", 10),
];

/// An entry of a key's log of requests.
const LOG_ENTRY: &[(&str, usize)] = &[("entry_ms", 13), ("entry_id", 6)];

/// The argument of `charge.lua` for one charge.
const CHARGE: &[(&str, usize)] = &[("charge_digest", 32), ("charge_id", 6)];

/// The position of a column, counted from 0.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) start: usize,
    pub(crate) width: usize,
}

impl Column {
    pub(crate) const fn end(self) -> usize {
        self.start + self.width
    }
}

/// The column with this name. In a constant, an unknown name does not compile.
pub(crate) const fn column(name: &str) -> Column {
    match find_column(name) {
        Some(column) => column,
        None => panic!("unknown column"),
    }
}

pub(crate) const fn find_column(name: &str) -> Option<Column> {
    let (tables, mut table) = ([RECORD, LOG_ENTRY, CHARGE], 0);
    while table < tables.len() {
        let (mut index, mut start) = (0, 0);
        while index < tables[table].len() {
            let (column_name, width) = tables[table][index];
            if is_equal(column_name.as_bytes(), name.as_bytes()) {
                return Some(Column { start, width });
            }
            start += width;
            index += 1;
        }
        table += 1;
    }
    None
}

/// `==` on slices is not available in constants.
const fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}
