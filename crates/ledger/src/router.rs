//! Finds the server to call: the owner of a slot in a cluster, the primary among several addresses, or the only one there is.
//!
//! Deliberately absent: replicas. They know less than their primary, and a verdict must know it all.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::link::{Link, Session};
use crate::map::{Map, View};
use crate::outage::LedgerError;
use crate::slot::Slot;

/// Time to find anybody who answers, for whoever still waits for it.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// How long the others are waited for once one has answered: a frozen server must not hold up what the others know.
const OTHERS_MAX: Duration = Duration::from_millis(200);

pub(crate) struct Router {
    seeds: Vec<Arc<Link>>,
    /// The seeds, and the servers that a cluster has told of.
    links: StdMutex<Vec<Arc<Link>>>,
    map: ArcSwapOption<Map>,
    /// Held by the one that learns the map; the others wait for its outcome.
    learning: Arc<Mutex<()>>,
}

impl Router {
    /// Takes addresses that are separated by commas.
    pub(crate) fn new(urls: &str) -> Result<Self, LedgerError> {
        let seed = |url: &str| Ok(Arc::new(Link::new(url.trim().into_connection_info()?)?));
        let seeds: Vec<_> = urls.split(',').map(seed).collect::<Result<_, LedgerError>>()?;
        let links = StdMutex::new(seeds.clone());
        Ok(Self { seeds, links, map: ArcSwapOption::empty(), learning: Arc::default() })
    }

    /// The owner of a slot, and a session with it.
    pub(crate) async fn find(
        self: &Arc<Self>,
        slot: Slot,
        deadline: Instant,
    ) -> Result<(Arc<Link>, Arc<Session>), LedgerError> {
        if let Some(map) = &*self.map.load()
            && let Some(session) = map.owner(slot).standing()
        {
            return Ok((Arc::clone(map.owner(slot)), session));
        }
        let link = Arc::clone(self.map(deadline).await?.owner(slot));
        let session = link.session(deadline).await?;
        Ok((link, session))
    }

    /// All that own a slot, and a session with each.
    pub(crate) async fn find_all(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Vec<(Arc<Link>, Arc<Session>)>, LedgerError> {
        let mut found = Vec::new();
        for link in self.map(deadline).await?.owners() {
            let session = link.session(deadline).await?;
            found.push((link, session));
        }
        Ok(found)
    }

    /// The link to an address that a server of the cluster has named.
    pub(crate) fn link_to(&self, address: &ConnectionAddr, teller: &Link) -> Result<Arc<Link>, LedgerError> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = links.iter().find(|link| link.address() == address) {
            return Ok(Arc::clone(known));
        }
        let link = Arc::new(teller.beside(address.clone())?);
        links.push(Arc::clone(&link));
        Ok(link)
    }

    /// Learns the map again, behind the back of the calls: what one of them met says that it may be old.
    pub(crate) fn doubt(self: &Arc<Self>) {
        let alone = self.links.lock().unwrap_or_else(PoisonError::into_inner).len() == 1;
        if alone || self.fresh().is_some() {
            return;
        }
        if let Ok(turn) = Arc::clone(&self.learning).try_lock_owned() {
            tokio::spawn(Arc::clone(self).learn(turn));
        }
    }

    async fn map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Map>, LedgerError> {
        if let Some(map) = self.fresh() {
            return Ok(map);
        }
        let learnt = async {
            let turn = Arc::clone(&self.learning).lock_owned().await;
            if let Some(map) = self.fresh() {
                return Ok(map);
            }
            // A task of its own: it goes on when whoever waits for it has left, and the next one finds it done.
            tokio::spawn(Arc::clone(self).learn(turn)).await.unwrap_or(Err(LedgerError::Unreachable))
        };
        Box::pin(timeout_at(deadline, learnt)).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    fn fresh(&self) -> Option<Arc<Map>> {
        self.map.load_full().filter(|map| map.is_fresh())
    }

    /// Asks all servers at once who owns what, and lets go of those that own nothing.
    async fn learn(self: Arc<Self>, _turn: OwnedMutexGuard<()>) -> Result<Arc<Map>, LedgerError> {
        let asked = self.links.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let told = ask_all(&asked).await?;
        let newest = told.iter().filter_map(|told| Some((told, told.view.as_ref()?)));
        let map = if let Some((told, view)) = newest.max_by_key(|(_, view)| view.epoch) {
            let teller = Arc::clone(&asked[told.place]);
            Map::of_cluster(Arc::clone(&teller), view, |address| self.link_to(&address, &teller))?
        } else {
            // The first primary in the list; if there is none, the first server, which says so to whoever calls it.
            let first = told.iter().min_by_key(|told| (!told.is_primary, told.place));
            Map::of_one(Arc::clone(&asked[first.ok_or(LedgerError::Unreachable)?.place]))
        };
        let map = Arc::new(map);
        self.map.store(Some(Arc::clone(&map)));
        self.keep_only(&map.owners());
        Ok(map)
    }

    pub(crate) fn hang_up(&self) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|link| link.let_go());
    }

    /// A replica that was asked before it was promoted would be known by what it was then.
    fn keep_only(&self, owners: &[Arc<Link>]) {
        let is_among = |links: &[Arc<Link>], link: &Arc<Link>| links.iter().any(|other| Arc::ptr_eq(other, link));
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.iter().filter(|link| !is_among(owners, link)).for_each(|link| link.let_go());
        links.retain(|link| is_among(owners, link) || is_among(&self.seeds, link));
    }
}

/// What a server says of itself and its cluster, if it is of one.
struct Told {
    place: usize,
    is_primary: bool,
    view: Option<View>,
}

async fn ask_all(links: &[Arc<Link>]) -> Result<Vec<Told>, LedgerError> {
    let mut asked: JoinSet<_> =
        links.iter().cloned().enumerate().map(|(place, link)| async move { ask(place, &link).await }).collect();
    let mut deadline = Instant::now() + ANSWER_MAX;
    let (mut told, mut failure) = (Vec::new(), LedgerError::Unreachable);
    while let Ok(Some(answer)) = timeout_at(deadline, asked.join_next()).await {
        match answer.unwrap_or(Err(LedgerError::Unreachable)) {
            Ok(answer) => {
                told.push(answer);
                deadline = deadline.min(Instant::now() + OTHERS_MAX);
            }
            Err(error) => failure = error,
        }
    }
    if told.is_empty() { Err(failure) } else { Ok(told) }
}

async fn ask(place: usize, link: &Arc<Link>) -> Result<Told, LedgerError> {
    let session = match link.standing() {
        Some(session) => {
            let renewed = link.identify_again(&session).await.inspect_err(|_| session.give_up())?;
            renewed.unwrap_or(session)
        }
        None => link.session(Instant::now() + ANSWER_MAX).await?,
    };
    let view = if session.identity.is_cluster { Some(View::ask(&session).await?) } else { None };
    Ok(Told { place, is_primary: session.identity.is_primary, view })
}
