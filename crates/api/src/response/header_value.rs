//! Values of headers, put together from pieces: every answer has several, and formatting them in the general way costs more than their memory.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Room for the longest: a policy with two numbers of twenty digits.
const CAPACITY_BYTES: usize = 64;

/// A value in the making.
pub(crate) struct HeaderValueBuilder {
    bytes: [u8; CAPACITY_BYTES],
    length: usize,
}

impl HeaderValueBuilder {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; CAPACITY_BYTES], length: 0 }
    }

    pub(crate) fn push_str(mut self, text: &str) -> Self {
        let end = self.length + text.len();
        if let Some(target) = self.bytes.get_mut(self.length..end) {
            target.copy_from_slice(text.as_bytes());
            self.length = end;
        }
        self
    }

    pub(crate) fn push_u64(self, number: u64) -> Self {
        self.push_str(itoa::Buffer::new().format(number))
    }

    pub(crate) fn insert_into(self, headers: &mut HeaderMap, name: HeaderName) {
        if let Ok(value) = HeaderValue::from_bytes(&self.bytes[..self.length]) {
            headers.insert(name, value);
        }
    }
}
