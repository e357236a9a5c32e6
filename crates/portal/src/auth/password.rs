//! Password hashing: argon2id on a few dedicated low-priority threads, so that a flood of sign-ins does not take CPU or memory
//! from lookups. Owners have a separate queue and threads, so that the flood does not prevent them from signing in.

use std::cell::LazyCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use subtle::ConstantTimeEq;
use tokio::sync::{mpsc, oneshot};

use crate::auth::common_passwords::is_common;
use crate::permits::Permits;

/// OWASP's parameters for argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const HASH_BYTES: usize = 32;
/// Maximum wait for a hash. After that the sign-in fails as busy.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(3);
/// Lookups have priority: at this niceness a thread gets about a tenth of the CPU time of a normal thread.
const NICENESS: i32 = 10;

/// Minimum length of a password, in characters.
pub(crate) const PASSWORD_CHARS_MIN: usize = 10;
/// Maximum length of a password, in bytes; bounds the cost of hashing.
const PASSWORD_BYTES_MAX: usize = 1024;

/// A password of acceptable length. No `Debug`, so that it cannot be logged by accident.
pub(crate) struct Password(String);

impl Password {
    /// Parses a password for a new account or a password change. The email must not be a part of it.
    pub(crate) fn parse_new(text: &str, email: &str) -> Result<Self, &'static str> {
        if text.chars().count() < PASSWORD_CHARS_MIN {
            return Err("Use at least 10 characters. A few words are easy to remember.");
        }
        let password = Self::parse(text).ok_or("This password is too long. The maximum is 1,024 bytes.")?;
        if is_common(text, email) {
            return Err("This password is easy to guess. Avoid common words, sequences and your email address.");
        }
        Ok(password)
    }

    /// Parses a password for sign-in.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        (text.len() <= PASSWORD_BYTES_MAX).then(|| Self(text.to_owned()))
    }
}

/// The result of a verification.
pub(crate) enum Verification {
    Wrong,
    Correct,
    Outdated(OutdatedHash),
}

impl Verification {
    pub(crate) const fn is_correct(&self) -> bool {
        !matches!(self, Self::Wrong)
    }
}

/// A correct password, and its hash with lower parameters than new hashes have.
pub(crate) struct OutdatedHash {
    pub(crate) password: Password,
    pub(crate) hash: String,
}

/// The password queue is full, or the wait was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PasswordQueueFull;

/// Who waits for a password thread.
#[derive(Clone, Copy)]
pub(crate) enum Requester {
    /// Anyone.
    Stranger,
    /// A signed-in member, a known browser or the holder of an emailed link, with the digest of the account's email.
    Owner([u8; 32]),
}

enum PasswordJob {
    Hash(Password, oneshot::Sender<String>),
    Verify(Password, String, oneshot::Sender<Verification>),
}

/// The pool of hashing threads.
pub(crate) struct PasswordPool {
    stranger_jobs: mpsc::Sender<PasswordJob>,
    owner_jobs: mpsc::Sender<PasswordJob>,
    /// One password per account waits in the owners' queue, so that a member cannot fill it. Others wait with strangers.
    owner_permits: Permits<[u8; 32]>,
    /// Verified for emails without an account, so that both cases take the same time.
    dummy_hash: String,
}

impl PasswordPool {
    /// Starts threads for strangers and for owners. Each of the two queues holds at most `queue_max` passwords.
    pub(crate) fn start(stranger_threads: usize, owner_threads: usize, queue_max: usize) -> Self {
        Self {
            stranger_jobs: start_workers(stranger_threads, queue_max),
            owner_jobs: start_workers(owner_threads, queue_max),
            owner_permits: Permits::new(1),
            dummy_hash: Argon2Hasher::new().hash(&Password("a password that no account has".to_owned())),
        }
    }

    /// Hashes a password.
    pub(crate) async fn hash(&self, requester: Requester, password: Password) -> Result<String, PasswordQueueFull> {
        let (reply_sender, reply) = oneshot::channel();
        self.submit(requester, PasswordJob::Hash(password, reply_sender), reply).await
    }

    /// Verifies a password. Without a hash it is wrong, after the same time.
    pub(crate) async fn verify(
        &self,
        requester: Requester,
        password: Password,
        hash: Option<String>,
    ) -> Result<Verification, PasswordQueueFull> {
        let has_hash = hash.is_some();
        let (reply_sender, reply) = oneshot::channel();
        let job = PasswordJob::Verify(password, hash.unwrap_or_else(|| self.dummy_hash.clone()), reply_sender);
        let verification = self.submit(requester, job, reply).await?;
        Ok(if has_hash { verification } else { Verification::Wrong })
    }

