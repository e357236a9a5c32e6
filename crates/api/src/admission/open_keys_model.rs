//! A model of home and its remote nodes: messages are delayed, lost, repeated and delivered in any order. The nodes use the real
//! [`OpenKeys`].

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ipseity_domain::{ApiKey, BURST_LIMIT, IN_FLIGHT_MAX, PlaintextKey, Scope};
use ipseity_ledger::{LedgerTime, Quota, Verdict};

use crate::admission::open_keys::{ChargeInFlight, OpenKeys};

const NODES: usize = 6;
const SLACK: usize = 8;
const STEPS: u64 = 1_000_000;
const STEPS_PER_KEY: u64 = 3_000;

/// A charge on its way to home, or its verdict on the way back.
struct Call {
    number: usize,
    node: usize,
    /// `None` if the node does not wait any more.
    charge: Option<ChargeInFlight>,
    is_admitted: bool,
    verdict: Option<Verdict>,
}

#[derive(Default)]
struct Home {
    charged: HashSet<usize>,
    count: usize,
    is_paused: bool,
    open: HashSet<usize>,
    ever_open: HashSet<usize>,
    is_near: bool,
    version: u64,
}

struct Model {
    rng: fastrand::Rng,
    key: ApiKey,
    home: Home,
    nodes: Vec<Arc<OpenKeys>>,
    /// Closings on their way to each node, with the version that they announce.
    notices: Vec<VecDeque<u64>>,
    /// The newest version that a node knows.
    known: Vec<u64>,
    /// Requests that are admitted and not reconciled.
    pending: Vec<Vec<usize>>,
    calls: Vec<Call>,
    next: usize,
    admitted: usize,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            key: PlaintextKey::generate(|| fastrand::u8(..)).to_api_key(),
            home: Home::default(),
            nodes: (0..NODES).map(|_| OpenKeys::new(10)).collect(),
            notices: vec![VecDeque::new(); NODES],
            known: vec![0; NODES],
            pending: vec![Vec::new(); NODES],
            calls: Vec::new(),
            next: 0,
            admitted: 0,
        }
    }

    fn publish(&mut self) {
        self.home.open.clear();
        self.notices.iter_mut().for_each(|notices| notices.push_back(self.home.version));
    }

    /// What charge.lua does.
    fn charge_at_home(&mut self, number: usize, node: usize) -> Verdict {
        let now = LedgerTime(0);
        if self.home.is_paused {
            return Verdict::Paused { now, burst_limit: BURST_LIMIT };
        }
        if self.home.count >= BURST_LIMIT {
            self.home.is_paused = true;
            self.publish();
            return Verdict::PausedNow { now, burst_epoch: 1, burst_limit: BURST_LIMIT };
        }
        self.home.charged.insert(number);
        self.home.count += 1;
        let left = BURST_LIMIT - self.home.count;
        if !self.home.is_near && !self.home.open.is_empty() && left < self.home.open.len() * IN_FLIGHT_MAX + SLACK {
            self.home.is_near = true;
            self.publish();
        }
        let nodes = self.home.open.len() + usize::from(!self.home.open.contains(&node));
        let is_open = !self.home.is_near && left >= nodes * IN_FLIGHT_MAX + SLACK;
        if is_open {
            self.home.open.insert(node);
            self.home.ever_open.insert(node);
        }
        let quota = Quota { now, limit: self.home.version, day: now.day(), used: 0, burst_limit: BURST_LIMIT };
        Verdict::Admitted { scope: Scope::Ip, quota, burst_epoch: 1, is_open }
    }

    fn step(&mut self, seed: u64) {
        match self.rng.u32(..100) {
            0..35 => self.request(seed),
            35..60 => self.arrive_at_home(),
            60..85 => self.arrive_at_node(),
            85..93 => self.deliver_notice(),
            93..95 => self.lose_call(),
            95..98 => self.reconcile(),
            98 => {
                // The key is changed.
                self.home.version += 1;
                self.publish();
            }
            _ => self.repeat_call(),
        }
    }

    /// A request arrives at a node.
    fn request(&mut self, seed: u64) {
        let node = self.rng.usize(..NODES);
        let number = self.next;
        self.next += 1;
        let early =
            if self.pending[node].is_empty() { self.nodes[node].begin_admitted(&self.key, 0).ok() } else { None };
        let is_admitted = early.is_some();
        let charge = match early {
            Some(early) => {
                assert!(early.opened.daily_limit >= self.known[node], "seed {seed}: open with an old version");
                self.admitted += 1;
                let over = self.admitted.saturating_sub(BURST_LIMIT);
                let bound = IN_FLIGHT_MAX * self.home.ever_open.len();
                assert!(over <= bound, "seed {seed}: {over} over the limit, at most {bound} expected");
                early.charge
            }
            None => self.nodes[node].begin(&self.key, 0),
        };
        self.calls.push(Call { number, node, charge: Some(charge), is_admitted, verdict: None });
    }

    fn pick(&mut self, is_answered: bool) -> Option<usize> {
        let found: Vec<_> =
            (0..self.calls.len()).filter(|index| self.calls[*index].verdict.is_some() == is_answered).collect();
        (!found.is_empty()).then(|| found[self.rng.usize(..found.len())])
    }

    fn arrive_at_home(&mut self) {
        let Some(index) = self.pick(false) else { return };
        let (number, node) = (self.calls[index].number, self.calls[index].node);
        if self.calls[index].charge.is_none() {
            // Too late, or a repetition: it has no effect.
            self.calls.swap_remove(index);
            return;
        }
        let verdict = self.charge_at_home(number, node);
        self.calls[index].verdict = Some(verdict);
    }

    fn arrive_at_node(&mut self) {
        let Some(index) = self.pick(true) else { return };
        let call = self.calls.swap_remove(index);
        let (Some(charge), Some(verdict)) = (call.charge, call.verdict) else { return };
        let is_charged = matches!(verdict, Verdict::Admitted { .. });
        if call.is_admitted && !is_charged {
            self.pending[call.node].push(call.number);
        }
        if !call.is_admitted && is_charged {
            self.admitted += 1;
        }
        charge.finish(&verdict);
    }

    /// The node stops waiting. What it admitted is reconciled, and the call or its verdict arrives too late.
    fn lose_call(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let index = self.rng.usize(..self.calls.len());
        let call = &mut self.calls[index];
        let Some(charge) = call.charge.take() else { return };
        if call.is_admitted {
            self.pending[call.node].push(call.number);
        } else if call.verdict.as_ref().is_some_and(|verdict| matches!(verdict, Verdict::Admitted { .. })) {
            // The caller got an error, and the charge is counted.
            self.admitted += 1;
        }
        charge.close();
    }

    fn repeat_call(&mut self) {
        let Some(index) = self.pick(false) else { return };
        let (number, node) = (self.calls[index].number, self.calls[index].node);
        self.calls.push(Call { number, node, charge: None, is_admitted: false, verdict: None });
    }

    fn deliver_notice(&mut self) {
        let node = self.rng.usize(..NODES);
        if let Some(version) = self.notices[node].pop_front() {
            self.nodes[node].close(self.key.id);
            self.known[node] = version;
        }
    }

    fn reconcile(&mut self) {
        let node = self.rng.usize(..NODES);
        for number in std::mem::take(&mut self.pending[node]) {
            if self.home.charged.insert(number) {
                self.home.count += 1;
                self.publish();
            }
        }
    }

    /// Delivers everything.
    fn finish(&mut self) {
        while !self.calls.is_empty() {
            self.arrive_at_home();
            self.arrive_at_node();
        }
        (0..NODES * 100).for_each(|_| self.reconcile());
    }
}

#[test]
fn limits_are_exceeded_by_at_most_the_requests_in_flight() {
    let (mut over, mut paused) = (0, 0);
    for seed in 0..STEPS / STEPS_PER_KEY {
        let mut model = Model::new(seed);
        (0..STEPS_PER_KEY).for_each(|_| model.step(seed));
        model.finish();
        assert_eq!(model.home.count, model.admitted, "seed {seed}: each admitted request is charged once");
        assert_eq!(model.nodes.iter().map(|node| node.admitted_in_flight()).sum::<usize>(), 0);
        over = over.max(model.admitted.saturating_sub(BURST_LIMIT));
        paused += usize::from(model.home.is_paused);
    }
    assert!(paused > 0 && over > 0, "the model has to reach the limit: {paused} pauses, {over} over");
}
