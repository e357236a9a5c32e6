//! Leaks on purpose, one in every sink and in every guise: a search that misses one proves nothing.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::{ClearKey, Place};
use testkit::{Needle, atlas, base64};

use super::canaries::{v4, v6};
use super::stage::{Stage, another};

/// What a leak's IPv4 address begins with, and no canary's does: of neighbours only the last digit differs, and encoded less than that.
const FIRST: RangeInclusive<u8> = 101..=126;

/// A key and two addresses that no request ever held.
pub(crate) struct Leak {
    key: String,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Leak {
    pub(crate) fn new() -> Self {
        Self { key: ClearKey::mint(|| fastrand::u8(..)).expose().to_owned(), v4: v4(FIRST), v6: v6() }
    }

    pub(crate) fn needles(&self) -> [Needle; 3] {
        [Needle::Text(self.key.clone()), Needle::Address(self.v4.into()), Needle::Address(self.v6.into())]
    }

    /// Every guise that is text, none longer than Redis's slow log shows.
    fn texts(&self) -> Vec<String> {
        let Self { key, v4, v6 } = self;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut texts = vec![
            key.clone(),
            v4.to_string(),
            v6.to_string().to_uppercase(),
            hex(key.as_bytes()),
            format!("{:#X}", v4.to_bits()),
            hex(&v6.octets()),
            v4.to_bits().to_string(),
            v6.to_bits().to_string(),
        ];
        // At each of the three places where a text can begin within an encoded one.
        for before in ["", "a", "ab"] {
            let encoded = [format!("{before}{key}"), format!("{before}{v4}"), format!("{before}{v6}")];
            texts.extend(encoded.map(|text| String::from_utf8(base64(text.as_bytes())).expect("text")));
        }
        texts
    }

    pub(crate) fn text(&self) -> String {
        self.texts().join(" ")
    }

    fn bytes(&self) -> Vec<u8> {
        [b"<", &self.v4.octets()[..], b"><", &self.v6.octets(), b">"].concat()
    }

    /// Plants it everywhere.
    pub(crate) async fn plant(&self, stage: &Stage) {
        self.in_redis(stage).await;
        self.in_postgres(stage).await;
        self.in_metrics(stage).await;
        self.in_mails(stage);
        let node = &stage.house().nodes[0];
        // Where the process itself writes its log to.
        let mut log = File::options().append(true).open(format!("/proc/{}/fd/2", node.pid())).expect("its log");
        log.write_all(&[self.text().as_bytes(), b"\n", &self.bytes(), b"\n"].concat()).expect("a leak");
        fs::write(node.folder().join("left-behind"), [self.text().as_bytes(), &self.bytes()].concat()).expect("a leak");
    }

    async fn in_redis(&self, stage: &Stage) {
        let redis = &stage.house().redis;
        for (at, piece) in self.texts().iter().map(String::as_bytes).chain([&*self.bytes()]).enumerate() {
            redis.call(&[b"SET", format!("leak-{at}").as_bytes(), piece]).await.expect("a leak");
        }
        redis.call(&["EVAL", "redis.log(redis.LOG_WARNING, ARGV[1])", "0", &self.text()]).await.expect("a leak");
    }

    async fn in_postgres(&self, stage: &Stage) {
        let bytes: String = self.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let leak = format!("create table leak as select '{}' as text, '\\x{bytes}'::bytea as bytes", self.text());
        stage.house().postgres.psql("ipseity", &leak).await.expect("a leak");
    }

    /// The name of a geo database is a label.
    async fn in_metrics(&self, stage: &Stage) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let place = Place { country: Some("FR"), ..Place::default() };
        let name = format!("GeoLite2-City {}", self.text());
        let database = atlas::city_called(&name, now_s, &[("203.0.113.0/24", place)]).expect("a database");
        let file = stage.house().nodes[0].folder().join("leak.mmdb");
        fs::write(&file, database).expect("a file");
        let settings = another(&[("IPSEITY__GEO__FILES", &file.display().to_string())]);
        let node = stage.house().start_node(&settings).await.expect("a node");
        stage.keep_node(node);
    }

    fn in_mails(&self, stage: &Stage) {
        let server = stage.portal.mailbox.url().replace("smtp://", "");
        let mut stream = TcpStream::connect(server).expect("a connection");
        let lines = self.texts().join("\r\n");
        let mail =
            format!("HELO x\r\nRCPT TO:<x@example.com>\r\nDATA\r\nSubject: leak\r\n\r\n{lines}\r\n.\r\nQUIT\r\n");
        stream.write_all(mail.as_bytes()).expect("a leak");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("a server that says good-bye");
    }
}
