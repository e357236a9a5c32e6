//! TLS: negotiation, and unusable certificates.

use std::path::Path;

use ipseity_edge::{CertResolver, CertificateError, CertificateFiles, CloseReason, Trust};

use crate::fixture::{
    CertificateKeyPair, EdgeFixture, SHORT_TIMEOUT, curl, exchange, generous_limits, wait_until, write_temp_file,
};

/// Sends a request to `localhost` over TLS.
async fn get_over_tls(fixture: &EdgeFixture, pair: &CertificateKeyPair, options: &[&str]) -> (i32, String) {
    let port = fixture.address.port();
    let (url, resolve) = (format!("https://localhost:{port}/"), format!("localhost:{port}:127.0.0.1"));
    let certificate = pair.certificate_file.to_str().expect("path is UTF-8");
    curl(&[&["--cacert", certificate, "--resolve", &resolve], options, &[&url]].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tls12_and_tls13_serve_http1_and_http2() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start(generous_limits(), Trust::none(), pair.transport());
    let older = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    let newer = ["--tlsv1.3", "--tls13-ciphers", "TLS_CHACHA20_POLY1305_SHA256"];
    let older_facts = "tls=TLSv1.2 cipher=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let newer_facts = "tls=TLSv1.3 cipher=TLS_CHACHA20_POLY1305_SHA256";
    for (version, facts) in [(&older[..], older_facts), (&newer[..], newer_facts)] {
        let protocols =
            [("--http1.0", "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2"), ("--no-alpn", "HTTP/1.1")];
        for (option, protocol) in protocols {
            let (code, text) = get_over_tls(&fixture, &pair, &[version, &[option]].concat()).await;
            assert_eq!((code, text), (0, format!("ip=127.0.0.1 protocol={protocol} {facts} rtt=short colo=FRA")));
        }
    }
    assert_eq!(fixture.edge.stats().handshakes_failed.value(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_tls_handshake_is_counted() {
    let pair = CertificateKeyPair::generate();
    let fixture = EdgeFixture::start(generous_limits(), Trust::none(), pair.transport());
    let (code, _) = get_over_tls(&fixture, &pair, &["--tls-max", "1.1"]).await;
    assert_ne!(code, 0);
    exchange(&mut fixture.connect().await, &[0x16, 0xff, 0xff, 0, 0, 0]).await;
    wait_until("both failures are counted", || fixture.edge.stats().handshakes_failed.value() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_tls_handshake_times_out() {
    let limits = ipseity_edge::EdgeLimits { handshake_timeout: SHORT_TIMEOUT, ..generous_limits() };
    let fixture = EdgeFixture::start(limits, Trust::none(), CertificateKeyPair::generate().transport());
    let mut stream = fixture.connect().await;
    // Only the first byte of a handshake.
    assert_eq!(exchange(&mut stream, &[0x16]).await, "");
    wait_until("the connection is counted", || {
        fixture.edge.stats().connections_closed(CloseReason::HandshakeTimeout) == 1
    })
    .await;
    wait_until("the permit is free", || fixture.edge.stats().connections_open.value() == 0).await;
}

fn open_resolver(certificate: &Path, private_key: &Path) -> Result<CertResolver, CertificateError> {
    CertResolver::open(&[CertificateFiles { certificate: certificate.into(), private_key: private_key.into() }])
}

fn resolver_error(certificate_file: &Path, key_file: &Path) -> CertificateError {
    open_resolver(certificate_file, key_file).expect_err("error is returned")
}

#[test]
fn unusable_certificate_is_rejected_with_its_reason() {
    let (pair, other) = (CertificateKeyPair::generate(), CertificateKeyPair::generate());
    let (certificate, key) = (&pair.certificate_file, &pair.key_file);
    assert!(open_resolver(certificate, key).is_ok());

    let missing = Path::new("/nowhere/certificate.pem");
    assert!(matches!(resolver_error(missing, key), CertificateError::Unreadable { .. }));
    assert!(matches!(resolver_error(certificate, missing), CertificateError::Unreadable { .. }));
    assert!(matches!(resolver_error(&write_temp_file(""), key), CertificateError::NoCertificate(_)));
    assert!(matches!(resolver_error(key, key), CertificateError::NoCertificate(_)));
    assert!(matches!(resolver_error(certificate, certificate), CertificateError::NoKey(_)));
    assert!(matches!(resolver_error(certificate, &other.key_file), CertificateError::Mismatch { .. }));
    let invalid = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(resolver_error(&write_temp_file(invalid), key), CertificateError::Unusable { .. }));
    assert!(resolver_error(certificate, &other.key_file).to_string().contains("does not belong to"));
}

#[test]
fn certificate_error_never_contains_the_private_key() {
    let pair = CertificateKeyPair::generate();
    let text = std::fs::read_to_string(&pair.key_file).expect("key file is readable");
    let secret = text.lines().nth(1).expect("key has a second line");
    let truncated_key = write_temp_file(&text.replace("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY"));
    let refusal = resolver_error(&pair.certificate_file, &truncated_key);
    assert!(!format!("{refusal} {refusal:?}").contains(&secret[..16]));
}
