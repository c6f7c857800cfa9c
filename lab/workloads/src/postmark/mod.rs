//! PostMark: a mail or news server's many small, short-lived files.
//!
//! # Source
//! J. Katcher, "PostMark: A New File System Benchmark", Network Appliance TR3022, 1997, and the
//! program's version 1.51 as Debian has it, whose parameters, choices and system calls this follows
//! and whose report it prints.
//!
//! # What an instance does
//! 1. It makes `number` files of `size_low` to `size_high` bytes, in one directory or spread over
//!    subdirectories.
//! 2. Transactions: each reads a whole file or appends to one, up to `size_high`, and then creates
//!    a file or deletes one. Which of the two, and which file, is random.
//! 3. It deletes all files that are left.
//!
//! Instances share nothing: several are what the thread of 2002 on the removal of the big kernel
//! lock ran, eight processes with 5,000 files and 500,000 transactions.
//!
//! # Differences
//! Times are not rounded to seconds. Each file's contents begin at a place of its own in the random
//! text, so that a mix-up is noticed. There is one location: weights for several are left out.
//! Instances wait for each other once, before their transactions.

mod instance;
mod report;
mod stdio;

use crate::clock::Span;
use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Length, Plan};
use crate::report::Report;
use crate::targets::{Target, remove_tree};
use crate::worker::Worker;
use crate::workload::{Detail, Workload};
use instance::Instance;
use serde::{Deserialize, Serialize};

/// The parameters of PostMark, with its defaults.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct PostMark {
    /// Files that each instance makes at first
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub number: u32,
    /// Transactions of each instance
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub transactions: u64,
    /// Smallest size of a new file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 500)]
    pub size_low: u32,
    /// Largest size of a file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 10_000)]
    pub size_high: u32,
    /// Directories that each instance spreads its files over; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub subdirectories: u32,
    /// Bytes that are read at a time
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    pub read: u32,
    /// Bytes that are written at a time
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    pub write: u32,
    /// Of ten, how many read rather than append; -1 for neither
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i8).range(-1..=10))]
    pub bias_read: i8,
    /// Of ten, how many create rather than delete; -1 for neither
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i8).range(-1..=10))]
    pub bias_create: i8,
    /// Read and write by system calls of those sizes, not through a buffer as stdio's
    #[arg(long)]
    pub unbuffered: bool,
}

impl Default for PostMark {
    fn default() -> PostMark {
        PostMark {
            number: 500,
            transactions: 500,
            size_low: 500,
            size_high: 10_000,
            subdirectories: 0,
            read: 512,
            write: 512,
            bias_read: 5,
            bias_create: 5,
            unbuffered: false,
        }
    }
}

/// What instances of PostMark count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Files made before the transactions.
    pub created_alone: u64,
    /// Files made by transactions.
    pub created_mixed: u64,
    /// Files read.
    pub read: u64,
    /// Appends.
    pub appended: u64,
    /// Files deleted by transactions.
    pub deleted_mixed: u64,
    /// Files deleted after the transactions.
    pub deleted_alone: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// From the first file's creation to the last one's deletion.
    pub total: Span,
    /// Making the first files.
    pub creation: Span,
    /// The transactions.
    pub transactions: Span,
    /// Deleting what was left.
    pub deletion: Span,
}

impl Detail for Counts {
    fn add(&mut self, other: Counts) {
        self.created_alone += other.created_alone;
        self.created_mixed += other.created_mixed;
        self.read += other.read;
        self.appended += other.appended;
        self.deleted_mixed += other.deleted_mixed;
        self.deleted_alone += other.deleted_alone;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.total.join(other.total);
        self.creation.join(other.creation);
        self.transactions.join(other.transactions);
        self.deletion.join(other.deletion);
    }
}

/// The directory of an instance.
fn directory(index: usize) -> String {
    format!("postmark.{index}")
}

impl Workload for PostMark {
    const NAME: &'static str = "postmark";

    type Detail = Counts;

    fn operations(&self) -> &'static str {
        "transactions"
    }

    fn usual_length(&self) -> Length {
        Length::Operations(self.transactions)
    }

    fn check(&self, _: &Plan) -> Result<()> {
        let refuse = |line: &str| Err(WorkloadError::Parameters(line.to_owned()));
        if self.number == 0 {
            refuse("number: give at least one file")
        } else if self.size_low > self.size_high || self.size_high == 0 {
            refuse("sizes: the high one must not be below the low one, nor 0")
        } else if self.read == 0 || self.write == 0 {
            refuse("read, write: give at least one byte at a time")
        } else {
            Ok(())
        }
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<Counts> {
        let mut instance = Instance::new(self, target, worker)?;
        let mut total = Span::begin();
        let mut creation = Span::begin();
        for _ in 0..self.number {
            worker.check_stop()?;
            instance.create(&mut worker.rng)?;
        }
        creation.end();
        let created_alone = u64::from(self.number);
        worker.start()?;
        let mut transactions = Span::begin();
        while worker.goes_on() {
            instance.transact(&mut worker.rng)?;
            worker.done();
        }
        transactions.end();
        let deleted_mixed = instance.counts.deleted_mixed;
        if worker.verifies() {
            instance.verify()?;
        }
        let mut deletion = Span::begin();
        instance.delete_all()?;
        deletion.end();
        total.end();
        let done = instance.finish()?;
        Ok(Counts {
            created_alone,
            created_mixed: done.created_mixed - created_alone,
            deleted_mixed,
            deleted_alone: done.deleted_mixed - deleted_mixed,
            total,
            creation,
            transactions,
            deletion,
            ..done
        })
    }

    fn clean_up<T: Target>(&self, target: &T, crew: Crew) -> Result<()> {
        (0..crew.count()).try_for_each(|index| {
            let dir = directory(index);
            remove_tree(target, &dir).during("remove", &dir)
        })
    }

    fn describe(&self, report: &Report<PostMark>) -> String {
        report::text(self, report)
    }
}
