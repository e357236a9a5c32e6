//! Values of headers, put together from pieces: every answer has several, and formatting them in the general way costs more than their memory.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Room for the longest: a policy with two numbers of twenty digits.
const ROOM_BYTES: usize = 64;

/// A value in the making.
pub(crate) struct HeaderText {
    bytes: [u8; ROOM_BYTES],
    length: usize,
}

impl HeaderText {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; ROOM_BYTES], length: 0 }
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        let end = self.length + text.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(text.as_bytes());
            self.length = end;
        }
        self
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.text(itoa::Buffer::new().format(number))
    }

    pub(crate) fn insert(self, headers: &mut HeaderMap, name: HeaderName) {
        if let Ok(value) = HeaderValue::from_bytes(&self.bytes[..self.length]) {
            headers.insert(name, value);
        }
    }
}
