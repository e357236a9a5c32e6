//! The URL of PostgreSQL. Unknown parameters are rejected: sqlx would ignore a misspelled `sslmode`, and log its value.

use std::str::FromStr;

use ipseity_domain::causes;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sqlx::postgres::PgConnectOptions;
use url::form_urlencoded;

const TARGET_PARAM: &str = "target_session_attrs";
/// What a node needs, in the words of libpq.
const WRITABLE_TARGETS: [&str; 2] = ["read-write", "primary"];
/// The parameters that `PgConnectOptions` understands, with their aliases, and `options[NAME]`.
const PARAMS: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

const CERTIFICATE_PARAMS: [&str; 5] = ["ssl-ca", "ssl-cert", "ssl-root-cert", "sslcert", "sslrootcert"];
const KEY_PARAMS: [&str; 2] = ["ssl-key", "sslkey"];

/// Why `[store] url` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidStoreUrl(String);

/// Parses `postgres://user:password@host1:5432,host2:5432/database?…`. Returns the options of each server.
pub(crate) fn parse_url(url: &str) -> Result<Vec<PgConnectOptions>, InvalidStoreUrl> {
    let invalid = |text: &str| InvalidStoreUrl(text.to_owned());
    let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it must start with postgres://"))?;
    if rest.contains('#') {
        return Err(invalid("it has a fragment. Write # as %23"));
    }
    let (authority, path_and_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let mut params = Vec::new();
    for param in query.split('&').filter(|param| !param.is_empty()) {
        let (name, value) = param.split_once('=').unwrap_or((param, ""));
        match name {
            TARGET_PARAM if !WRITABLE_TARGETS.contains(&value) => {
                return Err(invalid("target_session_attrs must be read-write or primary, because nodes write"));
            }
            TARGET_PARAM => {}
            "host" | "port" if value.contains(',') => {
                return Err(invalid("several hosts must be in front of the database: postgres://host1,host2/database"));
            }
            _ if is_known(name) => {
                check_files(param)?;
                params.push(param);
            }
            // Possibly the rest of a password.
            _ if query.contains('@') => {
                return Err(invalid("it has an unknown parameter. Write ? in a password as %3F, and @ as %40"));
            }
            _ => return Err(InvalidStoreUrl(unknown_param(name))),
        }
    }
    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.len() > 1 && hosts.contains(&"") {
        return Err(invalid("a host is empty"));
    }
    let user = user.map_or(String::new(), |user| format!("{user}@"));
    let query = if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
    let options =
        hosts.into_iter().map(|host| PgConnectOptions::from_str(&format!("{scheme}://{user}{host}{path}{query}")));
    options.map(|options| options.map_err(|error| InvalidStoreUrl(causes(&error).to_string()))).collect()
}

fn is_known(name: &str) -> bool {
    PARAMS.contains(&name) || name.starts_with("options[") && name.ends_with(']')
}

/// Checks the file of a parameter for TLS. A connection reads it again, and would ignore one without a certificate.
fn check_files(param: &str) -> Result<(), InvalidStoreUrl> {
    let Some((name, value)) = form_urlencoded::parse(param.as_bytes()).next() else { return Ok(()) };
    let is_certificate = CERTIFICATE_PARAMS.contains(&&*name);
    if !is_certificate && !KEY_PARAMS.contains(&&*name) {
        return Ok(());
    }
    // As in sqlx, the value can be the content of the file.
    let pem = if value.trim().starts_with("-----BEGIN") {
        value.as_bytes().to_vec()
    } else {
        std::fs::read(&*value).map_err(|error| InvalidStoreUrl(format!("failed to read {name} {value}: {error}")))?
    };
    let is_valid = if is_certificate {
        let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        certificates.is_ok_and(|certificates| !certificates.is_empty())
    } else {
        PrivateKeyDer::from_pem_slice(&pem).is_ok()
    };
    let wanted = if is_certificate { "certificate" } else { "private key" };
    if is_valid { Ok(()) } else { Err(InvalidStoreUrl(format!("the file of {name} has no valid PEM {wanted}"))) }
}

/// Names the parameter, never its value.
fn unknown_param(name: &str) -> String {
    let known = PARAMS.join(", ");
    format!("{name:?} is not a parameter. Correct or remove it. The parameters are {TARGET_PARAM}, {known}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::address;

    fn addresses(url: &str) -> Result<Vec<String>, String> {
        parse_url(url).map(|servers| servers.iter().map(address).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn url_has_one_server_or_several() {
        let of = |url| addresses(url).expect("valid URL");
        assert_eq!(of("postgres://u:p@h1:5433/d"), ["h1:5433"]);
        assert_eq!(
            of("postgres://u:p,w@h1:5433,h2,[::1]:6/d?target_session_attrs=read-write"),
            ["h1:5433", "h2:5432", "[::1]:6"]
        );
        assert_eq!(of("postgres://h1,h2?target_session_attrs=primary&sslmode=disable"), ["h1:5432", "h2:5432"]);
        assert_eq!(of("postgres:///d?host=/run/postgresql"), ["/run/postgresql"]);
        let servers =
            parse_url("postgres://u:p@h1,h2:5433/d?sslmode=verify-full&options[search_path]=a").expect("valid URL");
        for server in servers {
            assert_eq!((server.get_username(), server.get_database()), ("u", Some("d")));
            assert!(matches!(server.get_ssl_mode(), sqlx::postgres::PgSslMode::VerifyFull));
        }
    }

    #[test]
    fn invalid_url_is_explained_without_its_password() {
        for (url, cause) in [
            ("h1:5432/d", "must start with postgres://"),
            ("postgres://u:secret@h1,h2/d?target_session_attrs=any", "read-write or primary"),
            ("postgres://u:secret@h1,,h2/d", "a host is empty"),
            ("postgres://u:secret@/d?host=h1,h2", "in front of the database"),
            ("postgres://u:secret@h1:x,h2/d", "invalid port number"),
            ("postgres://u:p@h/d?sslmod=secret", "\"sslmod\" is not a parameter"),
            ("postgres://u:p@h/d?sslmode=require&sslpassword=secret", "\"sslpassword\" is not a parameter"),
            ("postgres://u:p@h/d?SSLMODE=verify-full", "\"SSLMODE\" is not a parameter"),
            (
                "postgres://u:secret@h/d?sslrootcert=/missing.pem",
                "failed to read sslrootcert /missing.pem: No such file",
            ),
            ("postgres://u:secret@h/d?ssl-ca=%2Fetc%2Fpasswd", "the file of ssl-ca has no valid PEM certificate"),
            ("postgres://u:secret@h/d?sslkey=/etc/passwd", "the file of sslkey has no valid PEM private key"),
            ("postgres://u:p?secret@h/d", "Write ? in a password as %3F"),
            ("postgres://u:p@h/d?sslmode=require#secret", "Write # as %23"),
        ] {
            let error = addresses(url).expect_err(url);
            assert!(error.contains(cause) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
