//! Random requests on two files against a model: for each byte its holders and how they have it, a
//! queue, and a search for cycles in the wait-for graph.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::queue::{Asked, CREDIT, IfBusy};
use super::super::waiter::Waiter;
use super::super::{Family, FileLocks, Held, LockKind, Owner, WaitsFor};
use crate::base::error::Error;

const BYTES: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    Ask {
        owner: Owner,
        kind: LockKind,
        range: Range<u64>,
        may_wait: bool,
    },
    Unlock {
        owner: Owner,
        range: Range<u64>,
    },
    Clear {
        owner: Owner,
    },
    /// The request at this place of the queue is withdrawn.
    Withdraw {
        at: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    owner: Owner,
    kind: LockKind,
    range: Range<u64>,
}

/// One family of locks of one file.
#[derive(Clone, Default)]
struct Model {
    bytes: BTreeMap<(u64, Owner), LockKind>,
    queue: Vec<Request>,
}

impl Model {
    fn blockers(&self, request: &Request) -> BTreeSet<Owner> {
        self.bytes
            .iter()
            .filter(|((at, owner), kind)| {
                request.range.contains(at)
                    && *owner != request.owner
                    && (request.kind == LockKind::Exclusive || **kind == LockKind::Exclusive)
            })
            .map(|((_, owner), _)| *owner)
            .collect()
    }

    fn set(&mut self, owner: Owner, kind: Option<LockKind>, range: Range<u64>) {
        for at in range {
            match kind {
                Some(kind) => self.bytes.insert((at, owner), kind),
                None => self.bytes.remove(&(at, owner)),
            };
        }
    }

    /// Grants what can be granted; gives those requests in their order.
    fn settle(&mut self) -> Vec<Request> {
        let mut granted = Vec::new();
        while let Some(at) = self
            .queue
            .iter()
            .position(|request| self.blockers(request).is_empty())
        {
            let request = self.queue.remove(at);
            self.set(request.owner, Some(request.kind), request.range.clone());
            granted.push(request);
        }
        granted
    }

    /// Runs of equal bytes.
    fn held(&self) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for (&(at, owner), &kind) in &self.bytes {
            let before = held
                .iter_mut()
                .find(|h| h.owner == owner && h.kind == kind && h.range.end == at);
            match before {
                Some(run) => run.range.end = at + 1,
                None => held.push(Held {
                    owner,
                    kind,
                    range: at..at + 1,
                }),
            }
        }
        held.sort_by_key(|h| (h.range.start, h.owner));
        held
    }
}

/// True when `from` waits, over any number of others, for `to`.
fn reaches(models: &[Model; 2], from: Owner, to: Owner) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(owner) = next.pop() {
        if owner == to {
            return true;
        }
        if seen.insert(owner) && matches!(owner, Owner::Process(_)) {
            for model in models {
                let requests = model.queue.iter().filter(|r| r.owner == owner);
                next.extend(requests.flat_map(|request| model.blockers(request)));
            }
        }
    }
    false
}

struct Real {
    files: [FileLocks; 2],
    waiters: [Vec<Arc<Waiter>>; 2],
    /// The model has granted them since the last comparison.
    granted: Vec<Arc<Waiter>>,
    graph: WaitsFor,
    /// What the limit has given, less what it got back.
    taken: i64,
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        3 => (0..4_u64).prop_map(Owner::Process),
        1 => (0..2_u64).prop_map(Owner::OpenFile),
    ]
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..BYTES, 1..=BYTES).prop_map(|(start, length)| start..(start + length).min(BYTES))
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let kind = prop_oneof![Just(LockKind::Shared), Just(LockKind::Exclusive)];
    let step = prop_oneof![
        6 => (owner(), kind, range(), proptest::bool::weighted(0.8)).prop_map(
            |(owner, kind, range, may_wait)| Step::Ask { owner, kind, range, may_wait }
        ),
        3 => (owner(), range()).prop_map(|(owner, range)| Step::Unlock { owner, range }),
        1 => owner().prop_map(|owner| Step::Clear { owner }),
        1 => (0..3_usize).prop_map(|at| Step::Withdraw { at }),
    ];
    (0..2_usize, step)
}

