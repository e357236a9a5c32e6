//! Finds the primary through Sentinel, which promotes a replica if the primary is down.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::LedgerError;
use crate::redis::slot_map::sibling_addr;
use crate::redis::tls::RedisTls;

const SCHEME_SUFFIX: &str = "+sentinel";
const DEFAULT_PORT: u16 = 26_379;
/// Time limit for the answer of a Sentinel.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the others after the first answer. It may be from one that a network failure separates.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(200);

/// The Sentinels of a primary.
pub(crate) struct Sentinels {
    clients: Vec<Client>,
    /// The name that they know the primary by.
    name: String,
    /// Credentials, database and encryption of the servers. The address is that of the first Sentinel.
    pub(crate) server: ConnectionInfo,
}

/// What a Sentinel answers.
#[derive(Clone, Debug)]
pub struct SentinelInfo {
    /// Host and port.
    pub address: String,
    /// Host and port of the primary that it reports, or why there is none.
    pub primary: Result<String, String>,
}

/// A primary, as a Sentinel reports it.
struct ReportedPrimary {
    host: String,
    port: u16,
    /// Rises with every failover. The highest epoch is the newest.
    epoch: u64,
}

impl Sentinels {
    /// Whether a URL names Sentinels.
    pub(crate) fn is_url(url: &str) -> bool {
        url.split_once("://").is_some_and(|(scheme, _)| scheme.trim().ends_with(SCHEME_SUFFIX))
    }

    /// Parses `redis+sentinel://user:password@host1:26379,host2:26379/NAME/0?sentinel_user=…&sentinel_password=…`.
    pub(crate) fn parse(url: &str, tls: &RedisTls) -> Result<Self, LedgerError> {
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let scheme = scheme.strip_suffix(SCHEME_SUFFIX).unwrap_or(scheme);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) =
            rest.split_once('/').ok_or_else(|| invalid("the name of the primary is missing: …/NAME"))?;
        let (user, hosts) =
            authority.rsplit_once('@').map_or((String::new(), authority), |(user, hosts)| (format!("{user}@"), hosts));
        let (name, database) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() {
            return Err(invalid("the name of the primary is missing: …/NAME"));
        }
        let (mut sentinel_user, mut sentinel_password) = ("", None);
        for param in query.split('&').filter(|param| !param.is_empty()) {
            match param.split_once('=') {
                Some(("sentinel_user", value)) => sentinel_user = value,
                Some(("sentinel_password", value)) => sentinel_password = Some(value),
                _ => return Err(invalid("only the parameters sentinel_user and sentinel_password are known")),
            }
        }
        let credentials = sentinel_password.map_or(String::new(), |password| format!("{sentinel_user}:{password}@"));
        let mut clients = Vec::new();
        let mut server = None;
        for host in hosts.split(',').map(str::trim) {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let address = if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") };
            let sentinel = format!("{scheme}://{credentials}{address}").into_connection_info()?;
            clients.push(tls.open_client(sentinel)?);
            if server.is_none() {
                server = Some(format!("{scheme}://{user}{address}/{database}").into_connection_info()?);
            }
        }
        let server = server.ok_or_else(|| invalid("it has no host"))?;
        Ok(Self { clients, name: name.to_owned(), server })
    }

    /// What each Sentinel answers.
    pub(crate) async fn inspect(&self) -> Vec<SentinelInfo> {
        let mut infos = Vec::new();
        for client in &self.clients {
            let answer = timeout(ANSWER_TIMEOUT, query_primary(client, &self.name)).await;
            let primary = match answer {
                Ok(Ok(primary)) => Ok(format!("{}:{}", primary.host, primary.port)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_elapsed) => Err("no answer".to_owned()),
            };
            infos.push(SentinelInfo { address: address(client), primary });
        }
        infos
    }

    /// The address of the primary. The Sentinel that has seen the latest failover decides.
    pub(crate) async fn find_primary(&self) -> Result<ConnectionAddr, LedgerError> {
        let mut queries: JoinSet<_> = JoinSet::new();
        for (index, client) in self.clients.iter().enumerate() {
            let (client, name) = (client.clone(), self.name.clone());
            queries.spawn(async move { (index, query_primary(&client, &name).await) });
        }
        let mut deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut newest: Option<(usize, ReportedPrimary)> = None;
        let mut causes: Vec<String> = vec!["no answer".to_owned(); self.clients.len()];
        while let Ok(Some(query)) = timeout_at(deadline, queries.join_next()).await {
            match query {
                Ok((index, Ok(primary))) => {
                    deadline = deadline.min(Instant::now() + STRAGGLER_TIMEOUT);
                    if newest.as_ref().is_none_or(|(_, newest)| primary.epoch > newest.epoch) {
                        newest = Some((index, primary));
                    }
                }
                Ok((index, Err(error))) => causes[index] = error.to_string(),
                Err(_panicked) => {}
            }
        }
        let Some((index, primary)) = newest else {
            let causes = self.clients.iter().zip(causes).map(|(client, cause)| format!("{}: {cause}", address(client)));
            let causes = causes.collect::<Vec<_>>().join(", ");
            return Err(LedgerError::NoPrimary(format!("no Sentinel reports {:?} ({causes})", self.name)));
        };
        let sentinel = self.clients[index].get_connection_info().addr();
        Ok(sibling_addr(sentinel, &primary.host, primary.port))
    }
}

fn invalid(cause: &'static str) -> LedgerError {
    RedisError::from((ErrorKind::InvalidClientConfig, cause)).into()
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

async fn query_primary(client: &Client, name: &str) -> Result<ReportedPrimary, RedisError> {
    let mut conn = client.get_multiplexed_async_connection().await?;
    let fields: HashMap<String, String> = redis::cmd("SENTINEL").arg("MASTER").arg(name).query_async(&mut conn).await?;
    let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    let number = |name: &'static str| {
        field(name)
            .parse::<u64>()
            .map_err(|_| RedisError::from((ErrorKind::UnexpectedReturnType, "not a number", name.to_owned())))
    };
    let port = u16::try_from(number("port")?).unwrap_or_default();
    Ok(ReportedPrimary { host: field("ip").to_owned(), port, epoch: number("config-epoch")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Sentinels, LedgerError> {
        Sentinels::parse(url, &RedisTls::default())
    }

    #[test]
    fn url_names_sentinels_primary_database_and_both_passwords() {
        let url = "redis+sentinel://u:p%2Cw@s1,s2:26380/main/3?sentinel_password=secret";
        assert!(Sentinels::is_url(url) && !Sentinels::is_url("redis://h:1"));
        let sentinels = parse(url).expect("valid URL");
        assert_eq!(sentinels.clients.iter().map(address).collect::<Vec<_>>(), ["s1:26379", "s2:26380"]);
        assert_eq!(sentinels.name, "main");
        let settings = sentinels.server.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("u"), Some("p,w"), 3));
        let settings = sentinels.clients[1].get_connection_info().redis_settings();
        assert_eq!((settings.username(), settings.password()), (None, Some("secret")));
        let tls = parse("rediss+sentinel://s1/main").expect("valid URL");
        assert!(matches!(tls.server.addr(), ConnectionAddr::TcpTls { .. }));
    }

    #[test]
    fn incomplete_url_is_rejected() {
        for url in
            ["redis+sentinel://s1", "redis+sentinel://s1/", "redis+sentinel:///main", "redis+sentinel://s1/main?db=1"]
        {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
