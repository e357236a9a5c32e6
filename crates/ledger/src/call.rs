//! Calls: each to the owner of its slot, within one time limit, and sent on only when the store says that it took nothing.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, FromRedisValue, Pipeline, RedisFuture, RedisResult, ScriptInvocation, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ledger::Ledger;
use crate::link::{Link, Session};
use crate::map::beside;
use crate::outage::{LedgerError, Way};
use crate::sheaf::{Charge, ask};
use crate::slot::Slot;

/// A slot on its way is served again within milliseconds.
const PAUSE: Duration = Duration::from_millis(2);
/// A call that begins with less time than this left would likely go unanswered, and nobody could say any more that nothing was applied.
const LAST_CALL: Duration = Duration::from_millis(10);

/// A call under way: on which session, and until when.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) session: Arc<Session>,
    link: Arc<Link>,
    slot: Slot,
    /// The session's server does not own the slot yet, and has to be told that the call comes from the one that does.
    asking: bool,
    sent_on: bool,
    deadline: Instant,
}

impl Ledger {
    /// Starts a call: one time limit for all of it, connecting included.
    pub(crate) async fn begin(&self, slot: Slot) -> Result<Attempt, LedgerError> {
        self.begin_until(slot, Instant::now() + self.timeout).await
    }

    async fn begin_until(&self, slot: Slot, deadline: Instant) -> Result<Attempt, LedgerError> {
        let (link, session) = self.router.find(slot, deadline).await?;
        Ok(Attempt { session, link, slot, asking: false, sent_on: false, deadline })
    }

    /// Asks a store whose record bears another stamp who it is: either the record is old, or the store changed its identity under this
    /// connection (a first replica does that), and the call is worth another try.
    pub(crate) async fn renew(&self, attempt: &mut Attempt) -> Result<bool, LedgerError> {
        let renewed = self.within(attempt, attempt.link.identify_again(&attempt.session)).await?;
        Ok(renewed.map(|session| attempt.session = session).is_some())
    }

