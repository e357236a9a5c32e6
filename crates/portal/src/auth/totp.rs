//! Codes of authenticator apps (RFC 6238): six digits, HMAC-SHA-1, a new code every 30 seconds. Apps support nothing else
//! reliably.

use aws_lc_rs::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use data_encoding::BASE32_NOPAD;
use qrcodegen::{QrCode, QrCodeEcc};
use subtle::ConstantTimeEq;

const SECRET_BYTES: usize = 20;
const STEP_S: u64 = 30;
const CODES: u32 = 1_000_000;
/// Steps before and after the current one whose codes are accepted, because clocks differ.
const TOLERANCE_STEPS: i64 = 1;
/// Light modules around a QR code, as its standard requires.
const QR_MARGIN: i32 = 4;

/// Generates a secret.
pub(crate) fn generate_secret() -> Vec<u8> {
    let mut secret = vec![0; SECRET_BYTES];
    getrandom::fill(&mut secret).expect("the system provides random bytes");
    secret
}

/// The time step whose code this is, if it is accepted at this time.
pub(crate) fn find_step(secret: &[u8], code: &str, now_s: u64) -> Option<i64> {
    let current = i64::try_from(now_s / STEP_S).ok()?;
    let is_code = |step: &i64| bool::from(code_of(secret, *step).as_bytes().ct_eq(code.as_bytes()));
    (current - TOLERANCE_STEPS..=current + TOLERANCE_STEPS).find(is_code)
}

fn code_of(secret: &[u8], step: i64) -> String {
    let tag = sign(&Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret), &step.to_be_bytes());
    let tag = tag.as_ref();
    // RFC 4226, section 5.3: the last four bits select 31 bits.
    let offset = usize::from(tag[tag.len() - 1] & 0xf);
    let bits = u32::from_be_bytes([tag[offset] & 0x7f, tag[offset + 1], tag[offset + 2], tag[offset + 3]]);
    format!("{:06}", bits % CODES)
}

/// The secret as people type it into an app.
pub(crate) fn format_secret(secret: &[u8]) -> String {
    let text = BASE32_NOPAD.encode(secret);
    text.as_bytes().chunks(4).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

/// The URI that apps read from a QR code.
pub(crate) fn setup_uri(secret: &[u8], email: &str) -> String {
    let account: String = form_urlencoded::byte_serialize(email.as_bytes()).collect();
    format!("otpauth://totp/Ipseity:{account}?secret={}&issuer=Ipseity", BASE32_NOPAD.encode(secret))
}

/// A QR code as SVG.
pub(crate) fn qr_svg(text: &str) -> Option<String> {
    let code = QrCode::encode_text(text, QrCodeEcc::Medium).ok()?;
    let size = code.size();
    let cells = (0..size).flat_map(|y| (0..size).map(move |x| (x, y)));
    let path: String = cells
        .filter(|(x, y)| code.get_module(*x, *y))
        .map(|(x, y)| format!("M{} {}h1v1h-1z", x + QR_MARGIN, y + QR_MARGIN))
        .collect();
    let side = size + 2 * QR_MARGIN;
    Some(format!(
        r#"<svg class="qr-code" viewBox="0 0 {side} {side}" role="img" aria-label="QR code"><path d="{path}"/></svg>"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of the test vectors in RFC 6238, appendix B.
    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn codes_match_the_vectors_of_the_standard() {
        for (time_s, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(find_step(SECRET, code, time_s), i64::try_from(time_s / 30).ok(), "{time_s}");
        }
    }

    #[test]
    fn code_is_accepted_one_step_early_or_late() {
        for (now_s, is_accepted) in [(0, false), (29, false), (30, true), (60, true), (119, true), (120, false)] {
            assert_eq!(find_step(SECRET, &code_of(SECRET, 2), now_s), is_accepted.then_some(2), "{now_s}");
        }
        for wrong in ["", "12345", "1234567", " 94287", "\u{664}\u{664}\u{664}"] {
            assert_eq!(find_step(SECRET, wrong, 59), None, "{wrong}");
        }
    }

    #[test]
    fn secret_and_uri_are_base32() {
        assert_eq!(format_secret(SECRET), "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ");
        assert_eq!(
            setup_uri(SECRET, "ada+x@example.org"),
            "otpauth://totp/Ipseity:ada%2Bx%40example.org?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Ipseity"
        );
        let svg = qr_svg(&setup_uri(SECRET, "ada@example.org")).expect("text fits");
        assert!(svg.starts_with("<svg") && svg.matches("h1v1h-1z").count() > 500, "{}", svg.len());
        assert_ne!(generate_secret(), generate_secret());
    }
}
