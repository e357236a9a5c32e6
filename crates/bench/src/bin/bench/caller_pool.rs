//! Pools of callers: files with a key and an address on each line, and the rows of those keys.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ipseity_domain::{ApiKey, KEYS_PER_ACCOUNT_MAX, PlaintextKey, Scope};
use ipseity_testkit::Postgres;
use ipseity_testkit::deployment::DATABASE;

/// The origin of callers that are pages.
const PAGE_ORIGIN: &str = "https://www.shop.example";

/// Callers that take turns.
#[derive(Clone)]
pub(crate) struct CallerPool {
    /// Read by load generators that are separate programs.
    pub(crate) file: PathBuf,
    /// Keys (`-` for none) and the client addresses that they are used with.
    pub(crate) callers: Vec<(String, Ipv4Addr)>,
    /// The origin, if the callers are pages.
    pub(crate) origin: Option<&'static str>,
}

impl CallerPool {
    /// Assigns a random address to each key and writes both to a file.
    pub(crate) fn write(file: PathBuf, keys: impl Iterator<Item = String>) -> Result<Self> {
        Self::write_with(file, keys, None)
    }

    /// The same for callers that are pages of the origin that the restrictions of keys allow.
    pub(crate) fn write_pages(file: PathBuf, keys: impl Iterator<Item = String>) -> Result<Self> {
        Self::write_with(file, keys, Some(PAGE_ORIGIN))
    }

    fn write_with(file: PathBuf, keys: impl Iterator<Item = String>, origin: Option<&'static str>) -> Result<Self> {
        let callers: Vec<_> = keys.map(|key| (key, random_address())).collect();
        let lines: String = callers.iter().fold(String::new(), |mut lines, (key, address)| {
            let _ = match origin {
                None => writeln!(lines, "{key} {address}"),
                Some(origin) => writeln!(lines, "{key} {address} {origin}"),
            };
            lines
        });
        fs::write(&file, lines)?;
        Ok(Self { file, callers, origin })
    }

    /// Public IDs of the keys.
    pub(crate) fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.callers.iter().filter_map(|(key, _)| key.get(4..14))
    }

    /// Digests of the keys, in hexadecimal.
    pub(crate) fn digests(&self) -> impl Iterator<Item = String> {
        self.callers.iter().filter_map(|(key, _)| Some(hex::encode(ApiKey::parse(key)?.digest.as_bytes())))
    }
}

/// Restricts the keys of a pool. All its callers are allowed.
pub(crate) async fn restrict_keys(postgres: &Postgres, pool: &CallerPool) -> Result<()> {
    let ids: Vec<_> = pool.key_ids().collect();
    let update = format!(
        "set session_replication_role = replica;
         update keys set allowed_origins = '{{https://shop.example,{PAGE_ORIGIN}}}',
                allowed_networks = '{{0.0.0.0/1,128.0.0.0/1}}', expires_at = now() + interval '1 year',
                caller_limit = 300, restriction_version = 1 where id = any('{{{}}}')",
        ids.join(",")
    );
    postgres.psql(DATABASE, &update).await?;
    Ok(())
}

/// Any unicast address of the Internet, in the databases or not.
fn random_address() -> Ipv4Addr {
    loop {
        let address = Ipv4Addr::from_bits(fastrand::u32(0x0100_0000..0xE000_0000));
        if !address.is_private() && !address.is_loopback() && !address.is_link_local() {
            return address;
        }
    }
}

/// Generates a key without a row.
pub(crate) fn generate_key() -> PlaintextKey {
    PlaintextKey::generate(|| fastrand::u8(..))
}

/// Rows to insert.
#[derive(Default)]
pub(crate) struct SeedKeyRows {
    tsv: String,
    count: usize,
}

impl SeedKeyRows {
    /// Adds keys in any state and returns them in plain text.
    pub(crate) fn add_keys(&mut self, count: usize, scope: Scope, is_paused: bool) -> Result<Vec<String>> {
        let mut plaintext_keys = Vec::with_capacity(count);
        let paused_at = if is_paused { "now" } else { "\\N" };
        for _ in 0..count {
            let plaintext = generate_key();
            let key = plaintext.to_api_key();
            let (account, slot) = (self.count / KEYS_PER_ACCOUNT_MAX + 1, self.count % KEYS_PER_ACCOUNT_MAX + 1);
            let (scope, digest) = (scope.name(), hex::encode(key.digest.as_bytes()));
            writeln!(self.tsv, "{}\t{account}\t{slot}\tbench\t{scope}\t{paused_at}\t\\\\x{digest}", key.id)?;
            self.count += 1;
            plaintext_keys.push(plaintext.expose().to_owned());
        }
        Ok(plaintext_keys)
    }

    /// Loads the rows into PostgreSQL with their accounts, all on the free plan, and the other rows of an issued key.
    pub(crate) async fn load_into(self, postgres: &Postgres, dir: &Path) -> Result<()> {
        let file = dir.join("keys.tsv");
        fs::write(&file, self.tsv)?;
        let accounts = self.count.div_ceil(KEYS_PER_ACCOUNT_MAX);
        let steps = [
            format!(
                "insert into accounts (id, email) overriding system value
                 select number, format('bench-%s@example.com', number) from generate_series(1, {accounts}) number"
            ),
            format!("copy keys (id, account_id, seat, name, scope, paused_at, digest) from '{}'", file.display()),
            "insert into history (key_id, act, actor) select id, 'issued', 'owner' from keys".to_owned(),
        ];
        for step in steps {
            // Without triggers, because the rows are valid and no node listens for changes yet.
            postgres.psql(DATABASE, &format!("set session_replication_role = replica; {step}")).await?;
        }
        postgres.psql(DATABASE, "vacuum analyze").await?;
        Ok(fs::remove_file(file)?)
    }
}
