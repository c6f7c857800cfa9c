//! When a range lock spreads, how long its segments are, and when it goes home: what
//! [`Slow`](super::slow::Slow) counts of the requests that it sees, and what it makes of that.
//! Guesses: they decide about speed only.
//!
//! - At home, requests of different threads that *meet* without conflict make the lock spread: a
//!   cell for each reader if no writer was seen, else segments, if the requests differ in their
//!   offsets.
//! - In a session, requests that have to go to the queue though they conflict with nobody *strain*
//!   it, until its segments change or it ends. More patiently, the lock puts together other
//!   segments where requests *collide*, who only look again: the line of such a cell goes to and
//!   fro.
//! - *Samples* (one request in many that take an empty cell) tell whether one thread is alone, and,
//!   at home, whether several come by turns.

use std::ops::Range;

use super::node::{Access, overlaps};
use super::queue::Queue;
use super::spread::{CellSet, Placement, Rule};

/// Meetings without conflict in the home cell after which a lock spreads.
#[cfg(not(any(loom, feature = "shuttle")))]
const MEETINGS_TO_SPREAD: u32 = 16;
#[cfg(any(loom, feature = "shuttle"))]
const MEETINGS_TO_SPREAD: u32 = 1;
/// Meetings without conflict in the queue after which a draining session goes on.
pub(super) const MEETINGS_TO_RESUME: u32 = MEETINGS_TO_SPREAD;
/// Meetings that are needed after many failures.
const MEETINGS_MAX: u32 = 1 << 16;

/// Samples in a row by one thread after which it is taken to be alone.
#[cfg(not(any(loom, feature = "shuttle")))]
const SAMPLES_ALONE: u32 = 64;
#[cfg(any(loom, feature = "shuttle"))]
const SAMPLES_ALONE: u32 = 2;
/// The strain between two samples that ends a session: a request in the queue is 1, and 1 for every
/// second cell that it closes, up to STRAIN_OF_ALL_CELLS.
#[cfg(not(any(loom, feature = "shuttle")))]
const STRAIN_MAX: u32 = 128;
#[cfg(any(loom, feature = "shuttle"))]
const STRAIN_MAX: u32 = 3;
const STRAIN_OF_ALL_CELLS: u32 = 32;
/// The strain that ends a session of segments that cannot be shorter: most requests are in the
/// queue.
#[cfg(not(any(loom, feature = "shuttle")))]
const STRAIN_END: u32 = 1024;
#[cfg(any(loom, feature = "shuttle"))]
const STRAIN_END: u32 = STRAIN_MAX;

/// Collisions after which segments change; twice as many after each time that was so.
const COLLISIONS_TO_PART: u32 = 32;
/// So many samples make up for one collision. (Where one of 30 requests finds the line of its cell
/// on another CPU, two threads make two thirds of their rate, and one of 1000 requests collides.)
const SAMPLES_FOR_COLLISION: u32 = 8;

/// Segments are so long that only a few lie between two requests that met, of average distance (in
/// binary logarithms): an eighth of all cells. So few share cells.
const SEGMENTS_BETWEEN_LOG: u32 = 4;

/// Segments of this length are one: all met at the same offset.
pub(super) const ONE_SEGMENT: u32 = u64::BITS - 1;

/// How many meetings two samples by different threads stand for.
const SAMPLE_WEIGHT: u32 = 4;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Policy {
    meetings: u32,
    pub(super) meetings_to_spread: u32,
    has_seen_write: bool,
    /// A session of readers has just ended because of writers: the next is none, once.
    is_for_writers: bool,
    /// Binary logarithms of the distances of ranges that met: the least, the sum, and how many; and
    /// of the longest range.
    distance_log: u32,
    distance_logs: u64,
    distances: u64,
    length_log: u32,
    /// Added to the segments' size since requests touched several segments.
    widening: u32,
    strain: u32,
    /// How many of the requests that strained a session touched two segments, and one.
    wide: u32,
    narrow: u32,
    /// How many of the latter shared it with entries. The others only shared a cell.
    crowded: u32,
    collisions: u32,
    collisions_to_part: u32,
    /// Segments are longer than they were because of collisions.
    is_parted: bool,
    /// Who made the last sample, and with what request.
    last_sampler: usize,
    last_range: Range<u64>,
    last_access: Access,
    samples_alone: u32,
}

