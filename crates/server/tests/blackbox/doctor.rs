//! `ipseity doctor` on setups with one problem each: it reports that problem, a fix, and nothing else.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use ipseity_testkit::certificate::{TestCa, Validity};
use ipseity_testkit::deployment::node;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, Postgres, PostgresOptions, Redis, RedisOptions, ReservedPort,
    TestClock, TestDir,
};
use serde_json::Value;

use crate::fixture::city_database_aged;

/// Settings that override those of the reference, without the prefix `IPSEITY__`.
type DoctorOverrides = Vec<(&'static str, String)>;

/// A valid setup with a running node.
struct ReferenceSetup {
    deployment: Deployment,
    dir: TestDir,
}

impl ReferenceSetup {
    async fn open() -> Self {
        let folder = TestDir::create().expect("create directory");
        let geo_files = vec![folder.path().join("city.mmdb")];
        fs::write(&geo_files[0], city_database_aged(0)).expect("write file");
        let deployment = Deployment::start(DeploymentOptions {
            postgres: PostgresOptions { fsync: true, ..PostgresOptions::default() },
            redis: RedisOptions { appendonly: true, ..RedisOptions::default() },
            geo_files,
            ..DeploymentOptions::default()
        });
        Self { deployment: deployment.await.expect("start deployment"), dir: folder }
    }

    /// Settings of the running node, which uses its ports.
    fn env(&self) -> Env {
        self.deployment.nodes[0].env().clone()
    }

    fn write_file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).expect("write file");
        path.display().to_string()
    }

    /// Checks the reference with these overrides and asserts that the doctor reports exactly one error.
    fn assert_finding(&self, what: &str, overrides: DoctorOverrides, words: &[&str]) {
        let found = errors_found(&run_doctor(&with_overrides(self.env(), overrides), None));
        assert_single_error(what, &found, words);
    }

    /// Asserts that a check finds one warning and no error.
    fn assert_warning(&self, check: &str, overrides: DoctorOverrides, words: &[&str]) {
        let output = run_doctor(&with_overrides(self.env(), overrides), None);
        assert_eq!(errors_found(&output), Vec::<String>::new());
        let findings = output.text();
        let is_warning = |line: &&str| line.contains(&format!("{check:?}")) && line.contains("\"warning\"");
        let findings: Vec<_> = findings.lines().filter(is_warning).collect();
        let [warning] = findings[..] else { panic!("one warning: {findings:?}") };
        for word in words {
            assert!(warning.contains(word), "{word:?} is missing: {warning}");
        }
    }
}

fn with_overrides(mut env: Env, overrides: DoctorOverrides) -> Env {
    env.extend(overrides.into_iter().map(|(name, value)| (format!("IPSEITY__{name}"), value)));
    env
}

/// Runs the doctor with these settings and, if given, an open file limit.
fn run_doctor(env: &Env, fd_limit: Option<u32>) -> CommandOutput {
    let program = node::find_service_binary().expect("service binary");
    let mut command = Command::new("prlimit");
    command.args(fd_limit.map(|limit| format!("--nofile={limit}:{limit}"))).arg("--").arg(program);
    let output = command.args(["doctor", "--json"]).envs(env).output().expect("run program");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CommandOutput { code: output.status.code(), stdout: output.stdout, stderr }
}

/// The messages of all errors, except that servers belong to different deployments: many setups combine such servers.
/// Asserts that the exit code matches the errors.
fn errors_found(output: &CommandOutput) -> Vec<String> {
    let findings = output.text();
    let findings = findings.lines().map(|line| serde_json::from_str::<Value>(line).expect("valid JSON"));
    let mut errors: Vec<_> = findings.filter(|finding| finding["severity"] == "error").collect();
    let all = output.text();
    assert_eq!(output.code, Some(i32::from(!errors.is_empty())), "{all}{}", output.stderr);
    assert!(!all.contains("s3cr3t") && !output.stderr.contains("s3cr3t"), "{all}{}", output.stderr);
    errors.retain(|finding| finding["check"] != "deployment");
    errors.iter().map(|finding| finding["message"].as_str().expect("string").to_owned()).collect()
}

