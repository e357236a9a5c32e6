use std::net::TcpListener;
use std::time::Duration;

use testkit::Line;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn a_line_takes_its_time_and_leaves_nothing() {
    let line = Line::open(Duration::from_millis(40)).expect("a line");
    let listener = tokio::net::TcpListener::bind((line.server(), 0)).await.expect("a listener");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let answer = async {
        let (mut stream, peer) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("an answer");
        (stream, peer.ip())
    };
    let arguments = ["--write-out", "%{time_connect}", &url];
    let (output, (_, peer)) = tokio::join!(line.curl(&arguments), answer);
    let connect_s: f64 = output.expect("curl").success().expect("an answer").text().parse().expect("seconds");
    // Only the lower bound is the line's own: a machine may be busy.
    assert!((0.080..1.0).contains(&connect_s), "{connect_s}");
    assert_eq!(peer, line.client());

    let server = line.server();
    drop(line);
    assert!(TcpListener::bind((server, 0)).is_err());
}