/// What helps a strained session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relief {
    /// Segments of another length.
    Segments(u32),
    /// Nothing, but it should go on.
    None,
    /// To end it.
    End,
}

impl Policy {
    pub(super) const fn new() -> Policy {
        Policy {
            meetings: 0,
            meetings_to_spread: MEETINGS_TO_SPREAD,
            has_seen_write: false,
            is_for_writers: false,
            distance_log: ONE_SEGMENT,
            distance_logs: 0,
            distances: 0,
            length_log: 0,
            widening: 0,
            strain: 0,
            wide: 0,
            narrow: 0,
            crowded: 0,
            collisions: 0,
            collisions_to_part: COLLISIONS_TO_PART,
            is_parted: false,
            last_sampler: 0,
            last_range: 0..0,
            last_access: Access::Read,
            samples_alone: 0,
        }
    }

    /// Two requests of different threads have met without conflict in home mode.
    fn note_meeting(
        &mut self,
        (range, access): (&Range<u64>, Access),
        (other, other_access): (&Range<u64>, Access),
        weight: u32,
    ) {
        self.meetings += weight;
        self.has_seen_write |= access == Access::Write || other_access == Access::Write;
        let distance = other.start.abs_diff(range.start);
        if let Some(log) = distance.checked_ilog2() {
            self.distance_log = self.distance_log.min(log);
            self.distance_logs += u64::from(weight * log);
            self.distances += u64::from(weight);
        }
        self.note_length(range);
    }

    fn note_length(&mut self, range: &Range<u64>) {
        let last = range.end.saturating_sub(range.start).saturating_sub(1);
        self.length_log = self.length_log.max(u64::BITS - last.leading_zeros());
    }

    /// A request in home mode or while draining, of which `queue` does not have the node yet. True
    /// when it has met so many.
    pub(super) fn met(
        &mut self,
        queue: &Queue,
        blockers: u32,
        (range, access): (&Range<u64>, Access),
        enough: u32,
    ) -> bool {
        if blockers > 0 {
            self.has_seen_write |= access == Access::Write;
            self.meetings = self.meetings.saturating_sub(1);
            return false;
        }
        for entry in queue.iter() {
            self.note_meeting((range, access), (&entry.range(), entry.access()), 1);
        }
        self.meetings >= enough
    }

    /// The rule for the next session, if any promises something; the search for one begins anew.
    pub(super) fn rule(&mut self) -> Option<Rule> {
        let mean_log = self.distance_logs.checked_div(self.distances).unwrap_or(0) as u32;
        let shift = (self.distance_log)
            .max(self.length_log + self.widening)
            .max(mean_log.saturating_sub(SEGMENTS_BETWEEN_LOG));
        let is_for_writers = std::mem::take(&mut self.is_for_writers);
        let rule = match self.has_seen_write || is_for_writers {
            false => Some(Rule::Readers { shift }),
            true => (shift < ONE_SEGMENT).then_some(Rule::Segments { shift }),
        };
        self.meetings = 0;
        self.has_seen_write = false;
        self.distance_log = ONE_SEGMENT;
        self.distance_logs = 0;
        self.distances = 0;
        self.length_log = 0;
        self.collisions = 0;
        self.relax();
        self.samples_alone = 0;
        rule
    }

    fn relax(&mut self) {
        self.strain = 0;
        self.wide = 0;
        self.narrow = 0;
        self.crowded = 0;
    }

    pub(super) fn back_off(&mut self) {
        self.meetings = 0;
        self.meetings_to_spread = (self.meetings_to_spread * 2).min(MEETINGS_MAX);
    }

    /// A request in a session had to go to the queue, though it conflicts with nobody. True when
    /// the session should change (`relief`).
    pub(super) fn strained(
        &mut self,
        queue: &Queue,
        placement: Placement,
        range: &Range<u64>,
        cells: CellSet,
    ) -> bool {
        self.note_length(range);
        self.strain += 1 + (cells.count_ones() / 2).min(STRAIN_OF_ALL_CELLS);
        self.wide += u32::from(cells.count_ones() == 2);
        if cells.count_ones() == 1 {
            self.narrow += 1;
            let is_crowded = queue
                .iter()
                .any(|entry| placement.is_in_common_segment(range, &entry.range()));
            self.crowded += u32::from(is_crowded);
        }
        self.strain >= STRAIN_MAX
    }

