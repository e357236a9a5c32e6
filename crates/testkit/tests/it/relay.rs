use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{Faults, Relay, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);
const WHILE: Duration = Duration::from_millis(150);

/// A server that says everything back, and how many bytes it has heard.
async fn echo() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let (address, heard) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    counted.fetch_add(length, Ordering::Relaxed);
                    let _ = stream.write_all(&buffer[..length]).await;
                }
            });
        }
    });
    (address, heard)
}

async fn relay() -> (Relay, Arc<AtomicUsize>) {
    let (address, heard) = echo().await;
    (Relay::open(address).expect("a relay"), heard)
}

async fn connect(relay: &Relay) -> TcpStream {
    TcpStream::connect(relay.address()).await.expect("a connection")
}

/// What comes back for these bytes, or how the connection ended.
async fn say(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes).await?;
    let mut answer = vec![0; bytes.len()];
    timeout(SOON, stream.read_exact(&mut answer)).await.expect("an answer or an end")?;
    Ok(answer)
}

async fn ends_with(stream: &mut TcpStream) -> Option<ErrorKind> {
    let read = timeout(SOON, stream.read(&mut [0])).await.expect("an end");
    read.map(|length| assert_eq!(length, 0, "bytes where an end was due")).err().map(|error| error.kind())
}

#[tokio::test]
async fn a_line_without_faults_passes_everything_on_and_ends_with_its_ends() {
    let (relay, heard) = relay().await;
    let mut stream = connect(&relay).await;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut from, mut to) = stream.split();
    let send = async {
        to.write_all(&bytes).await.expect("all sent");
        to.shutdown().await.expect("an end");
    };
    let mut answer = Vec::new();
    let (_, read) = tokio::join!(send, from.read_to_end(&mut answer));
    read.expect("all received, and then an end");
    assert!(answer == bytes, "not what was sent");
    assert_eq!((heard.load(Ordering::Relaxed), relay.connections(), relay.replies_dropped()), (bytes.len(), 1, 0));

    let mut stream = connect(&relay).await;
    say(&mut stream, b"open").await.expect("an answer");
    drop(relay);
    ends_with(&mut stream).await;
}

#[tokio::test]
async fn a_delay_is_each_chunks_own_and_jitter_keeps_their_order() {
    let (relay, _) = relay().await;
    let mut stream = connect(&relay).await;
    relay.set(Faults {
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(20),
        seed: 7,
        ..Faults::none()
    });
    let start = Instant::now();
    let (mut from, mut to) = stream.split();
    let send = async {
        for byte in 0..50_u8 {
            to.write_all(&[byte]).await.expect("a byte sent");
            tokio::task::yield_now().await;
        }
    };
    let mut answer = [0; 50];
    let (_, read) = tokio::join!(send, timeout(SOON, from.read_exact(&mut answer)));
    read.expect("in time").expect("all received");
    assert_eq!(answer.to_vec(), (0..50).collect::<Vec<u8>>());
    let took = start.elapsed();
    assert!((Duration::from_millis(80)..Duration::from_secs(2)).contains(&took), "{took:?}");

    relay.set(Faults { delay: Duration::from_secs(3600), ..Faults::none() });
    stream.write_all(b"x").await.expect("a byte sent");
    assert!(timeout(WHILE, stream.read_u8()).await.is_err(), "a byte came an hour too early");
    relay.heal();
    assert_eq!(timeout(SOON, stream.read_u8()).await.expect("in time").expect("what was on its way"), b'x');
}

#[tokio::test]
async fn a_cut_line_closes_what_is_open_and_what_is_opened_and_heals() {
    let (relay, _) = relay().await;
    let mut stream = connect(&relay).await;
    say(&mut stream, b"before").await.expect("an answer");
    relay.set(Faults { cut: true, ..Faults::none() });
    ends_with(&mut stream).await;
    ends_with(&mut connect(&relay).await).await;
    relay.heal();
    assert_eq!(say(&mut connect(&relay).await, b"after").await.expect("an answer"), b"after");
    assert_eq!(relay.connections(), 3);
}

