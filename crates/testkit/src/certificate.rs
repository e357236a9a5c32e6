//! Creates certificate authorities and server certificates for tests, as PEM files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
};

/// Paths of a certificate, its key and its authority.
#[derive(Debug, Clone)]
pub struct TestCertificate {
    /// Certificate of the authority, for clients to trust.
    pub ca_file: PathBuf,
    /// Server certificate for localhost, 127.0.0.1 and ::1.
    pub chain_file: PathBuf,
    /// Private key of the server.
    pub private_key_file: PathBuf,
}

impl TestCertificate {
    /// Creates an authority and a certificate in a directory and overwrites existing files.
    pub fn generate_in(dir: &Path) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "Ipseity test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;

        let mut server = CertificateParams::new(["localhost", "127.0.0.1", "::1"].map(String::from))?;
        server.distinguished_name.push(DnType::CommonName, "localhost");
        server.use_authority_key_identifier_extension = true;
        (server.not_before, server.not_after) = valid_for_90_days();
        let server_key = KeyPair::generate()?;
        let server_certificate = server.signed_by(&server_key, &Issuer::new(authority, authority_key))?;

        let files = Self {
            ca_file: dir.join("authority.pem"),
            chain_file: dir.join("server.pem"),
            private_key_file: dir.join("server.key"),
        };
        fs::write(&files.ca_file, authority_certificate.pem())?;
        fs::write(&files.chain_file, server_certificate.pem())?;
        fs::write(&files.private_key_file, server_key.serialize_pem())?;
        Ok(files)
    }
}

/// Valid since an hour ago, in case clocks differ, for 90 days. Generic over the library's time type.
fn valid_for_90_days<T: From<SystemTime>>() -> (T, T) {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let now = SystemTime::now();
    ((now - HOUR).into(), (now + 90 * 24 * HOUR).into())
}

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Valid for the next 90 days.
    Current,
    /// Expired.
    Expired,
    /// Not valid yet.
    NotYetValid,
}

/// An authority that issues any number of certificates.
pub struct TestCa(Issuer<'static, KeyPair>);

/// A certificate and its key as PEM.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub chain: String,
    /// Its private key.
    pub private_key: String,
    /// Serial number in lowercase hexadecimal.
    pub serial: String,
}

impl TestCa {
    /// Creates an authority and writes its certificate to a file.
    pub fn create(file: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Ipseity test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        fs::write(file, params.self_signed(&key)?.pem())?;
        Ok(Self(Issuer::new(params, key)))
    }

    /// Issues a certificate for these names.
    pub fn issue_certificate(&self, names: &[&str], validity: Validity) -> Result<IssuedCertificate> {
        let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        // Positive and without leading zeros, which some parsers drop.
        let serial = fastrand::u64(1 << 60..1 << 62);
        params.serial_number = Some(SerialNumber::from(serial.to_be_bytes().to_vec()));
        match validity {
            Validity::Current => (params.not_before, params.not_after) = valid_for_90_days(),
            Validity::Expired => params.not_after = date_time_ymd(2020, 1, 1),
            Validity::NotYetValid => params.not_before = date_time_ymd(4000, 1, 1),
        }
        let key = KeyPair::generate()?;
        let chain = params.signed_by(&key, &self.0)?.pem();
        Ok(IssuedCertificate { chain, private_key: key.serialize_pem(), serial: format!("{serial:x}") })
    }
}