    /// What a strained session should do.
    pub(super) fn relief(&mut self, placement: Placement) -> Relief {
        let shift = match placement.rule() {
            Rule::Segments { shift } => shift,
            Rule::Readers { shift } => {
                self.is_for_writers = true;
                return match shift < ONE_SEGMENT {
                    true => Relief::Segments(shift),
                    false => Relief::End,
                };
            }
        };
        if self.wide * 2 > self.strain / 2 {
            self.widening = (self.widening + 2).min(8);
            return match self.widening {
                8 => Relief::End,
                _ => Relief::Segments(shift + 2),
            };
        }
        self.widening = 0;
        if self.narrow * 2 <= self.strain {
            return Relief::End;
        }
        match self.crowded * 2 > self.narrow {
            true if shift > self.length_log => Relief::Segments(shift - 1),
            // Readers of what a reader holds whom closing brought into the queue. The others are
            // better off here.
            true if self.strain < STRAIN_END => Relief::None,
            true => Relief::End,
            false => Relief::Segments(shift + 1),
        }
    }

    /// At a sample in a session with segments of `1 << shift` bytes: so many requests collided
    /// since the last, the sample among them. Gives the shift of segments that may be better.
    pub(super) fn collided(&mut self, collisions: u32, shift: u32) -> Option<u32> {
        let weighed = collisions
            .saturating_sub(1)
            .saturating_mul(SAMPLES_FOR_COLLISION);
        self.collisions = self.collisions.saturating_add(weighed).saturating_sub(1);
        if self.collisions / SAMPLES_FOR_COLLISION < self.collisions_to_part {
            return None;
        }
        self.collisions = 0;
        self.collisions_to_part = (self.collisions_to_part * 2).min(MEETINGS_MAX);
        self.is_parted = !self.is_parted;
        Some(match self.is_parted {
            true => shift + 1,
            false => shift.saturating_sub(1),
        })
    }

    /// Somebody has been to the queue: whose samples came last is not alone.
    pub(super) fn saw(&mut self, requester: usize) {
        if requester != self.last_sampler {
            self.samples_alone = 0;
        }
    }

