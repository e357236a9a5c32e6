//! TLS: what is agreed on, and certificates that cannot be used.

use std::path::Path;

use edge::{Bound, CertificateError, CertificateFiles, Trust, Wardrobe};

use crate::house::{House, Pair, SHORT, curl, exchange, until, wide, write_file};

/// Asks `localhost` over TLS, as the certificate names it.
async fn ask(house: &House, pair: &Pair, options: &[&str]) -> (i32, String) {
    let port = house.address.port();
    let (url, resolve) = (format!("https://localhost:{port}/"), format!("localhost:{port}:127.0.0.1"));
    let certificate = pair.certificate_file.to_str().expect("a path");
    curl(&[&["--cacert", certificate, "--resolve", &resolve], options, &[&url]].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_carry_both_protocols() {
    let pair = Pair::issue();
    let house = House::open(wide(), Trust::nobody(), pair.open());
    let older = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    let newer = ["--tlsv1.3", "--tls13-ciphers", "TLS_CHACHA20_POLY1305_SHA256"];
    let older_facts = "tls=TLSv1.2 cipher=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let newer_facts = "tls=TLSv1.3 cipher=TLS_CHACHA20_POLY1305_SHA256";
    for (version, facts) in [(&older[..], older_facts), (&newer[..], newer_facts)] {
        let protocols =
            [("--http1.0", "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2"), ("--no-alpn", "HTTP/1.1")];
        for (option, protocol) in protocols {
            let (code, text) = ask(&house, &pair, &[version, &[option]].concat()).await;
            assert_eq!((code, text), (0, format!("ip=127.0.0.1 protocol={protocol} {facts} rtt=short colo=FRA")));
        }
    }
    assert_eq!(house.edge.stats().handshakes_failed.value(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_fails_is_counted() {
    let pair = Pair::issue();
    let house = House::open(wide(), Trust::nobody(), pair.open());
    let (code, _) = ask(&house, &pair, &["--tls-max", "1.1"]).await;
    assert_ne!(code, 0);
    let (code, _) = curl(&[&format!("http://{}/", house.address)]).await;
    assert_ne!(code, 0);
    until("both failures are counted", || house.edge.stats().handshakes_failed.value() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_handshake_is_closed() {
    let bounds = edge::Bounds { handshake_timeout: SHORT, ..wide() };
    let house = House::open(bounds, Trust::nobody(), Pair::issue().open());
    let mut stream = house.connect().await;
    // The first byte of a handshake, and no more.
    assert_eq!(exchange(&mut stream, &[0x16]).await, "");
    until("it is counted", || house.edge.stats().closed_by(Bound::Handshake) == 1).await;
    until("the seat is free", || house.edge.stats().open.value() == 0).await;
}

fn open(certificate: &Path, private_key: &Path) -> Result<Wardrobe, CertificateError> {
    Wardrobe::open(&[CertificateFiles { certificate: certificate.into(), private_key: private_key.into() }])
}

fn refused(certificate_file: &Path, key_file: &Path) -> CertificateError {
    open(certificate_file, key_file).expect_err("a refusal")
}

#[test]
fn a_pair_that_cannot_be_used_is_refused_with_its_reason() {
    let (pair, other) = (Pair::issue(), Pair::issue());
    let (certificate, key) = (&pair.certificate_file, &pair.key_file);
    assert!(open(certificate, key).is_ok());

    let missing = Path::new("/nowhere/certificate.pem");
    assert!(matches!(refused(missing, key), CertificateError::Unreadable { .. }));
    assert!(matches!(refused(certificate, missing), CertificateError::Unreadable { .. }));
    assert!(matches!(refused(&write_file(""), key), CertificateError::NoCertificate(_)));
    assert!(matches!(refused(key, key), CertificateError::NoCertificate(_)));
    assert!(matches!(refused(certificate, certificate), CertificateError::NoKey(_)));
    assert!(matches!(refused(certificate, &other.key_file), CertificateError::Mismatch { .. }));
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(refused(&write_file(odd), key), CertificateError::Unusable { .. }));
    assert!(refused(certificate, &other.key_file).to_string().contains("does not belong to"));
}

#[test]
fn a_refusal_never_quotes_the_key() {
    let pair = Pair::issue();
    let text = std::fs::read_to_string(&pair.key_file).expect("a key");
    let secret = text.lines().nth(1).expect("a line of the key");
    let torn = write_file(&text.replace("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY"));
    let refusal = refused(&pair.certificate_file, &torn);
    assert!(!format!("{refusal} {refusal:?}").contains(&secret[..16]));
}
