//! Plants a leak in every sink and every encoding, to show that the search finds each.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_domain::{Location, PlaintextKey};
use ipseity_testkit::fixtures::geo_database;
use ipseity_testkit::{Needle, base64};

use super::canaries::{random_v4, random_v6};
use super::fixture::{PrivacyFixture, extra_node_env};

/// First octets of a leak's IPv4 address, which no canary has. Neighboring addresses differ only in the last digit, and
/// even less when encoded.
const FIRST_OCTETS: RangeInclusive<u8> = 101..=126;

/// A key and two addresses that no request contained.
pub(crate) struct PlantedLeak {
    key: String,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl PlantedLeak {
    pub(crate) fn new() -> Self {
        Self {
            key: PlaintextKey::generate(|| fastrand::u8(..)).expose().to_owned(),
            v4: random_v4(FIRST_OCTETS),
            v6: random_v6(),
        }
    }

    pub(crate) fn needles(&self) -> [Needle; 3] {
        [Needle::Text(self.key.clone()), Needle::Address(self.v4.into()), Needle::Address(self.v6.into())]
    }

    /// Every text encoding, none longer than the slow log of Redis shows.
    fn text_encodings(&self) -> Vec<String> {
        let Self { key, v4, v6 } = self;
        let mut texts = vec![
            key.clone(),
            v4.to_string(),
            v6.to_string().to_uppercase(),
            hex::encode(key),
            format!("{:#X}", v4.to_bits()),
            hex::encode(v6.octets()),
            v4.to_bits().to_string(),
            v6.to_bits().to_string(),
        ];
        // At each of the three offsets within an encoded text.
        for before in ["", "a", "ab"] {
            let encoded = [format!("{before}{key}"), format!("{before}{v4}"), format!("{before}{v6}")];
            texts.extend(encoded.map(|text| String::from_utf8(base64(text.as_bytes())).expect("valid text")));
        }
        texts
    }

    pub(crate) fn joined_text(&self) -> String {
        self.text_encodings().join(" ")
    }

    fn raw_bytes(&self) -> Vec<u8> {
        [b"<", &self.v4.octets()[..], b"><", &self.v6.octets(), b">"].concat()
    }

    /// Plants the leak in every sink.
    pub(crate) async fn plant_everywhere(&self, fixture: &PrivacyFixture) {
        self.plant_in_redis(fixture).await;
        self.plant_in_postgres(fixture).await;
        self.plant_in_metrics(fixture).await;
        self.plant_in_emails(fixture);
        let node = &fixture.deployment().nodes[0];
        // The file to which the process writes its log.
        let mut log = File::options().append(true).open(format!("/proc/{}/fd/2", node.pid())).expect("read the log");
        log.write_all(&[self.joined_text().as_bytes(), b"\n", &self.raw_bytes(), b"\n"].concat())
            .expect("leak is planted");
        fs::write(node.dir().join("left-behind"), [self.joined_text().as_bytes(), &self.raw_bytes()].concat())
            .expect("leak is planted");
    }

    async fn plant_in_redis(&self, fixture: &PrivacyFixture) {
        let redis = &fixture.deployment().redis;
        for (index, value) in self.text_encodings().iter().map(String::as_bytes).chain([&*self.raw_bytes()]).enumerate()
        {
            redis.run_command(&[b"SET", format!("leak-{index}").as_bytes(), value]).await.expect("leak is planted");
        }
        redis
            .run_command(&["EVAL", "redis.log(redis.LOG_WARNING, ARGV[1])", "0", &self.joined_text()])
            .await
            .expect("leak is planted");
    }

    async fn plant_in_postgres(&self, fixture: &PrivacyFixture) {
        let bytes = hex::encode(self.raw_bytes());
        let leak =
            format!("create table leak as select '{}' as text, '\\x{bytes}'::bytea as bytes", self.joined_text());
        fixture.deployment().postgres.psql("ipseity", &leak).await.expect("leak is planted");
    }

    /// The name of a geo database is a metric label.
    async fn plant_in_metrics(&self, fixture: &PrivacyFixture) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("time is after 1970").as_secs();
        let location = Location { country: Some("FR"), ..Location::default() };
        let name = format!("GeoLite2-City {}", self.joined_text());
        let database = geo_database::named_city_database(&name, now_s, &[("203.0.113.0/24", location)])
            .expect("create a database");
        let file = fixture.deployment().nodes[0].dir().join("leak.mmdb");
        fs::write(&file, database).expect("write the file");
        let settings = extra_node_env(&[("IPSEITY__GEO__FILES", &file.display().to_string())]);
        let node = fixture.deployment().start_node(&settings).await.expect("node starts");
        fixture.retain_node(node);
    }

    fn plant_in_emails(&self, fixture: &PrivacyFixture) {
        let server = fixture.portal.smtp.url().replace("smtp://", "");
        let mut stream = TcpStream::connect(server).expect("connection opens");
        let lines = self.text_encodings().join("\r\n");
        let message =
            format!("HELO x\r\nRCPT TO:<x@example.com>\r\nDATA\r\nSubject: leak\r\n\r\n{lines}\r\n.\r\nQUIT\r\n");
        stream.write_all(message.as_bytes()).expect("leak is planted");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("session ends");
    }
}
