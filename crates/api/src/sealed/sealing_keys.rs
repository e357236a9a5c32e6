//! The master keys of sealed tokens: those of a file that all nodes have, or those that only this process has.

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use aws_lc_rs::rand;

use super::period::{PERIOD_S, TOKEN_AGE_S_MAX, period_of};

/// The length of a master key.
const MASTER_KEY_BYTES: usize = 32;
/// A rotation needs two. Each accepted key makes a token that does not open more expensive.
const MASTER_KEYS_MAX: usize = 4;
/// The salt separates these keys from any other use of the same file.
const SALT: &[u8] = b"ipseity sealed tokens 1";

/// The keys of a file: one that seals, and others that are also accepted.
#[derive(Clone)]
pub struct SealingKeys(
    /// The first one seals.
    Vec<Prk>,
);

/// Why a file with keys is invalid. It has no part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingKeysError {
    /// A line has another format.
    #[error("line {0} is not `seal` or `accept`, a space and 64 hexadecimal digits")]
    InvalidLine(usize),
    /// There is no `seal` line, or more than one.
    #[error("there must be exactly one line with `seal`")]
    SealLines,
    /// The same key is in two lines.
    #[error("line {0} has the key of an earlier line")]
    RepeatedKey(usize),
    /// There are too many keys.
    #[error("there are more than {MASTER_KEYS_MAX} keys")]
    TooManyKeys,
}

impl SealingKeys {
    /// Parses the text of a file. Empty lines and lines that start with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self, SealingKeysError> {
        let (mut sealing, mut accepted, mut seen) = (None, Vec::new(), Vec::new());
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (role, digits) = line.split_once(' ').ok_or(SealingKeysError::InvalidLine(number))?;
            let mut bytes = [0; MASTER_KEY_BYTES];
            hex::decode_to_slice(digits.trim_start(), &mut bytes).map_err(|_| SealingKeysError::InvalidLine(number))?;
            if seen.contains(&bytes) {
                return Err(SealingKeysError::RepeatedKey(number));
            }
            seen.push(bytes);
            match role {
                "seal" if sealing.is_some() => return Err(SealingKeysError::SealLines),
                "seal" => sealing = Some(extract(&bytes)),
                "accept" => accepted.push(extract(&bytes)),
                _ => return Err(SealingKeysError::InvalidLine(number)),
            }
        }
        let keys: Vec<_> = [sealing.ok_or(SealingKeysError::SealLines)?].into_iter().chain(accepted).collect();
        if keys.len() > MASTER_KEYS_MAX { Err(SealingKeysError::TooManyKeys) } else { Ok(Self(keys)) }
    }

    pub(super) fn sealing_key(&self) -> &Prk {
        &self.0[0]
    }

    pub(super) fn accepted_keys(&self) -> &[Prk] {
        &self.0
    }
}

fn extract(master_key: &[u8]) -> Prk {
    Salt::new(HKDF_SHA256, SALT).extract(master_key)
}

/// Random keys of this process, a new one for each period.
pub(super) struct LocalKeys {
    period: u64,
    current: Prk,
    previous: Option<Prk>,
}

impl LocalKeys {
    pub(super) fn generate() -> Self {
        Self { period: 0, current: generate_key(), previous: None }
    }

    /// Generates the key of a new period, and forgets the previous one when its tokens have expired. If the clock was set
    /// back, the newest key stays in use.
    pub(super) fn renew(&mut self, now_s: u64) {
        let period = period_of(now_s);
        if period > self.period {
            let old = std::mem::replace(&mut self.current, generate_key());
            self.previous = (period == self.period + 1).then_some(old);
            self.period = period;
        }
        if now_s > self.period * PERIOD_S + TOKEN_AGE_S_MAX {
            self.previous = None;
        }
    }

    /// The key that seals, and its period.
    pub(super) fn sealing_key(&mut self, now_s: u64) -> (u64, Prk) {
        self.renew(now_s);
        (self.period, self.current.clone())
    }

    /// The key of a period, unless it is forgotten.
    pub(super) fn key_of(&mut self, period: u64, now_s: u64) -> Option<Prk> {
        self.renew(now_s);
        if period == self.period {
            Some(self.current.clone())
        } else {
            self.previous.clone().filter(|_| period + 1 == self.period)
        }
    }
}

fn generate_key() -> Prk {
    let mut bytes = [0; MASTER_KEY_BYTES];
    rand::fill(&mut bytes).expect("the system provides random bytes");
    extract(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_has_one_key_that_seals_and_others_that_are_accepted() {
        let key = |number: u8| format!("{number:064x}");
        let file = format!("# comment\n\naccept {}\r\n  seal  {}  \naccept {}\n", key(1), key(2), key(3));
        assert_eq!(SealingKeys::parse(&file).map(|keys| keys.accepted_keys().len()), Ok(3));
        for (file, error) in [
            (String::new(), SealingKeysError::SealLines),
            (format!("accept {}", key(1)), SealingKeysError::SealLines),
            (format!("seal {}\nseal {}", key(1), key(2)), SealingKeysError::SealLines),
            (format!("seal {}\naccept {}", key(1), key(1)), SealingKeysError::RepeatedKey(2)),
            (key(1), SealingKeysError::InvalidLine(1)),
            (format!("\nretire {}", key(1)), SealingKeysError::InvalidLine(2)),
            (format!("seal {}", &key(1)[1..]), SealingKeysError::InvalidLine(1)),
            (format!("seal {}0", key(1)), SealingKeysError::InvalidLine(1)),
            (format!("seal {}", key(1).replace('1', "x")), SealingKeysError::InvalidLine(1)),
            (
                (1..=5).map(|n| format!("{} {}\n", if n == 1 { "seal" } else { "accept" }, key(n))).collect(),
                SealingKeysError::TooManyKeys,
            ),
        ] {
            assert_eq!(SealingKeys::parse(&file).err(), Some(error), "{file}");
        }
    }
}
