//! A certificate authority of its own and a server certificate for this machine's names, as PEM files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Where the files of a certificate are.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The authority's certificate, for clients to trust.
    pub authority: PathBuf,
    /// The server's certificate for localhost, 127.0.0.1 and ::1.
    pub chain: PathBuf,
    /// The server's private key.
    pub private_key: PathBuf,
}

impl Certificate {
    /// Makes a new authority and a new certificate in a folder, over whatever was there.
    pub fn write(folder: &Path) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "Ipseity test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let authority_certificate = authority.self_signed(&authority_key)?;

        let mut server = CertificateParams::new(["localhost", "127.0.0.1", "::1"].map(String::from))?;
        server.distinguished_name.push(DnType::CommonName, "localhost");
        server.use_authority_key_identifier_extension = true;
        let server_key = KeyPair::generate()?;
        let server_certificate = server.signed_by(&server_key, &Issuer::new(authority, authority_key))?;

        let files = Self {
            authority: folder.join("authority.pem"),
            chain: folder.join("server.pem"),
            private_key: folder.join("server.key"),
        };
        fs::write(&files.authority, authority_certificate.pem())?;
        fs::write(&files.chain, server_certificate.pem())?;
        fs::write(&files.private_key, server_key.serialize_pem())?;
        Ok(files)
    }
}
