//! COSE keys that are not accepted.

use super::super::WebauthnError;
use super::super::cbor::CborReader;
use super::super::public_key::{ALGORITHMS, PublicKey};
use super::authenticator::Authenticator;
use super::register;

fn read(cose_key: &[u8]) -> Result<PublicKey, WebauthnError> {
    PublicKey::read_cose(&mut CborReader::new(cose_key))
}

#[test]
fn unknown_algorithm_is_rejected() {
    let authenticator = Authenticator::es256();
    // ES512, ES256K, PS256 and RS1.
    for algorithm in [&b"\x38\x23"[..], b"\x38\x2e", b"\x38\x24", b"\x39\xff\xfe"] {
        let mut cose_key = authenticator.cose_key();
        cose_key.splice(4..5, algorithm.iter().copied());
        assert_eq!(read(&cose_key), Err(WebauthnError::UnsupportedAlgorithm));
        let outcome = register(&authenticator, |statement| statement.cose_key = cose_key);
        assert_eq!(outcome, Err(WebauthnError::UnsupportedAlgorithm));
    }
    assert_eq!(ALGORITHMS, [-7, -8, -35, -257]);
}

#[test]
fn keys_of_other_algorithms_and_curves_are_rejected() {
    let [es256, es384, ed25519, rs256] = Authenticator::of_every_algorithm().map(|key| key.cose_key());
    for (name, key, position, byte) in [
        ("ES256 with EdDSA", &es256, 4, 0x27),
        ("ES256 with the key type OKP", &es256, 2, 0x01),
        ("ES256 on P-384", &es256, 6, 0x02),
        ("ES384 on P-256", &es384, 7, 0x01),
        ("EdDSA on X25519", &ed25519, 6, 0x04),
        ("EdDSA with ES256", &ed25519, 4, 0x26),
        ("RS256 with the key type EC2", &rs256, 2, 0x02),
    ] {
        let mut key = key.clone();
        key[position] = byte;
        assert_eq!(read(&key), Err(WebauthnError::Malformed("COSE key")), "{name}");
    }
}

#[test]
fn point_must_be_on_the_curve() {
    for authenticator in Authenticator::of_every_algorithm().iter().take(2) {
        let mut key = authenticator.cose_key();
        *key.last_mut().expect("key is not empty") ^= 1;
        assert_eq!(read(&key), Err(WebauthnError::InvalidPublicKey));
    }
    let mut zero = Authenticator::es256().cose_key();
    zero[10..42].fill(0);
    zero[45..].fill(0);
    assert_eq!(read(&zero), Err(WebauthnError::InvalidPublicKey), "the point at infinity");
}

#[test]
fn coordinates_have_the_length_of_the_curve() {
    let es256 = Authenticator::es256().cose_key();
    // x with 31 bytes and y with 33: the same number in total.
    let shifted = [&es256[..9], &[31], &es256[10..41], b"\x22\x58\x21", &es256[41..42], &es256[45..]].concat();
    assert_eq!(read(&shifted), Err(WebauthnError::InvalidPublicKey));
    // A compressed point has a Boolean as y.
    let compressed = [&es256[..42], b"\x22\xf5"].concat();
    assert_eq!(read(&compressed), Err(WebauthnError::Malformed("CBOR")));
}

#[test]
fn keys_with_missing_or_repeated_parts_are_rejected() {
    let es256 = Authenticator::es256().cose_key();
    for (name, key) in [
        ("no algorithm", [b"\xa4\x01\x02", &es256[5..]].concat()),
        ("no y", [b"\xa4", &es256[1..42]].concat()),
        ("no key type", [b"\xa4", &es256[3..]].concat()),
        ("an empty map", vec![0xa0]),
    ] {
        assert_eq!(read(&key), Err(WebauthnError::Malformed("COSE key")), "{name}");
    }
    let repeated = [b"\xa6\x03\x26", &es256[1..]].concat();
    assert_eq!(read(&repeated), Err(WebauthnError::Malformed("CBOR")));
}

#[test]
fn other_order_and_unknown_labels_are_accepted() {
    let es256 = Authenticator::es256().cose_key();
    // The key id (label 2), then the parts of the key, its algorithm and its type.
    let reordered = [b"\xa6\x02\x41\x00", &es256[5..], b"\x03\x26\x01\x02"].concat();
    assert_eq!(read(&reordered), read(&es256));
    assert!(read(&es256).is_ok());
}

#[test]
fn rsa_keys_have_at_least_2048_bits_and_a_usual_exponent() {
    let [_, _, _, rs256] = Authenticator::of_every_algorithm().map(|key| key.cose_key());
    let with_modulus = |n: &[u8]| {
        let length = u16::try_from(n.len()).expect("modulus is short").to_be_bytes();
        read(&[&rs256[..9], &length, n, b"\x21\x43\x01\x00\x01"].concat())
    };
    assert!(with_modulus(&rs256[11..267]).is_ok());
    assert_eq!(with_modulus(&rs256[11..139]), Err(WebauthnError::InvalidPublicKey), "1024 bits");
    assert_eq!(with_modulus(&[0xff; 1025]), Err(WebauthnError::InvalidPublicKey), "8200 bits");
    assert_eq!(with_modulus(&[]), Err(WebauthnError::InvalidPublicKey));
    for exponent in [&b"\x41\x03"[..], b"\x41\x01", b"\x43\x01\x00\x00", b"\x44\x01\x00\x00\x01", b"\x40"] {
        let key = [&rs256[..267], b"\x21", exponent].concat();
        assert_eq!(read(&key), Err(WebauthnError::InvalidPublicKey), "{exponent:?}");
    }
}