    /// Calls a script, which is made for the stamp of the store that it goes to.
    pub(crate) async fn call<'a>(
        &self,
        attempt: &mut Attempt,
        script: impl Fn(&str) -> ScriptInvocation<'a>,
    ) -> Result<Value, LedgerError> {
        loop {
            let (call, mut line) = (script(&attempt.session.identity.stamp), Line::of(attempt));
            let outcome = self.within(attempt, async { Ok(call.invoke_async(&mut line).await?) }).await;
            match outcome {
                Ok(value) => return Ok(value),
                Err(refused) => self.send_on(attempt, refused).await?,
            }
        }
    }

    /// Charges, together with whoever else does so now; gives the verdict as charge.lua wrote it.
    pub(crate) async fn charge_on(&self, attempt: &mut Attempt, charge: Charge) -> Result<Vec<u8>, LedgerError> {
        loop {
            let session = &attempt.session;
            let outcome = if attempt.asking {
                let mut line = Line::of(attempt);
                // In memory of its own: room for it would be made, and moved, for every charge.
                let verdicts = Box::pin(self.within(attempt, ask(&mut line, &session.identity, &[charge]))).await;
                verdicts.map(|mut verdicts| verdicts.swap_remove(0))
            } else {
                self.heed(attempt, session.sheaves.charge(charge, attempt.deadline).await)
            };
            match outcome {
                Ok(verdict) => return Ok(verdict),
                Err(refused) => Box::pin(self.send_on(attempt, refused)).await?,
            }
        }
    }

    /// Sends a command that names one slot only.
    pub(crate) async fn command<T: FromRedisValue>(&self, slot: Slot, command: &Cmd) -> Result<T, LedgerError> {
        self.command_on(&mut self.begin(slot).await?, command).await
    }

    async fn command_on<T: FromRedisValue>(&self, attempt: &mut Attempt, command: &Cmd) -> Result<T, LedgerError> {
        loop {
            let mut line = Line::of(attempt);
            let outcome = self.within(attempt, async { Ok(command.query_async(&mut line).await?) }).await;
            match outcome {
                Ok(value) => return Ok(value),
                Err(refused) => self.send_on(attempt, refused).await?,
            }
        }
    }

    /// Reads from many slots, in one go for each owner; the answers come in the order asked.
    pub(crate) async fn gather<T: FromRedisValue>(&self, reads: &[(Slot, Cmd)]) -> Result<Vec<T>, LedgerError> {
        let deadline = Instant::now() + self.timeout;
        let mut owners: Vec<(Attempt, Vec<usize>)> = Vec::new();
        for (place, (slot, _)) in reads.iter().enumerate() {
            let attempt = self.begin_until(*slot, deadline).await?;
            match owners.iter_mut().find(|(known, _)| Arc::ptr_eq(&known.session, &attempt.session)) {
                Some((_, places)) => places.push(place),
                None => owners.push((attempt, vec![place])),
            }
        }
        let mut found = Vec::with_capacity(reads.len());
        for (attempt, places) in owners {
            let mut pipe = redis::pipe();
            pipe.ignore_errors();
            for &place in &places {
                pipe.add_command(reads[place].1.clone());
            }
            let mut line = Line::of(&attempt);
            let replies: Vec<RedisResult<T>> =
                self.within(&attempt, async { Ok(pipe.query_async(&mut line).await?) }).await?;
            for (place, reply) in places.into_iter().zip(replies) {
                let value = match reply {
                    Ok(value) => value,
                    Err(refused) => {
                        let (slot, command) = &reads[place];
                        let mut alone = Attempt { slot: *slot, ..attempt.clone() };
                        self.send_on(&mut alone, refused.into()).await?;
                        self.command_on(&mut alone, command).await?
                    }
                };
                found.push((place, value));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, value)| value).collect())
    }

    /// Whether every owner of a slot answers.
    ///
    /// # Errors
    /// When one does not, in time.
    pub async fn check(&self) -> Result<(), LedgerError> {
        let deadline = Instant::now() + self.timeout;
        for (link, session) in self.router.find_all(deadline).await? {
            let owner = Attempt { session, link, slot: Slot(0), asking: false, sent_on: false, deadline };
            let mut line = Line::of(&owner);
            self.within(&owner, async { Ok(redis::cmd("PING").exec_async(&mut line).await?) }).await?;
        }
        Ok(())
    }

    /// Goes where the store sends a call that it did not take; a call that may have been applied goes nowhere.
    async fn send_on(&self, attempt: &mut Attempt, refused: LedgerError) -> Result<(), LedgerError> {
        let Some(way) = refused.way() else { return Err(refused) };
        if attempt.sent_on || matches!(way, Way::Later) {
            if Instant::now() + PAUSE + LAST_CALL >= attempt.deadline {
                return Err(refused);
            }
            sleep(PAUSE).await;
        }
        attempt.sent_on = true;
        attempt.asking = matches!(way, Way::Asked(..));
        (attempt.link, attempt.session) = match way {
            Way::Moved(host, port) | Way::Asked(host, port) => {
                let address = beside(attempt.link.address(), &host, port);
                let link = self.router.link_to(&address, &attempt.link)?;
                let session = link.session(attempt.deadline).await?;
                (link, session)
            }
            Way::Later => self.router.find(attempt.slot, attempt.deadline).await?,
        };
        Ok(())
    }

    /// Bounds a call in time, and heeds how it ended.
    async fn within<T>(
        &self,
        attempt: &Attempt,
        call: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let outcome = timeout_at(attempt.deadline, call).await.unwrap_or(Err(LedgerError::Unanswered));
        self.heed(attempt, outcome)
    }

    /// Lets a session go that proved of no more use.
    fn heed<T>(&self, attempt: &Attempt, outcome: Result<T, LedgerError>) -> Result<T, LedgerError> {
        if let Err(error) = &outcome {
            if error.ends_session() {
                attempt.session.give_up();
            }
            if error.casts_doubt() {
                self.router.doubt();
            }
        }
        outcome
    }
}

/// A session's connection as one attempt uses it.
struct Line {
    connection: MultiplexedConnection,
    asking: bool,
}

impl Line {
    fn of(attempt: &Attempt) -> Self {
        Self { connection: attempt.session.connection.clone(), asking: attempt.asking }
    }
}

impl ConnectionLike for Line {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if !self.asking {
            return self.connection.req_packed_command(command);
        }
        // ASKING holds for the next command of its connection, which is shared: both have to go out together.
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().add_command(command.clone());
        Box::pin(async move {
            let (reply,) = both.query_async(&mut self.connection).await?;
            Ok(reply)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}