    async fn submit<T>(
        &self,
        requester: Requester,
        job: PasswordJob,
        reply: oneshot::Receiver<T>,
    ) -> Result<T, PasswordQueueFull> {
        let permit = match requester {
            Requester::Stranger => None,
            Requester::Owner(account) => self.owner_permits.try_acquire(account),
        };
        let jobs = if permit.is_some() { &self.owner_jobs } else { &self.stranger_jobs };
        jobs.try_send(job).map_err(|_| PasswordQueueFull)?;
        tokio::time::timeout(QUEUE_TIMEOUT, reply).await.map_err(|_| PasswordQueueFull)?.map_err(|_| PasswordQueueFull)
    }
}

/// Starts threads that share a queue.
fn start_workers(threads: usize, queue_max: usize) -> mpsc::Sender<PasswordJob> {
    let (jobs, job_receiver) = mpsc::channel(queue_max.max(1));
    let job_receiver = Arc::new(Mutex::new(job_receiver));
    for _ in 0..threads.max(1) {
        let job_receiver = Arc::clone(&job_receiver);
        thread::spawn(move || run_worker(&job_receiver));
    }
    jobs
}

fn run_worker(jobs: &Mutex<mpsc::Receiver<PasswordJob>>) {
    // If the system denies it, the number of threads still limits the CPU time.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    // Its memory is allocated for the first password.
    let mut hasher = LazyCell::new(Argon2Hasher::new);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        match job {
            Some(PasswordJob::Hash(password, reply_sender)) if !reply_sender.is_closed() => {
                let _ = reply_sender.send(hasher.hash(&password));
            }
            Some(PasswordJob::Verify(password, hash, reply_sender)) if !reply_sender.is_closed() => {
                let _ = reply_sender.send(hasher.verify(password, hash));
            }
            // The requester no longer waits.
            Some(PasswordJob::Hash(..) | PasswordJob::Verify(..)) => {}
            None => return,
        }
    }
}

/// argon2 with reused memory. Allocating it for each password would make the allocator retain several times as much.
struct Argon2Hasher {
    argon2: Argon2<'static>,
    memory: Vec<Block>,
}

impl Argon2Hasher {
    fn new() -> Self {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, None).expect("argon2 parameters are valid");
        let memory = vec![Block::default(); params.block_count()];
        Self { argon2: Argon2::new(Algorithm::Argon2id, Version::V0x13, params), memory }
    }

    fn hash(&mut self, password: &Password) -> String {
        let salt = Salt::generate();
        let hash =
            argon2_hash(&self.argon2, &mut self.memory, password, &salt).and_then(|hash| Output::new(&hash).ok());
        let phc_hash = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(self.argon2.params()).expect("argon2 parameters can be encoded"),
            salt: Some(salt),
            hash: Some(hash.expect("password and salt lengths are valid")),
        };
        phc_hash.to_string()
    }

    /// Verifies a password with the parameters of its hash. Fails if they need more memory than this hasher has.
    fn verify(&mut self, password: Password, hash: String) -> Verification {
        match self.matching_params(&password, &hash) {
            None => Verification::Wrong,
            Some(params) if params.m_cost() < MEMORY_KIB || params.t_cost() < PASSES => {
                Verification::Outdated(OutdatedHash { password, hash })
            }
            Some(_) => Verification::Correct,
        }
    }

    /// The parameters of a hash, if the password matches it.
    fn matching_params(&mut self, password: &Password, hash: &str) -> Option<Params> {
        let stored = PasswordHash::new(hash).ok()?;
        let (salt, hash, params) = (stored.salt?, stored.hash?, Params::try_from(&stored).ok()?);
        if params.block_count() > self.memory.len() {
            return None;
        }
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
        let computed = argon2_hash(&argon2, &mut self.memory, password, &salt)?;
        bool::from(computed.as_slice().ct_eq(hash.as_bytes())).then_some(params)
    }
}

