//! posix-lock: byte ranges are locked and unlocked, by many on one file or by each on its own.
//!
//! | form | what it is |
//! |---|---|
//! | `records` | each of many locks a random record of one file, counts it up, and unlocks it: what Red Hat's bug 519126 tells of in comments 18 and 28 |
//! | `own` | will-it-scale's lock1: each locks and unlocks the first byte of its own file |
//! | `shared` | will-it-scale's lock2: all lock and unlock the first byte of one file |
//!
//! The locks are those of open files (F_OFD_SETLKW), so that threads exclude each other as
//! processes do; in Linux they take the same way through the kernel as those of processes. As in
//! will-it-scale, a lock and an unlock are two operations.

use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Plan, Watch};
use crate::targets::{Errno, File, LockMode, OFlags, Target, remove_tree};
use crate::worker::Worker;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// On what the locks lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LockForm {
    /// Random records of one file
    Records,
    /// The first byte of a file of each worker's own (lock1)
    Own,
    /// The first byte of one file (lock2)
    Shared,
}

/// The parameters of posix-lock.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct PosixLock {
    /// On what the locks lie
    #[arg(value_enum, default_value = "records")]
    pub form: LockForm,
    /// Records in the file
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u64).range(1..=RECORDS_MAX))]
    pub records: u64,
}

impl Default for PosixLock {
    fn default() -> PosixLock {
        PosixLock {
            form: LockForm::Records,
            records: 64,
        }
    }
}

const DIR: &str = "posix-lock";

/// More than this take too long to be added up.
const RECORDS_MAX: u64 = 1 << 30;

/// Bytes of a record: a number.
const RECORD: u64 = 8;

fn own_path(index: usize) -> String {
    format!("{DIR}/{index}")
}

/// Where a worker leaves how often it has counted up.
fn count_path(index: usize) -> String {
    format!("{DIR}/count.{index}")
}

const SHARED: &str = "posix-lock/shared";

impl Workload for PosixLock {
    const NAME: &'static str = "posix-lock";

    const THREADS: usize = 4;

    type Detail = ();

    fn operations(&self) -> &'static str {
        "locks and unlocks"
    }

    fn check(&self, _: &Plan) -> Result<()> {
        if (1..=RECORDS_MAX).contains(&self.records) {
            return Ok(());
        }
        let line = format!("records: give 1 to {RECORDS_MAX}");
        Err(WorkloadError::Parameters(line))
    }

    fn prepare<T: Target>(&self, target: &T, plan: &Plan, watch: Watch<'_>) -> Result<()> {
        target.create_dir(DIR).during("mkdir", DIR)?;
        let make = |path: &str| {
            watch.check_stop()?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let file = target.open(path, flags).during("create", path)?;
            file.set_len(self.records * RECORD).during("truncate", path)
        };
        match self.form {
            LockForm::Own => (0..plan.crew.count()).try_for_each(|index| make(&own_path(index))),
            LockForm::Records | LockForm::Shared => make(SHARED),
        }
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<()> {
        let path = match self.form {
            LockForm::Own => own_path(worker.index()),
            LockForm::Records | LockForm::Shared => SHARED.to_owned(),
        };
        let file = target.open(&path, OFlags::RDWR).during("open", &path)?;
        // Of lock1 and lock2 only the locks are measured.
        let counts = worker.verifies() || self.form == LockForm::Records;
        let mut counted = 0_u64;
        worker.start()?;
        while worker.goes_on() {
            let range = match self.form {
                LockForm::Records => {
                    let start = worker.rng.u64(..self.records) * RECORD;
                    start..start + RECORD
                }
                LockForm::Own | LockForm::Shared => 0..1,
            };
            file.lock(range.clone(), LockMode::Exclusive, true)
                .during("lock", &path)?;
            if counts {
                count_up(&file, range.start, &path)?;
                counted += 1;
            }
            file.unlock(range).during("unlock", &path)?;
            worker.done_many(2);
        }
        worker.end();
        if counts {
            let path = count_path(worker.index());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let file = target.open(&path, flags).during("create", &path)?;
            file.write_at(&counted.to_le_bytes(), 0)
                .during("write", &path)?;
        }
        Ok(())
    }

    /// No count may have been lost: that is what the locks are for.
    fn clean_up<T: Target>(&self, target: &T, crew: Crew) -> Result<()> {
        let outcome = check(self, target, crew);
        remove_tree(target, DIR).during("remove", DIR)?;
        outcome
    }
}

fn read_number<F: File>(file: &F, offset: u64, path: &str) -> Result<u64> {
    let mut number = [0; RECORD as usize];
    match file.read_at(&mut number, offset).during("read", path)? {
        count if count == number.len() => Ok(u64::from_le_bytes(number)),
        count => Err(WorkloadError::Wrong(format!(
            "{path}: {count} bytes at {offset}"
        ))),
    }
}

/// All records together.
fn sum<F: File>(file: &F, records: u64, path: &str) -> Result<u64> {
    let mut buffer = vec![0; (records * RECORD).min(1 << 20) as usize];
    let (mut offset, mut found) = (0, 0_u64);
    while offset < records * RECORD {
        let left = records * RECORD - offset;
        let wanted = left.min(buffer.len() as u64) as usize;
        let count = file
            .read_at(&mut buffer[..wanted], offset)
            .during("read", path)?;
        let (numbers, rest) = buffer[..count].as_chunks::<{ RECORD as usize }>();
        if numbers.is_empty() {
            let line = format!("{path}: {} bytes at {offset}", rest.len());
            return Err(WorkloadError::Wrong(line));
        }
        let of_these = numbers.iter().map(|number| u64::from_le_bytes(*number));
        found = of_these.fold(found, u64::wrapping_add);
        offset += numbers.len() as u64 * RECORD;
    }
    Ok(found)
}

fn count_up<F: File>(file: &F, offset: u64, path: &str) -> Result<()> {
    let number = read_number(file, offset, path)? + 1;
    file.write_at(&number.to_le_bytes(), offset)
        .map(drop)
        .during("write", path)
}

fn check<T: Target>(workload: &PosixLock, target: &T, crew: Crew) -> Result<()> {
    let mut counted = 0;
    for index in 0..crew.count() {
        let path = count_path(index);
        match target.open(&path, OFlags::RDONLY) {
            // It failed, or did not count.
            Err(Errno::NOENT) => return Ok(()),
            file => counted += read_number(&file.during("open", &path)?, 0, &path)?,
        }
    }
    let paths = match workload.form {
        LockForm::Own => (0..crew.count()).map(own_path).collect(),
        LockForm::Records | LockForm::Shared => vec![SHARED.to_owned()],
    };
    let mut found = 0;
    for path in &paths {
        let file = target.open(path, OFlags::RDONLY).during("open", path)?;
        found += sum(&file, workload.records, path)?;
    }
    if found == counted {
        return Ok(());
    }
    let line =
        format!("the records say {found}, but were counted up {counted} times under their locks");
    Err(WorkloadError::Wrong(line))
}
