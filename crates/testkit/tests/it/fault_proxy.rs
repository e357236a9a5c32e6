use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ipseity_testkit::{FaultConfig, FaultProxy, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const QUIET_PERIOD: Duration = Duration::from_millis(150);

/// Starts an echo server; returns its address and the number of bytes it received.
async fn start_echo_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a listener");
    let (address, received_bytes) =
        (listener.local_addr().expect("listener has an address"), Arc::new(AtomicUsize::new(0)));
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
    (FaultProxy::open(address).expect("proxy starts"), received_bytes)
}

async fn connect_to(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.expect("connection opens")
}

/// Sends bytes and returns the reply, or the error.
async fn send_and_read(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes).await?;
    let mut reply = vec![0; bytes.len()];
    timeout(REPLY_TIMEOUT, stream.read_exact(&mut reply)).await.expect("reply or end arrives")?;
    Ok(reply)
}

async fn read_end(stream: &mut TcpStream) -> Option<ErrorKind> {
    let read = timeout(REPLY_TIMEOUT, stream.read(&mut [0])).await.expect("stream ends");
    read.map(|length| assert_eq!(length, 0, "expected the end, got bytes")).err().map(|error| error.kind())
}

#[tokio::test]
async fn faultless_proxy_forwards_all_bytes_and_end_of_stream() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    let mut stream = connect_to(&proxy).await;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut from, mut to) = stream.split();
    let send = async {
        to.write_all(&bytes).await.expect("send all bytes");
        to.shutdown().await.expect("close the stream");
    };
    let mut reply = Vec::new();
    let (_, read) = tokio::join!(send, from.read_to_end(&mut reply));
    read.expect("receive all bytes and the end");
    assert!(reply == bytes, "the echo differs");
    assert_eq!(
        (received_bytes.load(Ordering::Relaxed), proxy.connections_accepted(), proxy.replies_dropped()),
        (bytes.len(), 1, 0)
    );

    let mut stream = connect_to(&proxy).await;
    send_and_read(&mut stream, b"open").await.expect("reply arrives");
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
            to.write_all(&[byte]).await.expect("send a byte");
            tokio::task::yield_now().await;
        }
    };
    let mut reply = [0; 50];
    let (_, read) = tokio::join!(send, timeout(REPLY_TIMEOUT, from.read_exact(&mut reply)));
    read.expect("arrives in time").expect("receive all bytes");
    assert_eq!(reply.to_vec(), (0..50).collect::<Vec<u8>>());
    let took = start.elapsed();
    assert!((Duration::from_millis(80)..Duration::from_secs(2)).contains(&took), "{took:?}");

    proxy.set_faults(FaultConfig { delay: Duration::from_secs(3600), ..FaultConfig::none() });
    stream.write_all(b"x").await.expect("send a byte");
    assert!(timeout(QUIET_PERIOD, stream.read_u8()).await.is_err(), "a byte arrived an hour early");
    proxy.clear_faults();
    assert_eq!(timeout(REPLY_TIMEOUT, stream.read_u8()).await.expect("arrives in time").expect("byte arrives"), b'x');
}

#[tokio::test]
async fn cut_proxy_closes_open_and_new_connections_until_cleared() {
    let (proxy, _) = start_fault_proxy().await;
    let mut stream = connect_to(&proxy).await;
    send_and_read(&mut stream, b"before").await.expect("reply arrives");
    proxy.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    read_end(&mut stream).await;
    read_end(&mut connect_to(&proxy).await).await;
    proxy.clear_faults();
    assert_eq!(send_and_read(&mut connect_to(&proxy).await, b"after").await.expect("reply arrives"), b"after");
    assert_eq!(proxy.connections_accepted(), 3);
}

