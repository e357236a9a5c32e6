//! `ipseity doctor` on set-ups that are broken in one way each: it names that way, the cure, and nothing else.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;
use testkit::certificate::{Authority, Validity};
use testkit::node::Env;
use testkit::{
    CliOutput, Clock, Folder, House, HouseOptions, Port, Postgres, PostgresOptions, Redis, RedisOptions, node,
};

use crate::shared::city;

/// Settings over those of the reference, by their names without `IPSEITY__`.
type Change = Vec<(&'static str, String)>;

/// A set-up as it should be, with a node in it.
struct Reference {
    house: House,
    folder: Folder,
}

impl Reference {
    async fn open() -> Self {
        let folder = Folder::open().expect("a folder");
        let geo_files = vec![folder.path().join("city.mmdb")];
        fs::write(&geo_files[0], city(0)).expect("a geo file");
        let house = House::start(HouseOptions {
            postgres: PostgresOptions { fsync: true, ..PostgresOptions::default() },
            redis: RedisOptions { appendonly: true, ..RedisOptions::default() },
            geo_files,
            ..HouseOptions::default()
        });
        Self { house: house.await.expect("a house"), folder }
    }

    /// The node's own settings: its ports are taken, by itself.
    fn env(&self) -> Env {
        self.house.nodes[0].env().clone()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    }

    /// Looks at the reference with this change, and asserts that it is found and nothing else is.
    fn is_found(&self, what: &str, change: Change, words: &[&str]) {
        let found = wrong(&doctor(&changed(self.env(), change), None));
        assert_named(what, &found, words);
    }
}

fn changed(mut env: Env, change: Change) -> Env {
    env.extend(change.into_iter().map(|(name, value)| (format!("IPSEITY__{name}"), value)));
    env
}

/// Runs the doctor with these settings, under this limit of open files.
fn doctor(env: &Env, files_max: Option<u32>) -> CliOutput {
    let program = node::find_program().expect("the program");
    let mut command = Command::new("prlimit");
    command.args(files_max.map(|most| format!("--nofile={most}:{most}"))).arg("--").arg(program);
    let output = command.args(["doctor", "--json"]).envs(env).output().expect("a command");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CliOutput { code: output.status.code(), stdout: output.stdout, stderr }
}

/// The sentences about what is wrong; the exit code must fit them.
fn wrong(output: &CliOutput) -> Vec<String> {
    let findings = output.text();
    let findings = findings.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let wrong: Vec<_> = findings
        .filter(|finding| finding["weight"] == "wrong")
        .map(|finding| finding["says"].as_str().expect("a sentence").to_owned())
        .collect();
    let all = output.text();
    assert_eq!(output.code, Some(i32::from(!wrong.is_empty())), "{all}{}", output.stderr);
    assert!(!all.contains("s3cr3t") && !output.stderr.contains("s3cr3t"), "{all}{}", output.stderr);
    wrong
}

#[expect(clippy::print_stdout, reason = "the sentences are the point")]
fn assert_named(what: &str, found: &[String], words: &[&str]) {
    println!("{what}: {}", found.join(" "));
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    let says = &found[0];
    assert!(says.ends_with('.') && !says.contains(". ") && !says.contains('\n'), "{what}: one sentence: {says}");
    for word in words {
        assert!(says.contains(word), "{what}: {word:?} is missing: {says}");
    }
}

async fn redis(options: RedisOptions, calls: &[&[&str]]) -> Redis {
    let redis = Redis::start(options).await.expect("a Redis");
    for call in calls {
        redis.call(call).await.expect("a call");
    }
    redis
}

fn kept() -> RedisOptions {
    RedisOptions { appendonly: true, ..RedisOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_set_up_raises_no_alarm() {
    let reference = Reference::open().await;
    let beside = doctor(&reference.env(), None);
    assert_eq!((wrong(&beside), beside.stderr.as_str()), (Vec::new(), ""));
    assert!(!beside.text().contains("\"note\""), "{}", beside.text());
    assert!(beside.text().contains("A node runs"), "{}", beside.text());
    let ports: Vec<_> = (0..3).map(|_| Port::open().expect("a port")).collect();
    let [http, https, ops] = [0, 1, 2].map(|place: usize| ports[place].address().to_string());
    let own = vec![("EDGE__HTTP", http), ("EDGE__HTTPS", https), ("OPS__LISTEN", ops)];
    let alone = doctor(&changed(reference.env(), own), None);
    assert_eq!(wrong(&alone), Vec::<String>::new(), "{}", alone.text());
    let human = reference.house.cli(&["doctor"]).await.expect("a command");
    let shown = human.text();
    assert!(human.is_success() && shown.lines().all(|line| line.starts_with("ok ")), "{shown}{}", human.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_break_the_counter_store_is_named_with_its_cure() {
    let reference = Reference::open().await;
    let is_found = |what: &str, url: String, words: &[&str]| {
        reference.is_found(what, vec![("LEDGER__URL", url)], words);
    };
    let evicts =
        redis(kept(), &[&["CONFIG", "SET", "maxmemory", "1gb"], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]]);
    is_found("evicts", evicts.await.url(), &["allkeys-lru", "`maxmemory-policy noeviction`"]);
    let full = redis(kept(), &[&["CONFIG", "SET", "maxmemory", "1mb"]]).await;
    is_found("full", full.url(), &["% of its memory", "raise `maxmemory`"]);
    let forgetful = redis(RedisOptions::default(), &[]).await;
    is_found("keeps nothing", forgetful.url(), &["keeps nothing on disk", "`appendonly yes`"]);
    let replica = redis(kept(), &[]).await;
    replica.follow(&reference.house.redis).await.expect("a replica");
    is_found("a replica", replica.url(), &["is a replica", "name its primary"]);

    let guarded = redis(kept(), &[&["CONFIG", "SET", "requirepass", "open"]]).await;
    let by = |credentials: &str| guarded.url().replace("//", &format!("//{credentials}"));
    is_found("a wrong password", by(":s3cr3t@"), &["refuses the name or the password", "[ledger] url"]);
    is_found("no password", guarded.url(), &["refuses the name or the password", "[ledger] url"]);
    is_found("an unknown user", by("nobody:s3cr3t@"), &["refuses the name or the password", "[ledger] url"]);
    assert_eq!(
        wrong(&doctor(&changed(reference.env(), vec![("LEDGER__URL", by(":open@"))]), None)),
        Vec::<String>::new()
    );

    let nobody = Port::open().expect("a port");
    is_found("unreachable", format!("redis://{}", nobody.address()), &["does not answer", "start it"]);
    let mut frozen = redis(kept(), &[]).await;
    frozen.freeze();
    is_found("frozen", frozen.url(), &["does not answer", "start it"]);

    for (ahead_ms, side) in [(90_000, "ahead of the others"), (-90_000, "behind the others")] {
        let clock = Clock::open().expect("a clock");
        let early = redis(RedisOptions { clock: Some(clock.clone()), ..kept() }, &[]).await;
        clock.shift_ms(ahead_ms);
        is_found("its clock is off", early.url(), &["clock of Redis", side, "NTP"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_break_the_durable_store_is_named_with_its_cure() {
    let reference = Reference::open().await;
    let postgres = &reference.house.postgres;
    let sql = async |database: &str, sql: &str| postgres.psql(database, sql).await.expect("a statement");
    let is_found = |what: &str, url: String, words: &[&str]| {
        reference.is_found(what, vec![("STORE__URL", url)], words);
    };
    let bare = postgres.create_database("bare").await.expect("a database");
    is_found("no schema", bare, &["has no schema", "`ipseity migrate`"]);
    for name in ["behind", "altered", "newer", "latin", "still", "guarded"] {
        let template = if name == "latin" { "template0 encoding 'LATIN1'" } else { "bare" };
        sql("postgres", &format!("create database {name} template {template}")).await;
        let migrated = reference.house.cli_with(&[("IPSEITY__STORE__URL", &postgres.url(name))], &["migrate"]).await;
        migrated.expect("a command").success().expect("a schema");
    }
    sql("behind", "delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations)").await;
    is_found("behind", postgres.url("behind"), &["lacks 1 of", "`ipseity migrate`"]);
    sql("altered", "update _sqlx_migrations set checksum = 'x' where version = 2").await;
    is_found("altered", postgres.url("altered"), &["are not this program's", "restore the database"]);
    is_found("another encoding", postgres.url("latin"), &["LATIN1", "--encoding=UTF8"]);
    sql("postgres", "alter database still set default_transaction_read_only = on").await;
    is_found("read-only", postgres.url("still"), &["takes no writes", "name the primary"]);
    let grants = "create role reader login; grant select on all tables in schema public to reader";
    sql("guarded", grants).await;
    let as_role = |role: &str| postgres.url("guarded").replace("postgres@", &format!("{role}@"));
    is_found("may only read", as_role("reader"), &["may not write every table", "`grant select, insert"]);
    is_found("an unknown role", as_role("nobody:s3cr3t"), &["refuses the role", "[store] url"]);
    is_found("no database", postgres.url("none"), &["no such database", "`createdb`"]);
    let nobody = Port::open().expect("a port");
    let nowhere = format!("postgres://me:s3cr3t@{}/ipseity", nobody.address());
    is_found("unreachable", nowhere, &["does not answer", "start it"]);

    sql(
        "newer",
        "insert into _sqlx_migrations select 9999, 'x', now(), true, checksum, 1 from _sqlx_migrations limit 1",
    )
    .await;
    let newer = doctor(&changed(reference.env(), vec![("STORE__URL", postgres.url("newer"))]), None);
    assert_eq!(wrong(&newer), Vec::<String>::new(), "an older node lives with a newer schema");
    assert!(newer.text().contains("changed by a newer version"), "{}", newer.text());

    reference.is_found(
        "too few connections",
        vec![("STORE__CONNECTIONS_MAX", "500".to_owned())],
        &["takes 200 connections", "`max_connections`"],
    );
    let careless = Postgres::start(PostgresOptions::default()).await.expect("a cluster");
    let url = careless.create_database("ipseity").await.expect("a database");
    let migrated = reference.house.cli_with(&[("IPSEITY__STORE__URL", &url)], &["migrate"]).await;
    migrated.expect("a command").success().expect("a schema");
    is_found("does not wait for its disk", url, &["does not wait for its disk", "`fsync = on`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_break_a_machine_or_its_files_is_named_with_its_cure() {
    let reference = Reference::open().await;
    let authority = Authority::write(&reference.folder.path().join("authority.pem")).expect("an authority");
    let [good, other, past] = [Validity::Now, Validity::Now, Validity::Past]
        .map(|validity| authority.issue(&["localhost"], validity).expect("a certificate"));
    let pair = |name: &str, chain: &str, key: &str| {
        vec![
            ("EDGE__CERTIFICATE_FILE", reference.write(&format!("{name}.pem"), chain)),
            ("EDGE__PRIVATE_KEY_FILE", reference.write(&format!("{name}.key"), key)),
        ]
    };
    reference.is_found("expired", pair("past", &past.chain, &past.private_key), &["past.pem has expired", "renew it"]);
    let mixed = pair("mixed", &good.chain, &other.private_key);
    reference.is_found("not its key", mixed, &["does not belong", "issued together"]);
    let torn = pair("torn", &good.chain[..60], &good.private_key);
    reference.is_found("a torn certificate", torn, &["holds no PEM certificate"]);
    let missing = vec![("EDGE__CERTIFICATE_FILE", "/nowhere.pem".to_owned())];
    reference.is_found("no certificate", missing, &["/nowhere.pem could not be read", "check that it exists"]);

    let geo = |file: String| vec![("GEO__FILES", file)];
    let update = "`ipseity geo update`";
    reference.is_found("old geo data", geo(reference.write("old.mmdb", city(60))), &["is 60 days old", update]);
    reference.is_found("no geo file", geo("/nowhere.mmdb".to_owned()), &["/nowhere.mmdb cannot be read", update]);
    let half = city(0);
    let torn = reference.write("torn.mmdb", &half[..half.len() / 2]);
    reference.is_found("torn geo data", geo(torn), &["not a sound MMDB file", update]);

    let stranger = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let taken = stranger.local_addr().expect("an address").to_string();
    let unheld = |http: &str| {
        let ops = Port::open().expect("a port").address().to_string();
        vec![("EDGE__HTTP", http.to_owned()), ("EDGE__HTTPS", String::new()), ("OPS__LISTEN", ops)]
    };
    let without_tls = changed(Env::new(), unheld(&taken));
    let mut env = reference.env();
    env.remove("IPSEITY__EDGE__HTTPS");
    env.extend(without_tls);
    assert_named("a taken port", &wrong(&doctor(&env, None)), &[&taken, "Another program", "`ss -lnp"]);
    env.extend(changed(Env::new(), unheld("203.0.113.9:8080")));
    assert_named("another's address", &wrong(&doctor(&env, None)), &["no address of this machine", "`ip address`"]);

    let trust = |networks: &str| vec![("EDGE__TRUSTED_PROXIES", networks.to_owned())];
    let own = "name only the networks of your own proxies";
    reference.is_found("trusts everyone", trust("0.0.0.0/0"), &["any caller could claim to be anyone", own]);
    reference.is_found("trusts half of all", trust("0.0.0.0/1,10.0.0.0/8"), &["strangers among them", own]);
    env = reference.env();
    env.remove("IPSEITY__EDGE__TRUSTED_PROXIES");
    env.insert("IPSEITY__EDGE__PRESET".to_owned(), "nginx".to_owned());
    assert_named("a proxy that nobody named", &wrong(&doctor(&env, None)), &["name the networks of the proxy"]);
    let clear = vec![("PUBLIC__BASE_URL", "http://ip.example.com".to_owned())];
    reference.is_found("pages in clear", clear, &["only over TLS", "https://"]);
    let few = wrong(&doctor(&reference.env(), Some(256)));
    assert_named("few open files", &few, &["may hold 256 open files", "`LimitNOFILE=`"]);
    let level = vec![("LOG__LEVEL", "loud".to_owned())];
    reference.is_found("a level that is none", level, &["[log] level", "use error, warn, info, debug or trace"]);
}
