use std::net::TcpListener;
use std::time::Duration;

use ipseity_testkit::DelayedLink;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn delayed_link_adds_latency_and_cleans_up() {
    let link = DelayedLink::open(Duration::from_millis(40)).expect("create a link");
    let listener = tokio::net::TcpListener::bind((link.server_ip(), 0)).await.expect("bind a listener");
    let url = format!("http://{}/", listener.local_addr().expect("listener has an address"));
    let respond = async {
        let (mut stream, peer) = listener.accept().await.expect("accept a connection");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("response is sent");
        (stream, peer.ip())
    };
    let arguments = ["--write-out", "%{time_connect}", &url];
    let (output, (_, peer)) = tokio::join!(link.curl(&arguments), respond);
    let connect_s: f64 =
        output.expect("curl runs").ensure_success().expect("request succeeds").text().parse().expect("valid seconds");
    // There is no upper bound, because the machine may be busy.
    assert!((0.080..1.0).contains(&connect_s), "{connect_s}");
    assert_eq!(peer, link.client_ip());

    let server = link.server_ip();
    drop(link);
    assert!(TcpListener::bind((server, 0)).is_err());
}