#[tokio::test]
async fn half_open_proxy_swallows_bytes_then_resets_lossy_streams() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    let (mut lossy, mut idle) = (connect_to(&proxy).await, connect_to(&proxy).await);
    send_and_read(&mut lossy, b"1234").await.expect("reply arrives");
    send_and_read(&mut idle, b"1234").await.expect("reply arrives");
    proxy.set_faults(FaultConfig { half_open: true, ..FaultConfig::none() });
    let mut late = connect_to(&proxy).await;
    for stream in [&mut lossy, &mut late] {
        stream.write_all(b"lost").await.expect("bytes are accepted");
        assert!(timeout(QUIET_PERIOD, stream.read_u8()).await.is_err(), "a half-open link sent a byte or ended");
    }
    assert_eq!(received_bytes.load(Ordering::Relaxed), 8);
    proxy.clear_faults();
    for stream in [&mut lossy, &mut late] {
        assert_eq!(read_end(stream).await, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(send_and_read(&mut idle, b"whole").await.expect("reply arrives"), b"whole");
}

#[tokio::test]
async fn dropped_reply_reached_the_server_and_resets_the_client() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    proxy.set_faults(FaultConfig { reply_drop_rate: 1.0, ..FaultConfig::none() });
    let mut stream = connect_to(&proxy).await;
    assert_eq!(
        send_and_read(&mut stream, b"request").await.expect_err("reply is dropped").kind(),
        ErrorKind::ConnectionReset
    );
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
    assert!((20..=60).contains(&lost), "{lost} of 200 replies lost at a rate of 0.2");
    assert_eq!(proxy.replies_dropped(), 1 + lost);
}

#[tokio::test]
async fn proxy_reset_affects_only_open_connections() {
    let (proxy, _) = start_fault_proxy().await;
    let mut streams = [connect_to(&proxy).await, connect_to(&proxy).await];
    for stream in &mut streams {
        send_and_read(stream, b"open").await.expect("reply arrives");
    }
    proxy.reset_connections();
    for stream in &mut streams {
        assert_eq!(read_end(stream).await, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(send_and_read(&mut connect_to(&proxy).await, b"next").await.expect("reply arrives"), b"next");
}

#[tokio::test]
async fn throttled_proxy_respects_its_byte_rate() {
    let (proxy, _) = start_fault_proxy().await;
    proxy.set_faults(FaultConfig { bytes_per_second: NonZeroU32::new(10_000), ..FaultConfig::none() });
    let start = Instant::now();
    let bytes = vec![1; 4_000];
    assert_eq!(send_and_read(&mut connect_to(&proxy).await, &bytes).await.expect("reply arrives"), bytes);
    let took = start.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(4)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn unreachable_upstream_resets_and_dropped_proxy_closes() {
    // A socket that is bound but does not listen keeps the port from other processes.
    let unreachable = TcpSocket::new_v4().expect("open a socket");
    unreachable.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("bind the socket");
    let proxy = FaultProxy::open(unreachable.local_addr().expect("socket has an address")).expect("proxy starts");
    // The proxy's thread can reset the connection before connect() has returned.
    let end = match TcpStream::connect(proxy.address()).await {
        Ok(mut stream) => read_end(&mut stream).await,
        Err(error) => Some(error.kind()),
    };
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let address = proxy.address();
    drop(proxy);
    eventually("a dropped proxy is gone", REPLY_TIMEOUT, async || {
        TcpSocket::new_v4().expect("open a socket").bind(address).is_ok()
    })
    .await
    .expect("proxy is gone");
}

#[tokio::test]
async fn held_requests_are_delivered_later_and_new_connections_pass() {
    let (proxy, received_bytes) = start_fault_proxy().await;
    let mut old = connect_to(&proxy).await;
    send_and_read(&mut old, b"before").await.expect("reply arrives");
    proxy.set_faults(FaultConfig { hold_requests_before: Some(Instant::now()), ..FaultConfig::none() });
    old.write_all(b"held").await.expect("the proxy accepts the request");
    let mut new = connect_to(&proxy).await;
    assert_eq!(send_and_read(&mut new, b"new").await.expect("reply arrives"), b"new");
    assert!(timeout(QUIET_PERIOD, old.read(&mut [0])).await.is_err(), "a held request got a reply");
    // The request is delivered even if its sender has given up.
    drop(old);
    proxy.clear_faults();
    let all = b"before".len() + b"new".len() + b"held".len();
    eventually("the held request arrives", REPLY_TIMEOUT, async || received_bytes.load(Ordering::Relaxed) == all)
        .await
        .expect("the held request arrives");
}

#[tokio::test]
async fn switched_proxy_resets_connections_and_uses_the_other_server() {
    let (proxy, first) = start_fault_proxy().await;
    let mut stream = connect_to(&proxy).await;
    send_and_read(&mut stream, b"first").await.expect("reply arrives");
    let (address, second) = start_echo_server().await;
    proxy.set_upstream(address);
    assert_eq!(read_end(&mut stream).await, Some(ErrorKind::ConnectionReset));
    send_and_read(&mut connect_to(&proxy).await, b"other").await.expect("reply arrives");
    assert_eq!((first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)), (5, 5));
}
