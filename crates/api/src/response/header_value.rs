//! Builds header values from parts. Every response has several, and `format!` costs more than allocating them.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Capacity for the longest value: two policies, the first with a number of twenty digits.
const CAPACITY_BYTES: usize = 96;

/// A header value under construction. Text that does not fit is dropped.
pub(crate) struct HeaderValueBuilder {
    bytes: [u8; CAPACITY_BYTES],
    length: usize,
}

impl HeaderValueBuilder {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; CAPACITY_BYTES], length: 0 }
    }

    pub(crate) fn push_str(&mut self, text: &str) -> &mut Self {
        let end = self.length + text.len();
        if let Some(target) = self.bytes.get_mut(self.length..end) {
            target.copy_from_slice(text.as_bytes());
            self.length = end;
        }
        self
    }

    pub(crate) fn push_u64(&mut self, number: u64) -> &mut Self {
        self.push_str(itoa::Buffer::new().format(number))
    }

    pub(crate) fn insert_into(&self, headers: &mut HeaderMap, name: HeaderName) {
        if let Ok(value) = HeaderValue::from_bytes(&self.bytes[..self.length]) {
            headers.insert(name, value);
        }
    }

    /// Inserts a value that differs in nearly every response.
    pub(crate) fn insert_volatile(&self, headers: &mut HeaderMap, name: HeaderName) {
        if let Ok(value) = HeaderValue::from_bytes(&self.bytes[..self.length]) {
            headers.insert(name, volatile(value));
        }
    }
}

/// Marks a value that differs in nearly every response. HTTP/2 does not keep such a value in its compression table, where it would
/// push out the constant headers, which then would have to be sent again.
pub(crate) fn volatile(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}
