//! The byte columns of the strings in Redis. The Lua scripts and the parsers of their replies take every offset from
//! here.
//!
//! A change of these tables is a new layout: raise `LAYOUT_VERSION` in `layout.rs`, move what `write_record.lua` needs
//! of the old record to [`PREVIOUS_LAYOUT`], and adapt the upgrade test.

/// The format of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// A decimal number with leading zeros.
    Number,
    /// Text, padded with spaces.
    Text,
    /// Any bytes.
    Bytes,
}

use ColumnKind::{Bytes, Number, Text};

/// Name, width in bytes and format of each column, in order.
type Columns = &'static [(&'static str, usize, ColumnKind)];

/// A key record.
const RECORD: Columns = &[
    // What the record was written from: the Redis data set, then the PostgreSQL database. Spaces if it is not known.
    ("incarnation", 16, Text),
    ("digest", 32, Bytes),
    ("paused", 1, Number),
    // When the newest request was charged.
    ("newest_ms", 13, Number),
    // The newest day with requests.
    ("today", 6, Number),
    ("today_count", 12, Number),
    // The day with requests before that.
    ("yesterday", 6, Number),
    ("yesterday_count", 12, Number),
    // Which counts PostgreSQL may lack (record.lua).
    ("unflushed", 1, Number),
    ("deactivated", 1, Number),
    // 0 is the limit of the specification. Nodes of version 0.1 read it as the first digits of the daily limit.
    ("burst_limit", 4, Number),
    ("daily_limit", 8, Number),
    ("burst_epoch", 9, Number),
    ("scope", 4, Text),
    ("generation", 9, Number),
    // The log is complete since then. Earlier charges may be in the count, but not in the log.
    ("log_start_ms", 13, Number),
    // The slots of remote nodes that are open (record.lua), as a bitmap in hexadecimal. Spaces if there are none.
    ("open_slots", 8, Text),
    // Absent if the key has neither a previous secret nor restrictions. Spaces and zeros if it only has restrictions.
    ("previous_digest", 32, Bytes),
    ("previous_expires_s", 10, Number),
    // Absent if the key was never restricted.
    ("restriction_version", 13, Number),
    ("expires_s", 10, Number),
];

/// The columns of the layout `i2` that an upgrade takes over.
const PREVIOUS_LAYOUT: Columns = &[
    ("v2_incarnation", 16, Text),
    ("v2_digest", 32, Bytes),
    ("v2_paused", 1, Number),
    ("v2_newest_ms", 13, Number),
    ("v2_today", 6, Number),
    ("v2_today_count", 12, Number),
    ("v2_yesterday", 6, Number),
    ("v2_yesterday_count", 12, Number),
    ("v2_deactivated", 1, Number),
    ("v2_daily_limit", 12, Number),
    ("v2_burst_epoch", 9, Number),
];

/// An entry of a key's log of requests: its arrival and the id of its charge.
const LOG_ENTRY: Columns = &[("entry_ms", 13, Number), ("entry_id", 6, Number)];

/// The argument of `charge.lua` for one charge.
const CHARGE: Columns = &[
    ("charge_digest", 32, Bytes),
    ("arrival_ms", 13, Number),
    ("charge_id", 6, Number),
    // Of the remote node. Absent or spaces if it has none.
    ("charge_slot", 2, Number),
    // The version of the restrictions that the node applied, and 1 if they refuse the request. Absent if it knows none.
    ("charge_version", 13, Number),
    ("charge_refused", 1, Number),
];

/// The position of a column, counted from 0.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) start: usize,
    pub(crate) width: usize,
    pub(crate) kind: ColumnKind,
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
    let (tables, mut table) = ([RECORD, PREVIOUS_LAYOUT, LOG_ENTRY, CHARGE], 0);
    while table < tables.len() {
        let (mut index, mut start) = (0, 0);
        while index < tables[table].len() {
            let (column_name, width, kind) = tables[table][index];
            if is_equal(column_name.as_bytes(), name.as_bytes()) {
                return Some(Column { start, width, kind });
            }
            start += width;
            index += 1;
        }
        table += 1;
    }
    None
}

/// The value of a column with a number of `N` digits.
pub(crate) fn decimal_digits<const N: usize>(number: u64) -> [u8; N] {
    let (mut digits, mut rest) = ([b'0'; N], number);
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// `==` on slices is not available in constants.
const fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}
