//! Reads the subset of CBOR that authenticators use (RFC 8949): items of definite length.

use super::error::WebauthnError;

const MALFORMED: WebauthnError = WebauthnError::Malformed("CBOR");

/// The type of an item, in the three high bits of its first byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MajorType {
    Unsigned,
    Negative,
    Bytes,
    Text,
    Array,
    Map,
    Tag,
    /// Booleans, null and floating-point numbers.
    Simple,
}

/// An integer or a byte string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CborScalar<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

/// Reads items from the start of a slice.
pub(crate) struct CborReader<'a> {
    rest: &'a [u8],
}

impl<'a> CborReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that were not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the start of a map, and returns the number of its entries.
    pub(crate) fn map(&mut self) -> Result<u64, WebauthnError> {
        self.expect(MajorType::Map)
    }

    /// Reads an integer.
    pub(crate) fn integer(&mut self) -> Result<i64, WebauthnError> {
        if let CborScalar::Integer(number) = self.scalar()? { Ok(number) } else { Err(MALFORMED) }
    }

    /// Reads a byte string.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], WebauthnError> {
        if let CborScalar::Bytes(bytes) = self.scalar()? { Ok(bytes) } else { Err(MALFORMED) }
    }

    /// Reads an integer or a byte string.
    pub(crate) fn scalar(&mut self) -> Result<CborScalar<'a>, WebauthnError> {
        let (major, argument) = self.header()?;
        let number = i64::try_from(argument).map_err(|_| MALFORMED)?;
        match major {
            MajorType::Unsigned => Ok(CborScalar::Integer(number)),
            MajorType::Negative => Ok(CborScalar::Integer(-1 - number)),
            MajorType::Bytes => Ok(CborScalar::Bytes(self.take(argument)?)),
            MajorType::Text | MajorType::Array | MajorType::Map | MajorType::Tag | MajorType::Simple => Err(MALFORMED),
        }
    }

    /// Reads a text.
    pub(crate) fn text(&mut self) -> Result<&'a str, WebauthnError> {
        let length = self.expect(MajorType::Text)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| MALFORMED)
    }

    /// Skips an item with everything inside it. Not recursive, so that nesting cannot exhaust the stack.
    pub(crate) fn skip(&mut self) -> Result<(), WebauthnError> {
        let mut pending = 1_u64;
        while pending > 0 {
            let (major, argument) = self.header()?;
            let inner = match major {
                MajorType::Unsigned | MajorType::Negative | MajorType::Simple => 0,
                MajorType::Bytes | MajorType::Text => {
                    self.take(argument)?;
                    0
                }
                MajorType::Array => argument,
                MajorType::Map => argument.checked_mul(2).ok_or(MALFORMED)?,
                MajorType::Tag => 1,
            };
            pending = (pending - 1).checked_add(inner).ok_or(MALFORMED)?;
        }
        Ok(())
    }

    /// Skips a map.
    pub(crate) fn skip_map(&mut self) -> Result<(), WebauthnError> {
        Self::new(self.rest).map()?;
        self.skip()
    }

    fn expect(&mut self, expected: MajorType) -> Result<u64, WebauthnError> {
        let (major, argument) = self.header()?;
        if major == expected { Ok(argument) } else { Err(MALFORMED) }
    }

    /// Reads the type and the argument of an item: its value, its length or the number of its entries.
    fn header(&mut self) -> Result<(MajorType, u64), WebauthnError> {
        let (first, rest) = self.rest.split_first().ok_or(MALFORMED)?;
        self.rest = rest;
        let major = match first >> 5 {
            0 => MajorType::Unsigned,
            1 => MajorType::Negative,
            2 => MajorType::Bytes,
            3 => MajorType::Text,
            4 => MajorType::Array,
            5 => MajorType::Map,
            6 => MajorType::Tag,
            _ => MajorType::Simple,
        };
        let argument_bytes = match first & 0x1f {
            small @ ..=23 => return Ok((major, u64::from(small))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            // Indefinite lengths, which authenticators must not use, and reserved values.
            _ => return Err(MALFORMED),
        };
        let argument = self.take(argument_bytes)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
        Ok((major, argument))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], WebauthnError> {
        let length = usize::try_from(length).map_err(|_| MALFORMED)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(MALFORMED)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Stores the value of a map's key.
///
/// # Errors
/// If the key occurs twice.
pub(crate) fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), WebauthnError> {
    if slot.replace(value).is_some() { Err(MALFORMED) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_in_every_length_of_the_argument() {
        for (bytes, expected) in [
            (&b"\x17"[..], 23),
            (b"\x18\x18", 24),
            (b"\x19\x01\x00", 256),
            (b"\x1a\x00\x01\x00\x00", 65_536),
            (b"\x1b\x00\x00\x00\x01\x00\x00\x00\x00", 4_294_967_296),
            (b"\x26", -7),
            (b"\x39\x01\x00", -257),
            (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", i64::MIN),
        ] {
            let mut reader = CborReader::new(bytes);
            assert_eq!(reader.integer(), Ok(expected));
            assert!(reader.rest().is_empty());
        }
        assert_eq!(CborReader::new(b"\x42ab").bytes(), Ok(&b"ab"[..]));
        assert_eq!(CborReader::new(b"\x62ab").text(), Ok("ab"));
        assert_eq!(CborReader::new(b"\xa2").map(), Ok(2));
    }

    #[test]
    fn malformed_items_are_rejected() {
        for bytes in [
            &b""[..],
            b"\x18",
            b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x3b\x80\x00\x00\x00\x00\x00\x00\x00",
            b"\x1c",
            b"\x41a",
            b"\x61a",
            b"\xf6",
        ] {
            assert_eq!(CborReader::new(bytes).integer(), Err(MALFORMED), "{bytes:?}");
        }
        assert_eq!(CborReader::new(b"\x43ab").bytes(), Err(MALFORMED), "too short");
        assert_eq!(CborReader::new(b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff").bytes(), Err(MALFORMED), "too long");
        assert_eq!(CborReader::new(b"\x5f\x41a\xff").bytes(), Err(MALFORMED), "indefinite length");
        assert_eq!(CborReader::new(b"\x61\xff").text(), Err(MALFORMED), "not UTF-8");
        assert_eq!(CborReader::new(b"\x81\x01").map(), Err(MALFORMED), "an array");
    }

    #[test]
    fn skip_ends_after_the_item() {
        // {"a": [1, h'62', {}], 2: tag 0 ("c"), 3: 1.5, 4: null, 5: false}
        let item = b"\xa5\x61a\x83\x01\x41b\xa0\x02\xc0\x61c\x03\xf9\x3e\x00\x04\xf6\x05\xf4";
        let mut reader = CborReader::new(item);
        assert_eq!((reader.skip(), reader.rest()), (Ok(()), &b""[..]));
        for length in 0..item.len() {
            assert_eq!(CborReader::new(&item[..length]).skip(), Err(MALFORMED), "{length}");
        }
        assert_eq!(CborReader::new(item).skip_map(), Ok(()));
        assert_eq!(CborReader::new(b"\x05").skip_map(), Err(MALFORMED), "an integer");
    }

    #[test]
    fn deep_nesting_and_huge_lengths_end_with_an_error() {
        assert_eq!(CborReader::new(&[0x81; 100_000]).skip(), Err(MALFORMED));
        for huge in [b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(CborReader::new(huge).skip(), Err(MALFORMED));
            assert_eq!(CborReader::new(&[&b"\x82"[..], huge, huge].concat()).skip(), Err(MALFORMED));
        }
    }
}
