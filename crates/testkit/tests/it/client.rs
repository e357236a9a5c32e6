use std::net::SocketAddr;

use ipseity_testkit::certificate::TestCertificate;
use ipseity_testkit::{TestClient, TestDir, curl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Responds with the number of previous requests on the connection, and closes after the second.
async fn start_counting_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a listener");
    let address = listener.local_addr().expect("listener has an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for before in 0..2 {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    request.push(byte);
                }
                let response = format!("HTTP/1.1 200 OK\r\nX-Kind: test\r\nContent-Length: 1\r\n\r\n{before}");
                let _ = stream.write_all(response.as_bytes()).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn client_reuses_its_connection_and_reconnects_after_close() {
    let address = start_counting_server().await;
    let mut caller = TestClient::new(address);
    for expected in [0, 1, 0, 1] {
        let reply = caller.get("/", &[("x-test", "1")]).await.expect("response arrives");
        assert_eq!((reply.status, reply.header("x-kind")), (200, Some("test")));
        assert_eq!(reply.json().expect("valid number"), expected);
    }
    let output =
        curl(&[&format!("http://{address}/")]).await.expect("curl runs").ensure_success().expect("request succeeds");
    assert_eq!(output.text(), "0");
}

#[tokio::test]
async fn test_certificate_verifies_against_its_ca() {
    let dir = TestDir::create().expect("create a directory");
    let files = TestCertificate::generate_in(dir.path()).expect("create a certificate");
    let verified = std::process::Command::new("openssl")
        .args([
            "verify",
            "-purpose",
            "sslserver",
            "-verify_ip",
            "127.0.0.1",
            "-verify_hostname",
            "localhost",
            "-CAfile",
        ])
        .args([&files.ca_file, &files.chain_file])
        .output()
        .expect("openssl runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}
