//! Passwords: argon2id on threads of their own, few and of low priority, so that a flood of sign-ins takes neither the processor nor the memory
//! from those who look addresses up.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use subtle::ConstantTimeEq;
use tokio::sync::{mpsc, oneshot};

/// OWASP's parameters for argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const HASH_BYTES: usize = 32;
/// The longest that anyone waits for a thread; a machine that cannot keep up says so.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Lookups come first: a thread of this niceness gets a tenth of what another gets, and still something on a busy machine.
const NICENESS: i32 = 10;

/// The fewest characters of a password.
pub(crate) const CHARS_MIN: usize = 10;
/// The most bytes of a password: hashing is paid for by the service.
const BYTES_MAX: usize = 1024;

/// A password that could be one; no `Debug`, so that it cannot be logged by accident.
pub(crate) struct Password(String);

impl Password {
    /// Reads a password for a new account or a change.
    pub(crate) fn choose(text: &str) -> Result<Self, &'static str> {
        if text.chars().count() < CHARS_MIN {
            return Err("Choose a password of at least 10 characters; a few words in a row are easy to keep in mind.");
        }
        Self::present(text).ok_or("This password is too long; 1,024 bytes are the most.")
    }

    /// Reads a password that someone signs in with.
    pub(crate) fn present(text: &str) -> Option<Self> {
        (text.len() <= BYTES_MAX).then(|| Self(text.to_owned()))
    }
}

/// More passwords wait to be hashed than the bound allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

enum Job {
    Hash(Password, oneshot::Sender<String>),
    Verify(Password, String, oneshot::Sender<bool>),
}

/// The pool of threads.
pub(crate) struct Passwords {
    jobs: mpsc::Sender<Job>,
    /// A hash of a password that nobody has: verified for addresses that have none, so that both take the same time.
    nobodys: String,
}

impl Passwords {
    /// Starts `threads_max` threads, for which at most `waiting_max` passwords wait.
    pub(crate) fn start(threads_max: usize, waiting_max: usize) -> Self {
        let (jobs, waiting) = mpsc::channel(waiting_max.max(1));
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads_max.max(1) {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || work(&waiting));
        }
        Self { jobs, nobodys: Mill::new().hash(&Password("a password that nobody has".to_owned())) }
    }

    /// Hashes a password.
    pub(crate) async fn hash(&self, password: Password) -> Result<String, Busy> {
        let (tell, told) = oneshot::channel();
        self.ask(Job::Hash(password, tell), told).await
    }

    /// Whether a password is the one behind a hash; without a hash it is not, and that takes as long.
    pub(crate) async fn verify(&self, password: Password, hash: Option<String>) -> Result<bool, Busy> {
        let is_known = hash.is_some();
        let (tell, told) = oneshot::channel();
        let job = Job::Verify(password, hash.unwrap_or_else(|| self.nobodys.clone()), tell);
        Ok(self.ask(job, told).await? && is_known)
    }

    async fn ask<T>(&self, job: Job, told: oneshot::Receiver<T>) -> Result<T, Busy> {
        self.jobs.try_send(job).map_err(|_| Busy)?;
        tokio::time::timeout(WAIT_MAX, told).await.map_err(|_| Busy)?.map_err(|_| Busy)
    }
}

fn work(waiting: &Mutex<mpsc::Receiver<Job>>) {
    // Where the system does not grant it, the bound on threads still holds.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    let mut mill = Mill::new();
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        match job {
            Some(Job::Hash(password, tell)) if !tell.is_closed() => {
                let _ = tell.send(mill.hash(&password));
            }
            Some(Job::Verify(password, hash, tell)) if !tell.is_closed() => {
                let _ = tell.send(mill.matches(&password, &hash));
            }
            // Whoever asked has gone.
            Some(Job::Hash(..) | Job::Verify(..)) => {}
            None => return,
        }
    }
}

/// argon2 with memory of its own: given back and taken again for each password, the allocator would keep several times as much.
struct Mill {
    argon2: Argon2<'static>,
    memory: Vec<Block>,
}

impl Mill {
    fn new() -> Self {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, None).expect("parameters within argon2's bounds");
        let memory = vec![Block::default(); params.block_count()];
        Self { argon2: Argon2::new(Algorithm::Argon2id, Version::V0x13, params), memory }
    }

    fn hash(&mut self, password: &Password) -> String {
        let salt = Salt::generate();
        let hash = grind(&self.argon2, &mut self.memory, password, &salt).and_then(|hash| Output::new(&hash).ok());
        let whole = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(self.argon2.params()).expect("parameters that can be written"),
            salt: Some(salt),
            hash: Some(hash.expect("a password and a salt within argon2's bounds")),
        };
        whole.to_string()
    }

    /// Whether a password makes this hash, with the parameters that it was made with, unless they take more memory than there is.
    fn matches(&mut self, password: &Password, hash: &str) -> bool {
        let Ok(kept) = PasswordHash::new(hash) else { return false };
        let (Some(salt), Some(hash), Ok(params)) = (kept.salt, kept.hash, Params::try_from(&kept)) else {
            return false;
        };
        if params.block_count() > self.memory.len() {
            return false;
        }
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let ground = grind(&argon2, &mut self.memory, password, &salt);
        ground.is_some_and(|ground| ground.as_slice().ct_eq(hash.as_bytes()).into())
    }
}

fn grind(argon2: &Argon2<'_>, memory: &mut [Block], password: &Password, salt: &[u8]) -> Option<[u8; HASH_BYTES]> {
    let mut hash = [0; HASH_BYTES];
    argon2.hash_password_into_with_memory(password.0.as_bytes(), salt, &mut hash, memory).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(text: &str) -> Password {
        Password::present(text).expect("a password")
    }

    #[tokio::test]
    async fn a_password_is_known_by_its_hash_and_no_other_is() {
        let passwords = Passwords::start(1, 4);
        let hash = passwords.hash(Password::choose("correct horse").expect("long enough")).await.expect("a hash");
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_eq!(passwords.verify(present("correct horse"), Some(hash.clone())).await, Ok(true));
        assert_eq!(passwords.verify(present("correct house"), Some(hash)).await, Ok(false));
        assert_eq!(passwords.verify(present("a password that nobody has"), None).await, Ok(false));
    }

    #[test]
    fn a_password_is_neither_short_nor_endless() {
        assert!(Password::choose("nine char").is_err() && Password::choose(&"x".repeat(1025)).is_err());
        assert!(Password::choose("ten chars!").is_ok() && Password::choose("ünïcödé wörds").is_ok());
    }

    #[tokio::test]
    async fn what_exceeds_the_bound_is_refused_at_once() {
        let passwords = Passwords::start(1, 1);
        let asked = (0..20).map(|_| passwords.hash(present("correct horse")));
        let outcomes = futures_util::future::join_all(asked).await;
        let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        assert!((17..=19).contains(&refused), "{refused} refused");
    }
}