fn argon2_hash(
    argon2: &Argon2<'_>,
    memory: &mut [Block],
    password: &Password,
    salt: &[u8],
) -> Option<[u8; HASH_BYTES]> {
    let mut hash = [0; HASH_BYTES];
    argon2.hash_password_into_with_memory(password.0.as_bytes(), salt, &mut hash, memory).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMAIL: &str = "ada@example.com";
    const STRANGER: Requester = Requester::Stranger;

    fn password(text: &str) -> Password {
        Password::parse(text).expect("password length is valid")
    }

    /// A hash with the given parameters.
    fn hash_with_params(memory_kib: u32, passes: u32, text: &str) -> String {
        let params = Params::new(memory_kib, passes, LANES, None).expect("argon2 parameters are valid");
        let memory = vec![Block::default(); params.block_count()];
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        Argon2Hasher { argon2, memory }.hash(&password(text))
    }

    #[tokio::test]
    async fn hash_verifies_only_its_password() {
        let passwords = PasswordPool::start(1, 1, 4);
        let hash = passwords
            .hash(STRANGER, Password::parse_new("correct horse", EMAIL).expect("password length is valid"))
            .await
            .expect("queue has capacity");
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let verify =
            async |text, hash| passwords.verify(STRANGER, password(text), hash).await.expect("queue has capacity");
        assert!(matches!(verify("correct horse", Some(hash.clone())).await, Verification::Correct));
        assert!(matches!(verify("correct mouse", Some(hash)).await, Verification::Wrong));
        assert!(matches!(verify("a password that no account has", None).await, Verification::Wrong));
    }

    #[test]
    fn hash_with_lower_parameters_is_outdated_if_the_password_is_correct() {
        let mut hasher = Argon2Hasher::new();
        for (memory_kib, passes) in [(MEMORY_KIB / 2, PASSES), (MEMORY_KIB, PASSES - 1), (8, 1)] {
            let old_hash = hash_with_params(memory_kib, passes, "correct horse");
            assert!(matches!(hasher.verify(password("correct mouse"), old_hash.clone()), Verification::Wrong));
            let Verification::Outdated(outdated) = hasher.verify(password("correct horse"), old_hash.clone()) else {
                panic!("{old_hash} is not outdated");
            };
            assert_eq!(outdated.hash, old_hash);
            let upgraded = hasher.hash(&outdated.password);
            assert!(matches!(hasher.verify(password("correct horse"), upgraded), Verification::Correct));
        }
        // A newer version may have written it. It must not be replaced by a weaker one.
        let higher = hash_with_params(MEMORY_KIB, PASSES + 1, "correct horse");
        assert!(matches!(hasher.verify(password("correct horse"), higher), Verification::Correct));
    }

    #[test]
    fn password_length_is_limited() {
        let is_accepted = |text: &str| Password::parse_new(text, EMAIL).is_ok();
        assert!(!is_accepted("nine char") && !is_accepted(&"correct horse ".repeat(80)));
        assert!(is_accepted("ten chars!") && is_accepted("ünïcödé wörds"));
    }

    #[tokio::test]
    async fn full_password_queue_rejects_immediately() {
        let passwords = PasswordPool::start(1, 1, 1);
        let requests = (0..20).map(|_| passwords.hash(STRANGER, password("correct horse")));
        let outcomes = futures_util::future::join_all(requests).await;
        let rejected = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        assert!((17..=19).contains(&rejected), "{rejected} rejected");
    }

    #[tokio::test]
    async fn owner_is_served_while_strangers_fill_the_queue() {
        let passwords = PasswordPool::start(1, 1, 4);
        let hash = passwords.hash(STRANGER, password("correct horse")).await.expect("queue has capacity");
        let strangers = futures_util::future::join_all((0..20).map(|_| passwords.hash(STRANGER, password("a guess"))));
        let owner = passwords.verify(Requester::Owner([1; 32]), password("correct horse"), Some(hash));
        let (strangers, owner) = tokio::join!(strangers, owner);
        assert!(strangers.iter().any(Result::is_err), "the flood is too small");
        assert!(owner.is_ok_and(|verification| verification.is_correct()));
    }

    #[tokio::test]
    async fn account_cannot_fill_the_queue_of_owners() {
        let passwords = PasswordPool::start(1, 1, 4);
        let flood = futures_util::future::join_all(
            (0..20).map(|_| passwords.hash(Requester::Owner([1; 32]), password("a guess"))),
        );
        let other = passwords.hash(Requester::Owner([2; 32]), password("correct horse"));
        let (flood, other) = tokio::join!(flood, other);
        assert!(flood.iter().any(Result::is_err), "the flood is too small");
        assert!(other.is_ok());
    }
}
