use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ipseity_testkit::{FaultConfig, FaultProxy, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const QUIET_PERIOD: Duration = Duration::from_millis(150);

/// A server that says everything back, and how many bytes it has heard.
async fn start_echo_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let (address, received_bytes) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&received_bytes);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    counter.fetch_add(length, Ordering::Relaxed);
                    let _ = stream.write_all(&buffer[..length]).await;
                }
            });
        }
    });
    (address, received_bytes)
}

async fn start_fault_proxy() -> (FaultProxy, Arc<AtomicUsize>) {
    let (address, received_bytes) = start_echo_server().await;
    (FaultProxy::open(address).expect("a relay"), received_bytes)
}

async fn connect_to(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.expect("a connection")
}

/// What comes back for these bytes, or how the connection ended.
async fn send_and_read(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes).await?;
    let mut reply = vec![0; bytes.len()];
    timeout(REPLY_TIMEOUT, stream.read_exact(&mut reply)).await.expect("an answer or an end")?;
    Ok(reply)
}

async fn read_end(stream: &mut TcpStream) -> Option<ErrorKind> {
    let read = timeout(REPLY_TIMEOUT, stream.read(&mut [0])).await.expect("an end");
    read.map(|length| assert_eq!(length, 0, "bytes where an end was due")).err().map(|error| error.kind())
}

#[tokio::test]
async fn faultless_proxy_forwards_all_bytes_and_end_of_stream() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    let mut stream = connect_to(&proxy).await;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut from, mut to) = stream.split();
    let send = async {
        to.write_all(&bytes).await.expect("all sent");
        to.shutdown().await.expect("an end");
    };
    let mut reply = Vec::new();
    let (_, read) = tokio::join!(send, from.read_to_end(&mut reply));
    read.expect("all received, and then an end");
    assert!(reply == bytes, "not what was sent");
    assert_eq!(
        (received_bytes.load(Ordering::Relaxed), proxy.connections_accepted(), proxy.replies_dropped()),
        (bytes.len(), 1, 0)
    );

    let mut stream = connect_to(&proxy).await;
    send_and_read(&mut stream, b"open").await.expect("an answer");
    drop(proxy);
    read_end(&mut stream).await;
}

#[tokio::test]
async fn proxy_delays_each_chunk_and_jitter_keeps_order() {
    let (proxy, _) = start_fault_proxy().await;
    let mut stream = connect_to(&proxy).await;
    proxy.set_faults(FaultConfig {
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(20),
        seed: 7,
        ..FaultConfig::none()
    });
    let start = Instant::now();
    let (mut from, mut to) = stream.split();
    let send = async {
        for byte in 0..50_u8 {
            to.write_all(&[byte]).await.expect("a byte sent");
            tokio::task::yield_now().await;
        }
    };
    let mut reply = [0; 50];
    let (_, read) = tokio::join!(send, timeout(REPLY_TIMEOUT, from.read_exact(&mut reply)));
    read.expect("in time").expect("all received");
    assert_eq!(reply.to_vec(), (0..50).collect::<Vec<u8>>());
    let took = start.elapsed();
    assert!((Duration::from_millis(80)..Duration::from_secs(2)).contains(&took), "{took:?}");

    proxy.set_faults(FaultConfig { delay: Duration::from_secs(3600), ..FaultConfig::none() });
    stream.write_all(b"x").await.expect("a byte sent");
    assert!(timeout(QUIET_PERIOD, stream.read_u8()).await.is_err(), "a byte came an hour too early");
    proxy.clear_faults();
    assert_eq!(timeout(REPLY_TIMEOUT, stream.read_u8()).await.expect("in time").expect("what was on its way"), b'x');
}

#[tokio::test]
async fn cut_proxy_closes_open_and_new_connections_until_cleared() {
    let (proxy, _) = start_fault_proxy().await;
    let mut stream = connect_to(&proxy).await;
    send_and_read(&mut stream, b"before").await.expect("an answer");
    proxy.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    read_end(&mut stream).await;
    read_end(&mut connect_to(&proxy).await).await;
    proxy.clear_faults();
    assert_eq!(send_and_read(&mut connect_to(&proxy).await, b"after").await.expect("an answer"), b"after");
    assert_eq!(proxy.connections_accepted(), 3);
}

