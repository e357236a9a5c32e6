//! `ipseity site …`

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use ipseity_store::{Site, Store, StoreRefusal};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli::admin_context::operator_name;
use crate::cli::output;
use crate::cli::parse::parse_site_name;
use crate::config::Config;
use crate::node::backends::operator_store;

/// Files of a site, in its directory. The configuration file names them.
const CERTIFICATE_FILE: &str = "site.pem";
const PRIVATE_KEY_FILE: &str = "site.key";
const HOME_CA_FILE: &str = "home-ca.pem";
const CONFIG_FILE: &str = "ipseity.toml";

const CERTIFICATE_YEARS: u32 = 10;
/// Written instead of `[home] advertised_urls`, if it is empty.
const EXAMPLE_HOME_URL: &str = "https://home.example:9443";

#[derive(Subcommand)]
pub(super) enum SiteCommand {
    /// Add a site, and write the files that its remote nodes need.
    ///
    /// A remote node has no PostgreSQL and no Redis. It asks home nodes, which trust the certificate of its site. The certificate is valid for 10
    /// years. Copy the directory to each remote node of the site over a secure channel, because it contains a private key. If nodes have a
    /// restricted role, run this with the role that owns the tables, like `ipseity migrate`.
    #[command(after_long_help = "Example:\n  ipseity site add fra --dir site-fra")]
    Add {
        /// Site name: up to 32 lowercase letters, digits and hyphens.
        #[arg(value_parser = parse_site_name)]
        name: String,
        /// Directory for the certificate, its private key and a configuration file. It must be empty or missing.
        #[arg(long)]
        dir: PathBuf,
    },
    /// List sites.
    List,
    /// Remove a site.
    ///
    /// Home nodes stop trusting its certificate, so its remote nodes lose their connection. To replace a certificate, add a site with another name,
    /// move the nodes and then remove the old site. If nodes have a restricted role, run this with the role that owns the tables, like
    /// `ipseity migrate`.
    Remove {
        /// Site name; `ipseity site list` lists them.
        name: String,
        /// Confirm the removal. Without this flag, the command only reports what it would remove.
        #[arg(long)]
        yes: bool,
    },
}

impl SiteCommand {
    pub(super) async fn run(self, config: &Config, json: bool) -> Result<()> {
        let store = operator_store(config, operator_name())?;
        match self {
            Self::Add { name, dir } => add_site(config, &store, &name, &dir, json).await,
            Self::List => print_sites(&store.sites().list().await?, json),
            Self::Remove { name, yes } => remove_site(&store, &name, yes, json).await,
        }
    }
}

async fn add_site(config: &Config, store: &Store, name: &str, dir: &Path, json: bool) -> Result<()> {
    ensure_owner(store).await?;
    let is_taken = store.sites().list().await?.iter().any(|site| site.name == name);
    ensure!(!is_taken, StoreRefusal::SiteExists);
    let home_ca = read_home_ca(&config.home.ca_file)?;
    let identity = SiteIdentity::generate(name)?;
    create_private_dir(dir)?;
    write_site_files(config, &identity, home_ca.as_deref(), dir).with_context(|| failed_after_files(name, dir))?;
    // Added last, so that a command that fails leaves no certificate that home nodes trust.
    let added = store.sites().add(name, &identity.certificate_sha256).await;
    added.with_context(|| failed_after_files(name, dir))?;
    let certificate_sha256 = hex::encode(identity.certificate_sha256);
    let value = json!({ "name": name, "dir": dir.display().to_string(), "certificate_sha256": certificate_sha256 });
    output::print_result(json, &value, &describe_next_steps(config, name, home_ca.is_some(), dir))
}

fn failed_after_files(name: &str, dir: &Path) -> String {
    format!("failed to add site {name}. {} has files of this attempt. Delete it before you try again.", dir.display())
}

async fn remove_site(store: &Store, name: &str, is_confirmed: bool, json: bool) -> Result<()> {
    ensure_owner(store).await?;
    let is_known = store.sites().list().await?.iter().any(|site| site.name == name);
    ensure!(is_known, StoreRefusal::UnknownSite);
    ensure!(
        is_confirmed,
        "the remote nodes of site {name} would lose their connection to home. To confirm, add --yes."
    );
    ensure!(store.sites().remove(name).await?, StoreRefusal::UnknownSite);
    let text = format!("Removed site {name}. Running home nodes disconnect it when they next read the list of sites.");
    output::print_result(json, &json!({ "name": name, "removed": true }), &text)
}

