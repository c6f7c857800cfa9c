//! Counts and violations.

use std::collections::BTreeMap;

/// Violations of each kind whose text is kept.
const KEPT: usize = 3;

/// What a violation is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The image does not open for writing, or something on it cannot be read.
    Unreadable,
    /// Blocks or inodes are neither used nor free, or both.
    Leak,
    /// The tree is not one that a crash may leave.
    Tree,
    /// A file has bytes that are not its own, or not of its synced content.
    Data,
    /// An error of the device is hidden, or is a panic.
    Fault,
    /// fsck is not content.
    Fsck,
    /// A crash during the recovery changes what is recovered.
    Recovery,
}

/// One violation: what it is about, and everything that is known about it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// About what.
    pub kind: Kind,
    /// Which workload, which state, what is wrong.
    pub text: String,
}

/// What was tried and what came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Workloads run.
    pub workloads: u64,
    /// Epochs between flushes, in all workloads.
    pub epochs: u64,
    /// States built.
    pub states: u64,
    /// States that were different from those before in the same workload.
    pub distinct: u64,
    /// States that fsck looked at too.
    pub by_fsck: u64,
    /// States of crashes during a recovery.
    pub during_recovery: u64,
    /// Lies of a device that were noticed when the image was opened or read.
    pub caught: u64,
    /// Lies after which the image showed what it showed before the write, or a part of that.
    pub stale: u64,
    /// Violations by kind.
    pub violations: BTreeMap<Kind, u64>,
    /// The first few of each kind.
    pub examples: Vec<Violation>,
}

impl Report {
    /// Counts a violation.
    pub fn violation(&mut self, violation: Violation) {
        *self.violations.entry(violation.kind).or_default() += 1;
        self.keep(violation);
    }

    fn keep(&mut self, violation: Violation) {
        let is_alike = |other: &&Violation| other.kind == violation.kind;
        if self.examples.iter().filter(is_alike).count() < KEPT {
            self.examples.push(violation);
        }
    }

    /// The number of violations.
    pub fn violated(&self) -> u64 {
        self.violations.values().sum()
    }

    /// Adds another report.
    pub fn add(&mut self, other: Report) {
        self.workloads += other.workloads;
        self.epochs += other.epochs;
        self.states += other.states;
        self.distinct += other.distinct;
        self.by_fsck += other.by_fsck;
        self.during_recovery += other.during_recovery;
        self.caught += other.caught;
        self.stale += other.stale;
        for (kind, count) in other.violations {
            *self.violations.entry(kind).or_default() += count;
        }
        for violation in other.examples {
            self.keep(violation);
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} workloads, {} epochs, {} states ({} distinct, {} by fsck, {} during recovery), \
             {} violations",
            self.workloads,
            self.epochs,
            self.states,
            self.distinct,
            self.by_fsck,
            self.during_recovery,
            self.violated()
        )?;
        if self.caught + self.stale > 0 {
            write!(f, ", lies: {} caught, {} stale", self.caught, self.stale)?;
        }
        for (kind, count) in &self.violations {
            write!(f, " {kind:?}={count}")?;
        }
        Ok(())
    }
}