#[tokio::test]
async fn a_half_open_line_is_silent_and_what_lost_bytes_is_reset_when_it_speaks_again() {
    let (relay, heard) = relay().await;
    let (mut loser, mut idle) = (connect(&relay).await, connect(&relay).await);
    say(&mut loser, b"1234").await.expect("an answer");
    say(&mut idle, b"1234").await.expect("an answer");
    relay.set(Faults { half_open: true, ..Faults::none() });
    let mut late = connect(&relay).await;
    for stream in [&mut loser, &mut late] {
        stream.write_all(b"lost").await.expect("taken as if nothing were wrong");
        assert!(timeout(WHILE, stream.read_u8()).await.is_err(), "a half-open line spoke, or ended");
    }
    assert_eq!(heard.load(Ordering::Relaxed), 8);
    relay.heal();
    for stream in [&mut loser, &mut late] {
        assert_eq!(ends_with(stream).await, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(say(&mut idle, b"whole").await.expect("an answer"), b"whole");
}

#[tokio::test]
async fn a_dropped_reply_was_asked_for_and_ends_its_connection() {
    let (relay, heard) = relay().await;
    relay.set(Faults { dropped_replies: 1.0, ..Faults::none() });
    let mut stream = connect(&relay).await;
    assert_eq!(say(&mut stream, b"request").await.expect_err("no reply").kind(), ErrorKind::ConnectionReset);
    assert_eq!((heard.load(Ordering::Relaxed), relay.replies_dropped()), (7, 1));

    relay.set(Faults { dropped_replies: 0.2, seed: 3, ..Faults::none() });
    let (mut stream, mut lost) = (connect(&relay).await, 0);
    for number in 0..200_u32 {
        match say(&mut stream, &number.to_be_bytes()).await {
            Ok(answer) => assert_eq!(answer, number.to_be_bytes()),
            Err(_) => {
                lost += 1;
                stream = connect(&relay).await;
            }
        }
    }
    assert!((20..=60).contains(&lost), "{lost} of 200 replies lost at one in five");
    assert_eq!(relay.replies_dropped(), 1 + lost);
}

#[tokio::test]
async fn a_reset_is_one_and_hits_only_what_is_open() {
    let (relay, _) = relay().await;
    let mut streams = [connect(&relay).await, connect(&relay).await];
    for stream in &mut streams {
        say(stream, b"open").await.expect("an answer");
    }
    relay.reset();
    for stream in &mut streams {
        assert_eq!(ends_with(stream).await, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(say(&mut connect(&relay).await, b"next").await.expect("an answer"), b"next");
}

#[tokio::test]
async fn a_throttled_line_passes_no_more_than_it_may() {
    let (relay, _) = relay().await;
    relay.set(Faults { bytes_per_second: NonZeroU32::new(10_000), ..Faults::none() });
    let start = Instant::now();
    let bytes = vec![1; 4_000];
    assert_eq!(say(&mut connect(&relay).await, &bytes).await.expect("an answer"), bytes);
    let took = start.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(4)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_server_that_is_away_is_a_reset_and_a_relay_that_nobody_holds_is_gone() {
    let (address, _) = echo().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a listener").local_addr().expect("an address");
    let relay = Relay::open(gone).expect("a relay");
    assert_eq!(ends_with(&mut connect(&relay).await).await, Some(ErrorKind::ConnectionReset));
    let chain = Relay::open(Relay::open(address).expect("a relay").address()).expect("a relay of one that is dropped");
    eventually("a relay that nobody holds is gone", SOON, async || {
        ends_with(&mut connect(&chain).await).await == Some(ErrorKind::ConnectionReset)
    })
    .await
    .expect("an end");
}
