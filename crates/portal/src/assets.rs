//! Styles, scripts, icons and fonts, embedded in the binary. Their path contains a version derived from their bytes, so that
//! browsers can cache them forever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use crate::static_file::StaticFile;

struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal $content_type:literal;)+) => {
        const ASSETS: &[Asset] = &[
            $(Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!("../assets/", $name)) },)+
        ];
    };
}

assets! {
    "app.css"                "text/css; charset=utf-8";
    "app.js"                 "text/javascript; charset=utf-8";
    "api_call.js"            "text/javascript; charset=utf-8";
    "console.css"            "text/css; charset=utf-8";
    "charts.js"              "text/javascript; charset=utf-8";
    "code_tabs.js"           "text/javascript; charset=utf-8";
    "docs.js"                "text/javascript; charset=utf-8";
    "key_field.js"           "text/javascript; charset=utf-8";
    "landing.js"             "text/javascript; charset=utf-8";
    "local_time.js"          "text/javascript; charset=utf-8";
    "new_secret.js"          "text/javascript; charset=utf-8";
    "reference.js"           "text/javascript; charset=utf-8";
    "row_menu.js"            "text/javascript; charset=utf-8";
    "theme.js"               "text/javascript; charset=utf-8";
    "public.css"             "text/css; charset=utf-8";
    "card.png"               "image/png";
    "favicon.svg"            "image/svg+xml";
    "fonts/geist.woff2"      "font/woff2";
    "fonts/geist-mono.woff2" "font/woff2";
}

static FILES: LazyLock<Vec<(&str, StaticFile)>> = LazyLock::new(|| {
    ASSETS.iter().map(|asset| (asset.name, StaticFile::new(asset.content_type, asset.bytes))).collect()
});

/// Compresses the files.
pub(crate) fn prepare() {
    LazyLock::force(&FILES);
}

/// Version of the files, used in their path.
pub(crate) const VERSION: &str = match std::str::from_utf8(&VERSION_DIGITS) {
    Ok(digits) => digits,
    Err(_) => unreachable!(),
};

const VERSION_DIGITS: [u8; 16] = to_hex_digits(fingerprint());

/// FNV-1a over all files. It detects changes; it is not a security measure.
const fn fingerprint() -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut asset_index = 0;
    while asset_index < ASSETS.len() {
        let bytes = ASSETS[asset_index].bytes;
        let mut index = 0;
        while index < bytes.len() {
            hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
            index += 1;
        }
        asset_index += 1;
    }
    hash
}

const fn to_hex_digits(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let mut index = 0;
    while index < 16 {
        digits[index] = b"0123456789abcdef"[((number >> (60 - 4 * index)) & 15) as usize];
        index += 1;
    }
    digits
}

pub(crate) async fn serve_asset(Path((version, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some((_, file)) = FILES.iter().find(|(file_name, _)| *file_name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A page from before an upgrade requests the old version. It gets the new file, but must not cache it under the old path.
    let cache_control = if version == VERSION { "public, max-age=31536000, immutable" } else { "no-cache" };
    file.respond(&headers, cache_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asset_version_has_sixteen_hex_digits() {
        assert!(VERSION.len() == 16 && VERSION.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
