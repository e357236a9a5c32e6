//! A real PgBouncer process in front of PostgreSQL.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpStream;

use crate::deployment::postgres::Postgres;
use crate::eventually;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A running pooler; killed when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    _process: ChildProcess,
    port: ReservedPort,
    _dir: TestDir,
}

impl PgBouncer {
    /// Starts a pooler for a role and a database without a password. `settings` are lines of its configuration.
    pub async fn start(postgres: &Postgres, role: &str, database: &str, settings: &str) -> Result<Self> {
        let (dir, port) = (TestDir::create()?, ReservedPort::reserve_free()?);
        let (config, users) = (dir.path().join("pgbouncer.ini"), dir.path().join("users.txt"));
        fs::write(&users, format!("\"{role}\" \"\"\n"))?;
        fs::write(
            &config,
            format!(
                "[databases]\n{database} = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {}\nauth_type = trust\nauth_file = {}\nunix_socket_dir =\n{settings}\n",
                postgres.address().port(),
                port.number(),
                users.display(),
            ),
        )?;
        // It drops the rights of root, and reads both files as another user.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let mut command = Command::new("pgbouncer");
        command.args(["-u", "postgres"]).arg(&config).env("PATH", "/usr/sbin:/usr/bin:/bin");
        let process = ChildProcess::spawn(command, &dir.path().join("pgbouncer.log"))?;
        let address = port.address();
        let is_ready = async || TcpStream::connect(address).await.is_ok();
        let log = || fs::read_to_string(dir.path().join("pgbouncer.log")).unwrap_or_default();
        eventually("PgBouncer accepts connections", READY_TIMEOUT, is_ready).await.with_context(log)?;
        Ok(Self { _process: process, port, _dir: dir })
    }

    /// URL of the database through this pooler.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@{}/{database}", self.port.address())
    }
}