#[expect(clippy::print_stdout, reason = "prints the messages for review")]
fn assert_single_error(what: &str, found: &[String], words: &[&str]) {
    println!("{what}: {}", found.join(" "));
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    let message = &found[0];
    assert!(
        message.ends_with('.') && message.matches(". ").count() <= 1 && !message.contains('\n'),
        "{what}: at most two sentences: {message}"
    );
    for word in words {
        assert!(message.contains(word), "{what}: {word:?} is missing: {message}");
    }
}

async fn start_redis(options: RedisOptions, calls: &[&[&str]]) -> Redis {
    let redis = Redis::start(options).await.expect("start Redis");
    for call in calls {
        redis.run_command(call).await.expect("run Redis command");
    }
    redis
}

fn persistent_redis() -> RedisOptions {
    RedisOptions { appendonly: true, ..RedisOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_no_errors_on_a_valid_setup() {
    let reference = ReferenceSetup::open().await;
    let with_running_node = run_doctor(&reference.env(), None);
    assert_eq!((errors_found(&with_running_node), with_running_node.stderr.as_str()), (Vec::new(), ""));
    assert!(!with_running_node.text().contains("\"warning\""), "{}", with_running_node.text());
    assert!(with_running_node.text().contains("by a running node"), "{}", with_running_node.text());
    let ports: Vec<_> = (0..3).map(|_| ReservedPort::reserve_free().expect("free port")).collect();
    let [http, https, ops] = [0, 1, 2].map(|index: usize| ports[index].address().to_string());
    let free_ports = vec![("EDGE__HTTP", http), ("EDGE__HTTPS", https), ("OPS__LISTEN", ops)];
    let without_node = run_doctor(&with_overrides(reference.env(), free_ports), None);
    assert_eq!(errors_found(&without_node), Vec::<String>::new(), "{}", without_node.text());
    let human = reference.deployment.cli(&["doctor"]).await.expect("run command");
    let shown = human.text();
    assert!(human.is_success() && shown.lines().all(|line| line.starts_with("ok ")), "{shown}{}", human.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_redis_problem_and_its_fix() {
    let reference = ReferenceSetup::open().await;
    let assert_finding = |what: &str, url: String, words: &[&str]| {
        reference.assert_finding(what, vec![("LEDGER__URL", url)], words);
    };
    let evicts = start_redis(
        persistent_redis(),
        &[&["CONFIG", "SET", "maxmemory", "1gb"], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]],
    );
    assert_finding("evicts", evicts.await.url(), &["allkeys-lru", "`maxmemory-policy noeviction`"]);
    let full = start_redis(persistent_redis(), &[&["CONFIG", "SET", "maxmemory", "1mb"]]).await;
    assert_finding("full", full.url(), &["% of its memory", "Raise `maxmemory`"]);
    let volatile = start_redis(RedisOptions::default(), &[]).await;
    let url = vec![("LEDGER__URL", volatile.url())];
    reference.assert_warning("redis", url, &["stores nothing on disk", "`appendonly yes`"]);
    let replica = start_redis(persistent_redis(), &[]).await;
    replica.replicate_from(&reference.deployment.redis).await.expect("start replication");
    assert_finding("a replica", replica.url(), &["is a replica", "Add its primary"]);

    let guarded = start_redis(persistent_redis(), &[&["CONFIG", "SET", "requirepass", "open"]]).await;
    let with_credentials = |credentials: &str| guarded.url().replace("//", &format!("//{credentials}"));
    assert_finding(
        "a wrong password",
        with_credentials(":s3cr3t@"),
        &["rejects the username or password", "[ledger] url"],
    );
    assert_finding("no password", guarded.url(), &["rejects the username or password", "[ledger] url"]);
    assert_finding(
        "an unknown user",
        with_credentials("stranger:s3cr3t@"),
        &["rejects the username or password", "[ledger] url"],
    );
    assert_eq!(
        errors_found(&run_doctor(
            &with_overrides(reference.env(), vec![("LEDGER__URL", with_credentials(":open@"))]),
            None
        )),
        Vec::<String>::new()
    );

    let stranger =
        start_redis(persistent_redis(), &[&["ACL", "SETUSER", "stranger", "on", ">open", "~*", "+ping"]]).await;
    let words = &["denies a command", "NoPerm", "docs/operations/redis.md"];
    assert_finding("a user without rights", stranger.url().replace("//", "//stranger:open@"), words);

    let unused_port = ReservedPort::reserve_free().expect("free port");
    assert_finding("unreachable", format!("redis://{}", unused_port.address()), &["is unreachable", "Start it"]);
    let mut frozen = start_redis(persistent_redis(), &[]).await;
    frozen.freeze();
    assert_finding("frozen", frozen.url(), &["is unreachable", "Start it"]);

    for (ahead_ms, side) in [(90_000, "ahead of the others"), (-90_000, "behind the others")] {
        let clock = TestClock::open().expect("open clock");
        let shifted = start_redis(RedisOptions { clock: Some(clock.clone()), ..persistent_redis() }, &[]).await;
        clock.set_offset_ms(ahead_ms);
        assert_finding("its clock is off", shifted.url(), &["clock of Redis", side, "NTP"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_postgres_problem_and_its_fix() {
    let reference = ReferenceSetup::open().await;
    let postgres = &reference.deployment.postgres;
    let sql = async |database: &str, sql: &str| postgres.psql(database, sql).await.expect("run SQL");
    let assert_finding = |what: &str, url: String, words: &[&str]| {
        reference.assert_finding(what, vec![("STORE__URL", url)], words);
    };
    let empty_database = postgres.create_database("bare").await.expect("create database");
    assert_finding("no schema", empty_database, &["has no schema", "`ipseity migrate`"]);
    for name in ["behind", "altered", "newer", "latin", "still", "guarded"] {
        let template = if name == "latin" { "template0 encoding 'LATIN1' locale 'C'" } else { "bare" };
        sql("postgres", &format!("create database {name} template {template}")).await;
        let migrated =
            reference.deployment.cli_with_env(&[("IPSEITY__STORE__URL", &postgres.url(name))], &["migrate"]).await;
        migrated.expect("run command").ensure_success().expect("command succeeds");
    }
    sql("behind", "delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations)").await;
    assert_finding("behind", postgres.url("behind"), &["lacks 1 of", "`ipseity migrate`"]);
    sql("altered", "update _sqlx_migrations set checksum = 'x' where version = 2").await;
    assert_finding("altered", postgres.url("altered"), &["differ from those of this version", "Restore the database"]);
    assert_finding("another encoding", postgres.url("latin"), &["LATIN1", "--encoding=UTF8"]);
    sql("postgres", "alter database still set default_transaction_read_only = on").await;
    assert_finding("read-only", postgres.url("still"), &["is read-only", "[store] url to the primary"]);
    let grants = "create role reader login; grant select on all tables in schema public to reader";
    sql("guarded", grants).await;
    let as_role = |role: &str| postgres.url("guarded").replace("postgres@", &format!("{role}@"));
    assert_finding("may only read", as_role("reader"), &["cannot write to every table", "`grant ipseity_node to"]);
    let grants =
        "create role clerk login; grant select, insert, update, delete on all tables in schema public to clerk;
                  grant execute on all functions in schema public to clerk;
                  revoke execute on function pg_control_system() from public";
    sql("guarded", grants).await;
    assert_finding("may not read the identity", as_role("clerk"), &["identity", "`grant execute on function"]);
    assert_finding("an unknown role", as_role("stranger:s3cr3t"), &["rejects the role", "[store] url"]);
    sql("postgres", "create role outsider login; create role crowded login connection limit 0").await;
    let words = &["rejects the connection or a statement", "permission denied", "`grant ipseity_node to ROLE`"];
    assert_finding("may not read the migrations", as_role("outsider"), words);
    let words = &["rejects the connection", "too many connections for role", "`max_connections`"];
    assert_finding("too many connections of the role", as_role("crowded"), words);
    let address = postgres.address();
    let two_hosts = format!("postgres://stranger:s3cr3t@{address},{address}/guarded");
    assert_finding("an unknown role on two hosts", two_hosts, &["rejects the connection", "correct the role"]);
    assert_finding("no database", postgres.url("none"), &["no such database", "`createdb`"]);
    let unused_port = ReservedPort::reserve_free().expect("free port");
    let unreachable_url = format!("postgres://me:s3cr3t@{}/ipseity", unused_port.address());
    assert_finding("unreachable", unreachable_url, &["is unreachable", "Start it"]);

    sql(
        "newer",
        "insert into _sqlx_migrations select 9999, 'x', now(), true, checksum, 1 from _sqlx_migrations limit 1",
    )
    .await;
    let newer = run_doctor(&with_overrides(reference.env(), vec![("STORE__URL", postgres.url("newer"))]), None);
    assert_eq!(errors_found(&newer), Vec::<String>::new(), "an older node works with a newer schema");
    assert!(newer.text().contains("from a newer, compatible version"), "{}", newer.text());
    for (name, reason) in
        [("newer", "the schema is from a newer version"), ("altered", "migrations [2] failed halfway")]
    {
        let url = [("IPSEITY__STORE__URL", &*postgres.url(name))];
        let output = reference.deployment.cli_with_env(&url, &["migrate"]).await.expect("run command");
        assert!(output.code == Some(1) && output.stderr.contains(reason), "{name}: {}", output.stderr);
    }

    reference.assert_finding(
        "too few connections",
        vec![("STORE__CONNECTIONS_MAX", "500".to_owned())],
        &["allows 200 connections", "`max_connections`"],
    );
    let without_fsync = Postgres::start(PostgresOptions::default()).await.expect("start PostgreSQL");
    let url = without_fsync.create_database("ipseity").await.expect("create database");
    let migrated = reference.deployment.cli_with_env(&[("IPSEITY__STORE__URL", &url)], &["migrate"]).await;
    migrated.expect("run command").ensure_success().expect("command succeeds");
    assert_finding("does not wait for its disk", url, &["without fsync", "`fsync = on`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_host_problem_and_its_fix() {
    let reference = ReferenceSetup::open().await;
    let authority = TestCa::create(&reference.dir.path().join("authority.pem")).expect("create CA");
    let [good, other, past] = [Validity::Current, Validity::Current, Validity::Expired]
        .map(|validity| authority.issue_certificate(&["localhost"], validity).expect("issue certificate"));
    let pair = |name: &str, chain: &str, key: &str| {
        vec![
            ("EDGE__CERTIFICATE_FILE", reference.write_file(&format!("{name}.pem"), chain)),
            ("EDGE__PRIVATE_KEY_FILE", reference.write_file(&format!("{name}.key"), key)),
        ]
    };
    reference.assert_finding(
        "expired",
        pair("past", &past.chain, &past.private_key),
        &["past.pem has expired", "Renew it"],
    );
    let mixed = pair("mixed", &good.chain, &other.private_key);
    reference.assert_finding("not its key", mixed, &["does not belong", "issued together"]);
    let torn = pair("torn", &good.chain[..60], &good.private_key);
    reference.assert_finding("a torn certificate", torn, &["has no valid PEM certificate"]);
    let missing = vec![("EDGE__CERTIFICATE_FILE", "/nowhere.pem".to_owned())];
    reference.assert_finding("no certificate", missing, &["ailed to read /nowhere.pem", "Check that it exists"]);

    let geo = |file: String| vec![("GEO__FILES", file)];
    reference.assert_finding(
        "no geo file",
        geo("/nowhere.mmdb".to_owned()),
        &["ailed to read /nowhere.mmdb", "Replace the file, or correct [geo] files"],
    );
    let complete = city_database_aged(0);
    let torn = reference.write_file("torn.mmdb", &complete[..complete.len() / 2]);
    reference.assert_finding("torn geo data", geo(torn), &["not a valid MMDB file", "Replace the file"]);

    let other_listener = TcpListener::bind("127.0.0.1:0").expect("bind socket");
    let taken_address = other_listener.local_addr().expect("local address").to_string();
    let listener_settings = |http: &str| {
        let ops = ReservedPort::reserve_free().expect("free port").address().to_string();
        vec![("EDGE__HTTP", http.to_owned()), ("EDGE__HTTPS", String::new()), ("OPS__LISTEN", ops)]
    };
    let without_tls = with_overrides(Env::new(), listener_settings(&taken_address));
    let mut env = reference.env();
    env.remove("IPSEITY__EDGE__HTTPS");
    env.extend(without_tls);
    assert_single_error(
        "a taken port",
        &errors_found(&run_doctor(&env, None)),
        &[&taken_address, "another program", "`ss -lnp"],
    );
    env.extend(with_overrides(Env::new(), listener_settings("203.0.113.9:8080")));
    assert_single_error(
        "another's address",
        &errors_found(&run_doctor(&env, None)),
        &["not an address of this machine", "`ip address`"],
    );

    let trust = |networks: &str| vec![("EDGE__TRUSTED_PROXIES", networks.to_owned())];
    let expected_fix = "List only the networks of your proxies";
    reference.assert_finding(
        "trusts everyone",
        trust("0.0.0.0/0"),
        &["any client could claim any address", expected_fix],
    );
    reference.assert_finding(
        "trusts half of all",
        trust("0.0.0.0/1,10.0.0.0/8"),
        &["other clients in them", expected_fix],
    );
    env = reference.env();
    env.remove("IPSEITY__EDGE__TRUSTED_PROXIES");
    env.insert("IPSEITY__EDGE__PRESET".to_owned(), "nginx".to_owned());
    assert_single_error(
        "a preset without trusted proxies",
        &errors_found(&run_doctor(&env, None)),
        &["Add the networks of the proxy"],
    );
    let plain_http = vec![("PUBLIC__BASE_URL", "http://ip.example.com".to_owned())];
    reference.assert_finding("pages over plain HTTP", plain_http, &["only over TLS", "https://"]);
    let mut without_tls = reference.env();
    for name in ["EDGE__HTTPS", "EDGE__TRUSTED_PROXIES", "PUBLIC__ALLOW_PLAIN_HTTP"] {
        without_tls.remove(&format!("IPSEITY__{name}"));
    }
    assert_single_error(
        "keys over plain HTTP",
        &errors_found(&run_doctor(&without_tls, None)),
        &["Keys are accepted only over TLS", "[public] allow_plain_http"],
    );
    let few = errors_found(&run_doctor(&reference.env(), Some(256)));
    assert_single_error("few open files", &few, &["open file limit is 256", "`LimitNOFILE=`"]);
    let mut serve = Command::new("prlimit");
    serve.args(["--nofile=60:60", "--"]).arg(node::find_service_binary().expect("service binary")).arg("serve");
    let output = serve.envs(reference.env()).output().expect("run program");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the open file limit is 60") && stderr.contains("`ulimit -n`"), "{stderr}");
    let urls = |ipv4: &str, ipv6: &str| {
        let host = |name: &str| format!("https://{name}");
        vec![("PUBLIC__IPV4_URL", host(ipv4)), ("PUBLIC__IPV6_URL", host(ipv6))]
    };
    reference.assert_finding("no name", urls("ipv4.invalid", "[::1]"), &["ipv4.invalid does not resolve", "ipv4_url"]);
    reference.assert_finding("only IPv6", urls("[::2]", "[::1]"), &["[::2] has no A record", "[public] ipv4_url"]);
    let names = with_overrides(reference.env(), urls("127.0.0.1", "[::1]"));
    assert_eq!(errors_found(&run_doctor(&names, None)), Vec::<String>::new());
    let level = vec![("LOG__LEVEL", "loud".to_owned())];
    reference.assert_finding("a level that is none", level, &["[log] level", "use error, warn, info, debug or trace"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_warns_about_missing_and_old_geo_data() {
    let reference = ReferenceSetup::open().await;
    let geo = |file: &str| vec![("GEO__FILES", file.to_owned())];
    let with_source = |file: &str| {
        let sources = format!(r#"[{{"url":"https://geo.invalid/city?key=s3cr3t","file":"{file}"}}]"#);
        [geo(file), vec![("GEO__SOURCES", sources)]].concat()
    };
    reference.assert_warning("geo data", geo(""), &["There is no geo database", "[geo] files"]);
    let old = reference.write_file("old.mmdb", city_database_aged(60));
    reference.assert_warning("geo data", geo(&old), &["is 60 days old", "Replace the file"]);
    reference.assert_warning("geo data", with_source(&old), &["is 60 days old", "`ipseity geo update`"]);
    let missing = reference.dir.path().join("missing.mmdb").display().to_string();
    reference.assert_warning(
        "geo data",
        with_source(&missing),
        &["No database", "missing.mmdb yet, source geo.invalid"],
    );
}