#[tokio::test]
async fn half_open_proxy_swallows_bytes_then_resets_lossy_streams() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    let (mut lossy, mut idle) = (connect_to(&proxy).await, connect_to(&proxy).await);
    send_and_read(&mut lossy, b"1234").await.expect("an answer");
    send_and_read(&mut idle, b"1234").await.expect("an answer");
    proxy.set_faults(FaultConfig { half_open: true, ..FaultConfig::none() });
    let mut late = connect_to(&proxy).await;
    for stream in [&mut lossy, &mut late] {
        stream.write_all(b"lost").await.expect("taken as if nothing were wrong");
        assert!(timeout(QUIET_PERIOD, stream.read_u8()).await.is_err(), "a half-open line spoke, or ended");
    }
    assert_eq!(received_bytes.load(Ordering::Relaxed), 8);
    proxy.clear_faults();
    for stream in [&mut lossy, &mut late] {
        assert_eq!(read_end(stream).await, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(send_and_read(&mut idle, b"whole").await.expect("an answer"), b"whole");
}

#[tokio::test]
async fn dropped_reply_reached_the_server_and_resets_the_client() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    proxy.set_faults(FaultConfig { reply_drop_rate: 1.0, ..FaultConfig::none() });
    let mut stream = connect_to(&proxy).await;
    assert_eq!(send_and_read(&mut stream, b"request").await.expect_err("no reply").kind(), ErrorKind::ConnectionReset);
    assert_eq!((received_bytes.load(Ordering::Relaxed), proxy.replies_dropped()), (7, 1));

    proxy.set_faults(FaultConfig { reply_drop_rate: 0.2, seed: 3, ..FaultConfig::none() });
    let (mut stream, mut lost) = (connect_to(&proxy).await, 0);
    for number in 0..200_u32 {
        match send_and_read(&mut stream, &number.to_be_bytes()).await {
            Ok(reply) => assert_eq!(reply, number.to_be_bytes()),
            Err(_) => {
                lost += 1;
                stream = connect_to(&proxy).await;
            }
        }
    }
    assert!((20..=60).contains(&lost), "{lost} of 200 replies lost at one in five");
    assert_eq!(proxy.replies_dropped(), 1 + lost);
}

#[tokio::test]
async fn proxy_reset_affects_only_open_connections() {
    let (proxy, _) = start_fault_proxy().await;
    let mut streams = [connect_to(&proxy).await, connect_to(&proxy).await];
    for stream in &mut streams {
        send_and_read(stream, b"open").await.expect("an answer");
    }
    proxy.reset_connections();
    for stream in &mut streams {
        assert_eq!(read_end(stream).await, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(send_and_read(&mut connect_to(&proxy).await, b"next").await.expect("an answer"), b"next");
}

#[tokio::test]
async fn throttled_proxy_respects_its_byte_rate() {
    let (proxy, _) = start_fault_proxy().await;
    proxy.set_faults(FaultConfig { bytes_per_second: NonZeroU32::new(10_000), ..FaultConfig::none() });
    let start = Instant::now();
    let bytes = vec![1; 4_000];
    assert_eq!(send_and_read(&mut connect_to(&proxy).await, &bytes).await.expect("an answer"), bytes);
    let took = start.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(4)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn unreachable_upstream_resets_and_dropped_proxy_closes() {
    let (address, _) = start_echo_server().await;
    let unused_address = TcpListener::bind("127.0.0.1:0").await.expect("a listener").local_addr().expect("an address");
    let proxy = FaultProxy::open(unused_address).expect("a relay");
    assert_eq!(read_end(&mut connect_to(&proxy).await).await, Some(ErrorKind::ConnectionReset));
    let chain = FaultProxy::open(FaultProxy::open(address).expect("a relay").address())
        .expect("a relay of one that is dropped");
    eventually("a relay that nobody holds is gone", REPLY_TIMEOUT, async || {
        read_end(&mut connect_to(&chain).await).await == Some(ErrorKind::ConnectionReset)
    })
    .await
    .expect("an end");
}