/// Checked before a change, so that a restricted role in `[store] url` gets a hint and leaves no files.
async fn ensure_owner(store: &Store) -> Result<()> {
    ensure!(
        store.sites().can_change().await?,
        "the role of [store] url may only read sites. Use the URL of the role that owns the tables, as for `ipseity migrate`."
    );
    Ok(())
}

/// The certificate that remote nodes of a site present, and its private key.
struct SiteIdentity {
    certificate_pem: String,
    private_key_pem: String,
    certificate_sha256: [u8; 32],
}

impl SiteIdentity {
    fn generate(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = validity_period();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            private_key_pem: key.serialize_pem(),
            certificate_sha256: Sha256::digest(certificate.der()).into(),
        })
    }
}

/// Valid since an hour ago, in case clocks differ. Generic over the library's time type.
fn validity_period<T: From<SystemTime>>() -> (T, T) {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let now = SystemTime::now();
    ((now - HOUR).into(), (now + CERTIFICATE_YEARS * YEAR).into())
}

/// The certificate authority of home's certificate. `None` if it is not configured.
fn read_home_ca(file: &Path) -> Result<Option<String>> {
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    let pem = fs::read_to_string(file)
        .with_context(|| format!("failed to read {}, which [home] ca_file names", file.display()))?;
    ensure!(
        pem.contains("-----BEGIN CERTIFICATE-----"),
        "{} has no certificate. It must be a PEM file.",
        file.display()
    );
    // It would be copied to another site.
    ensure!(
        !pem.contains("PRIVATE KEY-----"),
        "{} has a private key. [home] ca_file must have certificates only.",
        file.display()
    );
    Ok(Some(pem))
}

/// Creates a directory that only its owner can read, or uses an empty one.
fn create_private_dir(dir: &Path) -> Result<()> {
    match fs::read_dir(dir) {
        Ok(mut entries) => {
            ensure!(entries.next().is_none(), "{} is not empty. Choose a new directory.", dir.display());
            fs::set_permissions(dir, Permissions::from_mode(0o700))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)
        }
        Err(error) => Err(error),
    }
    .with_context(|| format!("failed to create {}", dir.display()))
}

fn write_site_files(config: &Config, identity: &SiteIdentity, home_ca: Option<&str>, dir: &Path) -> Result<()> {
    write_new_file(&dir.join(CERTIFICATE_FILE), 0o644, &identity.certificate_pem)?;
    write_new_file(&dir.join(PRIVATE_KEY_FILE), 0o600, &identity.private_key_pem)?;
    write_new_file(&dir.join(CONFIG_FILE), 0o644, &site_config(&config.home.advertised_urls, &config.public.base_url))?;
    home_ca.map_or(Ok(()), |pem| write_new_file(&dir.join(HOME_CA_FILE), 0o644, pem))
}