fn run(family: Family, steps: Vec<(usize, Step)>) {
    let mut models: [Model; 2] = Default::default();
    let mut real = Real {
        files: [FileLocks::new(), FileLocks::new()],
        waiters: Default::default(),
        granted: Vec::new(),
        graph: WaitsFor::new(),
        taken: 0,
    };
    let whole = |range: Range<u64>| match family {
        Family::Range => range,
        Family::Whole => 0..BYTES,
    };
    for (file, step) in steps {
        let actor = match &step {
            Step::Ask { owner, .. } | Step::Unlock { owner, .. } | Step::Clear { owner } => {
                Some(*owner)
            }
            Step::Withdraw { .. } => None,
        };
        // A process that waits does nothing else.
        let waits = |owner: Owner| {
            models
                .iter()
                .any(|model| model.queue.iter().any(|r| r.owner == owner))
        };
        if actor.is_some_and(waits) {
            continue;
        }
        let mut credits = 0;
        match step {
            Step::Ask {
                owner,
                kind,
                range,
                may_wait,
            } => {
                let range = whole(range);
                let request = Request {
                    owner,
                    kind,
                    range: range.clone(),
                };
                let mut expected = Ok(true);
                let model = &mut models[file];
                let has_it = range
                    .clone()
                    .all(|at| model.bytes.get(&(at, owner)) == Some(&kind));
                if family == Family::Whole && !has_it {
                    model.set(owner, None, range.clone());
                    settle(&mut models, &mut real, file);
                }
                let blockers = models[file].blockers(&request);
                if blockers.is_empty() {
                    models[file].set(owner, Some(kind), range.clone());
                } else if !may_wait {
                    expected = Err(Error::WouldBlock);
                } else if matches!(owner, Owner::Process(_))
                    && blockers.iter().any(|from| reaches(&models, *from, owner))
                {
                    expected = Err(Error::Deadlock);
                } else {
                    models[file].queue.push(request);
                    expected = Ok(false);
                }
                real.taken += CREDIT as i64;
                let if_busy = match may_wait {
                    true => IfBusy::Wait,
                    false => IfBusy::Refuse,
                };
                let asked = real.files[file].ask(
                    family,
                    (owner, kind, &range),
                    if_busy,
                    &real.graph,
                    &mut credits,
                );
                let found = match asked {
                    Asked::Granted => Ok(true),
                    Asked::Waits(waiter) => {
                        real.waiters[file].push(waiter);
                        Ok(false)
                    }
                    Asked::Refused(error) => Err(error),
                };
                assert_eq!(found, expected);
            }
            Step::Unlock { owner, range } => {
                let range = whole(range);
                let is_cut = real.files[file].held(family).is_inside(owner, &range);
                real.taken += i64::from(is_cut);
                credits += i64::from(is_cut);
                models[file].set(owner, None, range.clone());
                real.files[file].unlock(family, owner, &range, &mut credits);
            }
            Step::Clear { owner } => {
                models[file].set(owner, None, 0..BYTES);
                real.files[file].clear(owner, &mut credits);
            }
            Step::Withdraw { at } => {
                if at < models[file].queue.len() {
                    models[file].queue.remove(at);
                    let waiter = real.waiters[file].remove(at);
                    assert!(real.files[file].withdraw(family, &waiter));
                    assert!(!real.files[file].withdraw(family, &waiter));
                    real.graph.leave(&waiter);
                    credits += CREDIT as i64;
                }
            }
        }
        assert!(credits >= 0);
        real.taken -= credits;
        settle(&mut models, &mut real, file);
        for waiter in real.granted.drain(..) {
            assert_eq!(waiter.outcome(), Some(Ok(())));
            assert!(waiter.blockers().is_empty());
        }
        compare(&models, &real, family);
    }
}

/// The model grants; the same waiters must have been granted, and no other.
fn settle(models: &mut [Model; 2], real: &mut Real, file: usize) {
    for request in models[file].settle() {
        let at = real.waiters[file]
            .iter()
            .position(|w| w.owner == request.owner && w.range == request.range)
            .unwrap();
        let waiter = real.waiters[file].remove(at);
        // In flock's conversion the model is ahead of the file, which is compared afterwards.
        real.graph.leave(&waiter);
        real.granted.push(waiter);
    }
}

fn compare(models: &[Model; 2], real: &Real, family: Family) {
    let mut count = 0;
    for (file, model) in models.iter().enumerate() {
        let held = real.files[file].held(family).check();
        assert_eq!(held, model.held());
        count += held.len() as u64 + CREDIT * model.queue.len() as u64;
        for (waiter, request) in real.waiters[file].iter().zip(&model.queue) {
            assert_eq!(waiter.outcome(), None);
            assert_eq!(
                (waiter.owner, &waiter.range),
                (request.owner, &request.range)
            );
            let blockers: BTreeSet<Owner> = waiter.blockers().into_iter().collect();
            if waiter.owner.has_deadlock_detection() {
                assert_eq!(blockers, model.blockers(request));
            }
        }
        assert_eq!(real.waiters[file].len(), model.queue.len());
    }
    assert_eq!(real.taken, count as i64, "credit");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranges_are_as_in_the_model(steps in prop::collection::vec(step(), 0..60)) {
        run(Family::Range, steps);
    }

    #[test]
    fn flocks_are_as_in_the_model(steps in prop::collection::vec(step(), 0..40)) {
        run(Family::Whole, steps);
    }
}
