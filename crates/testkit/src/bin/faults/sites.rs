//! Home nodes and remote nodes of a deployment.

use anyhow::Result;
use ipseity_testkit::deployment::DATABASE;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::sites::remote_env;
use ipseity_testkit::{Deployment, FaultProxy, ReservedPort, TestDir};

use crate::fixture::{NODES, REMOTE_NODES};

#[derive(Default)]
pub(crate) struct SiteParts {
    /// Settings of each node.
    pub(crate) node_env: Vec<Env>,
    pub(crate) proxies: Vec<FaultProxy>,
    pub(crate) home_ports: Vec<ReservedPort>,
    /// Files of the sites.
    pub(crate) dir: Option<TestDir>,
}

impl SiteParts {
    /// Starts nodes with both stores only, with additional settings.
    pub(crate) async fn without_remote_nodes(deployment: &mut Deployment, env: &Env) -> Result<Self> {
        let parts = Self { node_env: vec![env.clone(); NODES], ..Self::default() };
        parts.start_nodes(deployment).await?;
        Ok(parts)
    }

    async fn start_nodes(&self, deployment: &mut Deployment) -> Result<()> {
        for env in &self.node_env {
            let node = deployment.start_node(env).await?;
            deployment.nodes.push(node);
        }
        Ok(())
    }

    /// Starts home nodes, and then remote nodes that use them.
    pub(crate) async fn start(deployment: &mut Deployment) -> Result<Self> {
        let dir = TestDir::create()?;
        let mut parts = Self::default();
        for _ in 0..NODES {
            let port = ReservedPort::reserve_free()?;
            parts.node_env.push(deployment.home_env(port.address()));
            parts.home_ports.push(port);
        }
        for number in 0..REMOTE_NODES {
            let site = format!("site{number}");
            let files = dir.path().join(&site);
            deployment.add_site(&site, &files, &deployment.postgres.url(DATABASE)).await?;
            let links = parts.home_ports.iter().map(|port| FaultProxy::open(port.address()));
            let links = links.collect::<Result<Vec<_>>>()?;
            let mut env = remote_env(&files, &links.iter().map(FaultProxy::address).collect::<Vec<_>>());
            let is_optimistic = number + 1 == REMOTE_NODES;
            env.insert("IPSEITY__HOME__OPTIMISTIC".to_owned(), is_optimistic.to_string());
            parts.node_env.push(env);
            parts.proxies.extend(links);
        }
        parts.dir = Some(dir);
        parts.start_nodes(deployment).await?;
        Ok(parts)
    }
}