    /// A sample, in a session or not. True when the mode should change: to home when the sampling
    /// thread is alone; away from it when samples come from several threads whose requests do not
    /// conflict. They seldom find each other in the home cell then, but its line goes to and fro.
    pub(super) fn sampled(
        &mut self,
        is_home: bool,
        sampler: usize,
        range: &Range<u64>,
        access: Access,
    ) -> bool {
        self.relax();
        let last = (self.last_range.clone(), self.last_access);
        self.last_range = range.clone();
        self.last_access = access;
        if self.last_sampler == sampler {
            self.samples_alone = self.samples_alone.saturating_add(1);
            let is_alone = self.samples_alone >= SAMPLES_ALONE;
            if is_alone {
                self.meetings = 0;
                self.meetings_to_spread = (self.meetings_to_spread / 2).max(MEETINGS_TO_SPREAD);
                self.collisions_to_part = (self.collisions_to_part / 2).max(COLLISIONS_TO_PART);
                self.has_seen_write = false;
            }
            return is_alone && !is_home;
        }
        self.last_sampler = sampler;
        self.samples_alone = 0;
        let is_shared = access == Access::Read && last.1 == Access::Read;
        self.has_seen_write |= access == Access::Write;
        if !is_shared && overlaps(&last.0, range) {
            self.meetings = 0;
            return false;
        }
        if is_home {
            self.note_meeting((range, access), (&last.0, last.1), SAMPLE_WEIGHT);
        }
        is_home && self.meetings >= self.meetings_to_spread
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    fn block(number: u64) -> Range<u64> {
        number * 4096..(number + 1) * 4096
    }

    /// Who comes by the queue makes no samples, but is there.
    #[test]
    fn requests_in_the_queue_tell_that_a_thread_is_not_alone() {
        let mut policy = Policy::new();
        let sample = |policy: &mut Policy| policy.sampled(false, 1, &block(0), Access::Write);
        for _ in 0..10 * SAMPLES_ALONE {
            assert!(!sample(&mut policy));
            policy.saw(2);
        }
        assert!((0..=SAMPLES_ALONE).any(|_| sample(&mut policy)));
    }

    /// Until writers come, who read have a cell each, whatever they read; then segments, and once
    /// more in the session after that.
    #[test]
    fn readers_have_cells_of_their_own_until_writers_come() {
        let mut policy = Policy::new();
        let rule_of = |policy: &mut Policy, access| {
            for other in [1, 64] {
                policy.note_meeting((&block(0), Access::Read), (&block(other), access), 1);
            }
            policy.rule()
        };
        let (readers, segments) = (Rule::Readers { shift: 12 }, Rule::Segments { shift: 12 });
        assert_eq!(rule_of(&mut policy, Access::Write), Some(segments));
        assert_eq!(rule_of(&mut policy, Access::Read), Some(readers));
        let relief = policy.relief(Placement::new(readers, 0));
        assert_eq!(relief, Relief::Segments(12));
        assert_eq!(rule_of(&mut policy, Access::Read), Some(segments));
        assert_eq!(rule_of(&mut policy, Access::Read), Some(readers));
    }

    /// All ask for the very same range: no segments would suit writers.
    #[test]
    fn readers_of_one_range_go_home_when_writers_come() {
        let mut policy = Policy::new();
        let meet = |policy: &mut Policy| {
            policy.note_meeting((&block(7), Access::Read), (&block(7), Access::Read), 1);
            policy.rule()
        };
        let Some(rule) = meet(&mut policy) else {
            panic!("readers may spread");
        };
        assert!(matches!(rule, Rule::Readers { .. }));
        assert_eq!(policy.relief(Placement::new(rule, 0)), Relief::End);
        assert_eq!(meet(&mut policy), None);
    }

    /// Samples of readers do not make a session of readers where samples of writers came in
    /// between.
    #[test]
    fn samples_tell_of_writers() {
        let mut policy = Policy::new();
        for round in 0..MEETINGS_TO_SPREAD {
            let access = if round == 1 {
                Access::Write
            } else {
                Access::Read
            };
            policy.sampled(true, round as usize % 2 + 1, &block(0), access);
        }
        assert_eq!(policy.rule(), None);
    }

    /// Two that met close to each other do not make segments so short that all others share cells.
    #[test]
    fn segments_suit_most_of_those_that_met() {
        let mut policy = Policy::new();
        for other in [1, 5000, 6000, 7000, 8000, 9000] {
            let other = (&block(other), Access::Write);
            policy.note_meeting((&block(0), Access::Write), other, 1);
        }
        // Some 2^24 bytes, but for one that is 2^12, which takes a sixth of the difference.
        assert_eq!(
            policy.rule(),
            Some(Rule::Segments {
                shift: 22 - SEGMENTS_BETWEEN_LOG
            })
        );
    }

    #[test]
    fn collisions_now_and_then_change_nothing() {
        let mut policy = Policy::new();
        let now_and_then =
            |sample: u32| 1 + u32::from(sample.is_multiple_of(SAMPLES_FOR_COLLISION));
        assert!((0..10_000).all(|sample| policy.collided(now_and_then(sample), 20).is_none()));
        let mut changes = |samples: u32| {
            (0..samples)
                .filter(|_| policy.collided(5, 20).is_some())
                .count()
        };
        assert_eq!(changes(12), 1);
        // Each costs twice the patience of the one before.
        assert!(changes(1000) < 8);
    }

    /// Requests for what others of the same segment hold, in segments that cannot be shorter.
    #[test]
    fn a_crowd_ends_a_session_only_when_it_is_most_requests() {
        let relief = |strain: u32| {
            let mut policy = Policy::new();
            (policy.strain, policy.narrow, policy.crowded) = (strain, strain, strain);
            policy.note_length(&block(0));
            policy.relief(Placement::new(Rule::Segments { shift: 12 }, 0))
        };
        assert_eq!(relief(STRAIN_MAX), Relief::None);
        assert_eq!(relief(STRAIN_END), Relief::End);
    }
}
