//! Stores of a deployment that fail over, or that nodes reach over TLS.

use anyhow::Result;
use ipseity_testkit::certificate::TestCertificate;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::{DATABASE, LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{Deployment, Postgres, Redis, RedisOptions, RedisSentinels};

/// What a topology adds to the stores of a deployment.
#[derive(Default)]
pub(crate) struct StoreParts {
    /// Settings of nodes and commands. They have no fault proxy in front of these stores.
    pub(crate) env: Env,
    pub(crate) sentinels: Option<RedisSentinels>,
    pub(crate) redis_replica: Option<Redis>,
    pub(crate) postgres_standby: Option<Postgres>,
}

impl StoreParts {
    /// Starts a replica of Redis and Sentinels. Nodes are not running yet.
    pub(crate) async fn with_sentinels(deployment: &Deployment, redis: RedisOptions) -> Result<Self> {
        let replica = Redis::start(redis).await?;
        replica.replicate_from(&deployment.redis).await?;
        let sentinels = RedisSentinels::start(&deployment.redis, None).await?;
        let env = Env::from([(LEDGER_URL_ENV.to_owned(), sentinels.url())]);
        Ok(Self { env, sentinels: Some(sentinels), redis_replica: Some(replica), ..Self::default() })
    }

    /// Starts a standby of PostgreSQL. Commits wait for it, so its promotion loses none.
    pub(crate) async fn with_standby(deployment: &Deployment) -> Result<Self> {
        let primary = &deployment.postgres;
        let standby = primary.start_replica(primary.address()).await?;
        // The standby does not have this setting.
        primary.psql(DATABASE, "alter system set synchronous_standby_names = '*'").await?;
        primary.psql(DATABASE, "select pg_reload_conf()").await?;
        let both = format!("{},{}", primary.address(), standby.address());
        let url = primary.node_url(DATABASE).replace(&primary.address().to_string(), &both);
        let env = Env::from([(STORE_URL_ENV.to_owned(), url + "?target_session_attrs=read-write")]);
        Ok(Self { env, postgres_standby: Some(standby), ..Self::default() })
    }

    /// Lets nodes use the port for TLS of Redis.
    pub(crate) fn with_tls(deployment: &Deployment, certificate: &TestCertificate) -> Self {
        let url = format!("rediss://localhost:{}", deployment.redis.tls_port());
        let files = [
            ("IPSEITY__LEDGER__CA_FILE", &certificate.ca_file),
            ("IPSEITY__LEDGER__CERTIFICATE_FILE", &certificate.chain_file),
            ("IPSEITY__LEDGER__PRIVATE_KEY_FILE", &certificate.private_key_file),
        ];
        let files = files.map(|(name, file)| (name.to_owned(), file.display().to_string()));
        Self { env: files.into_iter().chain([(LEDGER_URL_ENV.to_owned(), url)]).collect(), ..Self::default() }
    }
}
