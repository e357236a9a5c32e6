//! Servers to compare the service with.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use ipseity_testkit::certificate::TestCertificate;
use ipseity_testkit::deployment::node::{find_service_binary, find_test_binary};
use ipseity_testkit::{ChildProcess, Redis, RedisOptions, ReservedPort, TestDir, eventually};
use tokio::net::TcpStream;

use crate::caller_pool::CallerPool;
use crate::fixture::seed_records;
use crate::load::SEEDED_KEYS;

const LUA_MODULES: &str = "load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;";
const LUA_SETTINGS: &str = "lua_package_path '/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/resty/?.lua;;';
init_by_lua_file DIR/alternative.lua;";
/// The body is a variable, so that nginx renders it like that of the other subject.
const LUA_RESPONSE: &str =
    "set $body 'BODY'; access_by_lua_block { charge() } content_by_lua_block { ngx.print(ngx.var.body) }";
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Programs under test.
pub(crate) struct BenchPrograms {
    pub(crate) service: PathBuf,
    pub(crate) reference_server: PathBuf,
}

impl BenchPrograms {
    /// The built programs.
    pub(crate) fn find() -> Result<Self> {
        Ok(Self { service: find_service_binary()?, reference_server: find_test_binary("reference_server")? })
    }
}

/// A running server; killed when dropped.
pub(crate) struct ComparisonServer {
    process: ChildProcess,
    http_port: ReservedPort,
    https_port: ReservedPort,
    _dir: TestDir,
}

impl ComparisonServer {
    /// A bare server that responds with a fixed body, over plain HTTP and TLS.
    pub(crate) async fn start_static(
        reference_server: &Path,
        body: &Path,
        certificate: &TestCertificate,
    ) -> Result<Self> {
        Self::start(|_, http, https| {
            let mut command = reference_server_command(reference_server, http, body);
            command.arg("--tls").arg(https.to_string()).arg(&certificate.chain_file).arg(&certificate.private_key_file);
            Ok(command)
        })
        .await
    }

    /// A bare server that first makes one script call, over plain HTTP only.
    pub(crate) async fn start_floor(reference_server: &Path, body: &Path, redis: &Redis) -> Result<Self> {
        Self::start(|_, http, _| {
            let mut command = reference_server_command(reference_server, http, body);
            command.arg("--redis").arg(redis.url());
            Ok(command)
        })
        .await
    }

    /// nginx, which renders a similar response from the same City and ASN databases.
    pub(crate) async fn start_nginx(databases: &[PathBuf]) -> Result<Self> {
        Self::start_nginx_with(databases, None).await
    }

    /// The same nginx, which first authenticates and charges the key with Lua.
    pub(crate) async fn start_alternative(databases: &[PathBuf], redis: &Redis) -> Result<Self> {
        let mut load_script = redis::cmd("SCRIPT");
        load_script.arg("LOAD").arg(include_str!("../reference_server/charge.lua"));
        let script_hash: String = load_script.query_async(&mut redis.connect().await?).await?;
        let address = redis.address();
        let program = include_str!("alternative.lua")
            .replace("REDIS_HOST", &address.ip().to_string())
            .replace("REDIS_PORT", &address.port().to_string())
            .replace("SCRIPT_HASH", &script_hash);
        Self::start_nginx_with(databases, Some(&program)).await
    }

    /// `lua` is the program of the alternative, which defines `charge`.
    async fn start_nginx_with(databases: &[PathBuf], lua: Option<&str>) -> Result<Self> {
        Self::start(|dir, http, _| {
            let [city, asn] = databases else { anyhow::bail!("nginx needs two databases") };
            let (modules, settings, response) = match lua {
                None => ("", "", "return 200 'BODY';"),
                Some(program) => {
                    fs::write(dir.join("alternative.lua"), program)?;
                    (LUA_MODULES, LUA_SETTINGS, LUA_RESPONSE)
                }
            };
            let conf = include_str!("nginx.conf")
                .replace("LUA_MODULES", modules)
                .replace("LUA_SETTINGS", settings)
                .replace("RESPONSE", response)
                .replace("BODY", include_str!("nginx_body.json").trim_end())
                .replace("DIR", &dir.display().to_string())
                .replace("PLACES", &city.display().to_string())
                .replace("NETWORKS", &asn.display().to_string())
                .replace("ADDRESS", &http.to_string());
            let file = dir.join("nginx.conf");
            fs::write(&file, conf)?;
            let mut command = Command::new("/usr/sbin/nginx");
            command.arg("-p").arg(dir).arg("-c").arg(file);
            Ok(command)
        })
        .await
    }

    async fn start(command: impl FnOnce(&Path, SocketAddr, SocketAddr) -> Result<Command>) -> Result<Self> {
        let (dir, http_port, https_port) =
            (TestDir::create()?, ReservedPort::reserve_free()?, ReservedPort::reserve_free()?);
        let command = command(dir.path(), http_port.address(), https_port.address())?;
        let log = dir.path().join("server.log");
        let mut process = ChildProcess::spawn(command, &log)?;
        let ready = eventually("the server accepts connections", READY_TIMEOUT, async || {
            !process.is_running() || TcpStream::connect(http_port.address()).await.is_ok()
        });
        ready.await?;
        anyhow::ensure!(process.is_running(), "the server exited:\n{}", fs::read_to_string(log)?);
        Ok(Self { process, http_port, https_port, _dir: dir })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Address of the HTTP listener.
    pub(crate) fn http(&self) -> SocketAddr {
        self.http_port.address()
    }

    /// Address of the TLS and QUIC listener.
    pub(crate) fn https(&self) -> SocketAddr {
        self.https_port.address()
    }
}

/// The servers that only the comparison measures.
pub(crate) struct OtherServers {
    pub(crate) nginx: ComparisonServer,
    pub(crate) alternative: ComparisonServer,
    pub(crate) alternative_redis: Redis,
    /// For the script alone.
    pub(crate) script_redis: Redis,
}

impl OtherServers {
    /// Starts them. The alternative knows the keys of a pool.
    pub(crate) async fn start(databases: &[PathBuf], pool: &CallerPool) -> Result<Self> {
        let alternative_redis = Redis::start(RedisOptions::default()).await?;
        seed_records(&alternative_redis, pool.digests()).await?;
        let script_redis = Redis::start(RedisOptions::default()).await?;
        seed_records(&script_redis, (0..SEEDED_KEYS).map(|number| format!("key{number:012}"))).await?;
        Ok(Self {
            nginx: ComparisonServer::start_nginx(databases).await?,
            alternative: ComparisonServer::start_alternative(databases, &alternative_redis).await?,
            alternative_redis,
            script_redis,
        })
    }
}

fn reference_server_command(reference_server: &Path, listen: SocketAddr, body: &Path) -> Command {
    let mut command = Command::new(reference_server);
    command.arg(listen.to_string()).arg(body);
    command
}