fn write_new_file(file: &Path, mode: u32, text: &str) -> Result<()> {
    let write = || {
        let mut opened = File::options().write(true).create_new(true).mode(mode).open(file)?;
        opened.write_all(text.as_bytes())?;
        opened.sync_all()
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}

/// The configuration file of a remote node. Quoted texts of JSON are valid in TOML.
fn site_config(advertised_urls: &[String], portal_url: &str) -> String {
    let urls = if advertised_urls.is_empty() { json!([EXAMPLE_HOME_URL]) } else { json!(advertised_urls) };
    let portal_url = json!(portal_url);
    format!(
        r#"# The settings of a remote node, written by `ipseity site add`. Other settings have defaults.
# Relative paths start at the working directory of the service, which is /var/lib/ipseity with the Debian package.

[home]
# Home nodes that this remote node asks: one of them, and the next if its connection is lost.
urls = {urls}
# Certificate that this node presents to home nodes.
certificate_file = "{CERTIFICATE_FILE}"
# Private key of that certificate.
private_key_file = "{PRIVATE_KEY_FILE}"
# Certificate authority that issued the certificate of home nodes.
ca_file = "{HOME_CA_FILE}"
# URL of the portal, which home nodes serve.
portal_url = {portal_url}

[edge]
# IATA code of this site, three capital letters, such as "FRA". Responses return it as `colo`.
colo = ""
"#
    )
}

fn describe_next_steps(config: &Config, name: &str, has_home_ca: bool, dir: &Path) -> String {
    let dir = dir.display();
    let mut lines = vec![
        format!("Added site {name}. {dir} has its certificate, its private key and a configuration file."),
        format!("Set colo in {dir}/{CONFIG_FILE}."),
    ];
    if config.home.advertised_urls.is_empty() {
        lines.push(format!("Set urls in {dir}/{CONFIG_FILE} to the addresses of your home nodes."));
    }
    if !config.public.base_url.starts_with("https://") {
        lines.push(format!("Set portal_url in {dir}/{CONFIG_FILE} to the https URL of your portal."));
    }
    if !has_home_ca {
        lines
            .push(format!("Save the certificate authority of your home nodes as {dir}/{HOME_CA_FILE}, in PEM format."));
    }
    lines.push(format!(
        "Copy {dir} to the remote nodes over a secure channel, then delete it here: it contains the private key."
    ));
    lines.join("\n")
}

fn print_sites(sites: &[Site], json: bool) -> Result<()> {
    if json {
        return sites.iter().try_for_each(|site| {
            output::print_json(&json!({
                "name": site.name,
                "certificate_sha256": hex::encode(site.certificate_sha256),
                "created_at": output::format_rfc3339(site.created_s),
            }))
        });
    }
    let rows: Vec<_> = sites
        .iter()
        .map(|site| [site.name.clone(), output::format_utc(site.created_s), hex::encode(site.certificate_sha256)])
        .collect();
    output::print_table(["SITE", "CREATED (UTC)", "CERTIFICATE (SHA-256)"], &rows)
}

#[cfg(test)]
mod tests {
    use ipseity_testkit::TestDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("path exists").permissions().mode() & 0o777
    }

    #[test]
    fn site_config_is_a_valid_configuration() {
        let dir = TestDir::create().expect("directory is created");
        let file = dir.path().join(CONFIG_FILE);
        let urls = ["https://a.example:9443".to_owned(), "https://b.example:9443/\"\\".to_owned()];
        fs::write(&file, site_config(&urls, "https://ip.example.com")).expect("file is written");
        let config = Config::load(Some(&file)).expect("file is valid");
        assert_eq!(config.home.urls, urls);
        assert_eq!(config.home.portal_url, "https://ip.example.com");
        assert_eq!(config.home.private_key_file, Path::new(PRIVATE_KEY_FILE));
        assert!(site_config(&[], "").contains(EXAMPLE_HOME_URL));
    }

    #[test]
    fn private_key_is_readable_only_by_its_owner() {
        let parent = TestDir::create().expect("directory is created");
        let dir = parent.path().join("new/site");
        create_private_dir(&dir).expect("directory is created");
        write_new_file(&dir.join(PRIVATE_KEY_FILE), 0o600, "key").expect("file is written");
        assert_eq!((mode(&dir), mode(&dir.join(PRIVATE_KEY_FILE))), (0o700, 0o600));
        let used = create_private_dir(&dir).expect_err("the directory has a file").to_string();
        assert!(used.contains("is not empty"), "{used}");
        write_new_file(&dir.join(PRIVATE_KEY_FILE), 0o600, "key").expect_err("the file exists");

        let empty = parent.path().join("empty");
        DirBuilder::new().mode(0o755).create(&empty).expect("directory is created");
        create_private_dir(&empty).expect("an empty directory is used");
        assert_eq!(mode(&empty), 0o700);
    }

    #[test]
    fn each_site_has_a_different_certificate() {
        let [first, second] =
            ["fra", "fra"].map(|name| SiteIdentity::generate(name).expect("certificate is generated"));
        assert!(first.certificate_pem.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(first.private_key_pem.starts_with("-----BEGIN PRIVATE KEY-----"));
        assert_ne!(first.certificate_sha256, second.certificate_sha256);
    }

    #[test]
    fn home_ca_file_with_a_private_key_is_rejected() {
        let dir = TestDir::create().expect("directory is created");
        let file = dir.path().join("ca.pem");
        let SiteIdentity { certificate_pem, private_key_pem, .. } =
            SiteIdentity::generate("ca").expect("certificate is generated");
        fs::write(&file, &certificate_pem).expect("file is written");
        assert_eq!(read_home_ca(&file).expect("file is valid"), Some(certificate_pem.clone()));
        assert_eq!(read_home_ca(Path::new("")).expect("no file is configured"), None);
        for (text, reason) in
            [(certificate_pem + &private_key_pem, "has a private key"), (String::new(), "has no certificate")]
        {
            fs::write(&file, text).expect("file is written");
            let error = read_home_ca(&file).expect_err("file is rejected").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
