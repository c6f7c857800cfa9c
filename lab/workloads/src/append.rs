//! append: records are appended to one file by many at once.
//!
//! What Mayhar's patch set was about ("AIO append writes", linux-ext4, January 2012): calls of
//! several threads or processes, or with a depth several appends of each under way at a time
//! (through io_uring on a directory, the library's `Appender` in process). Each record says who
//! wrote it, which of his it is, how long it is, and has a checksum. When all have ended the file
//! must consist of whole records, each writer's in their order and none missing. With a depth a
//! record may come before those that were under way at the time, and a file system without room
//! ends the run.
//!
//! Where there is no room for more, the worker that finds out truncates the file to nothing and the
//! load goes on, as logs are rotated. The file then ends with each writer's last records, in their
//! order.

use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Plan, Watch};
use crate::report::{Report, rate};
use crate::targets::{Errno, File, OFlags, Target, remove_tree, write_all_at};
use crate::worker::Worker;
use crate::workload::{Detail, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The parameters of append.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct Append {
    /// Shortest record in bytes, at least 24
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub record_min: u32,
    /// Longest record in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 8192)]
    pub record_max: u32,
    /// Sync the data after so many records; 0: never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub sync_every: u32,
    /// Appends of each worker that are under way at a time
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
}

impl Default for Append {
    fn default() -> Append {
        Append {
            record_min: 64,
            record_max: 8192,
            sync_every: 0,
            depth: 1,
        }
    }
}

const DIR: &str = "append";
const PATH: &str = "append/file";

/// Writer, number, length and checksum.
const HEADER: usize = 4 + 8 + 4 + 8;

/// How often the file is begun anew for one record before a worker gives up.
const BEGINNINGS_MAX: u32 = 8;

/// What append counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AppendDetail {
    /// Appended.
    pub bytes: u64,
    /// How often there was no room, and the file was begun anew.
    pub begun_anew: u64,
}

impl Detail for AppendDetail {
    fn add(&mut self, other: AppendDetail) {
        self.bytes += other.bytes;
        self.begun_anew += other.begun_anew;
    }
}

/// FNV-1a (Fowler, Noll, Vo), of 64 bits, over words: it need not be strong, only see what is torn.
fn checksum(data: &[u8]) -> u64 {
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3);
    let words = data.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(0xcbf2_9ce4_8422_2325, step)
}

/// Makes a record of the whole of `record`, whose rest may be anything.
fn seal(record: &mut [u8], writer: u32, number: u64) {
    let length = record.len() as u32;
    record[0..4].copy_from_slice(&writer.to_le_bytes());
    record[4..12].copy_from_slice(&number.to_le_bytes());
    record[12..16].copy_from_slice(&length.to_le_bytes());
    record[16..24].fill(0);
    let sum = checksum(record);
    record[16..24].copy_from_slice(&sum.to_le_bytes());
}

/// The writer, number and length of the record that `data` begins with, if it is whole and right.
fn unseal(data: &mut [u8]) -> Option<(u32, u64, usize)> {
    let header: [u8; HEADER] = data.get(..HEADER)?.try_into().ok()?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
    let half = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default());
    let length = half(12) as usize;
    if length < HEADER {
        return None;
    }
    let record = data.get_mut(..length)?;
    record[16..24].fill(0);
    (checksum(record) == word(16)).then(|| (half(0), word(4), length))
}

/// What a writer leaves for the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    /// Records that it wrote.
    records: u64,
    /// How often it began the file anew.
    begun_anew: u64,
}

impl Count {
    /// Of a writer that has not come to its end.
    const NONE: Count = Count {
        records: u64::MAX,
        begun_anew: 0,
    };

    fn to_bytes(self) -> [u8; 16] {
        let all = u128::from(self.begun_anew) << 64 | u128::from(self.records);
        all.to_le_bytes()
    }

    fn of_bytes(bytes: [u8; 16]) -> Count {
        let all = u128::from_le_bytes(bytes);
        Count {
            records: all as u64,
            begun_anew: (all >> 64) as u64,
        }
    }
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
}

/// Truncates the file to nothing, where there is no room for more.
fn begin_anew<F: File>(file: &F, counts: &mut [&mut u64]) -> Result<()> {
    file.set_len(0).during("truncate", PATH)?;
    counts.iter_mut().for_each(|count| **count += 1);
    Ok(())
}

/// Where a writer leaves its [`Count`].
fn count_path(writer: usize) -> String {
    format!("{DIR}/{writer}")
}

impl Workload for Append {
    const NAME: &'static str = "append";

    const THREADS: usize = 4;

    type Detail = AppendDetail;

    fn operations(&self) -> &'static str {
        "appends"
    }

    fn check(&self, _: &Plan) -> Result<()> {
        if (self.record_min as usize) < HEADER || self.record_max < self.record_min {
            let line = format!(
                "records have at least {HEADER} bytes, the longest not less than the shortest"
            );
            return Err(WorkloadError::Parameters(line));
        }
        if self.depth > 1 && self.sync_every > 0 {
            let line = "a sync waits for every append: no depth with it".to_owned();
            return Err(WorkloadError::Parameters(line));
        }
        Ok(())
    }

    fn prepare<T: Target>(&self, target: &T, _: &Plan, _: Watch<'_>) -> Result<()> {
        target.create_dir(DIR).during("mkdir", DIR)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        target.open(PATH, flags).map(drop).during("create", PATH)
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<AppendDetail> {
        if self.depth > 1 {
            return self.work_ahead(target, worker);
        }
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = target.open(PATH, flags).during("open", PATH)?;
        let mut record = vec![0; self.record_max as usize];
        worker.rng.fill(&mut record);
        let writer = worker.index() as u32;
        // Made before there is no room left for it.
        let count_file = match worker.verifies() {
            true => Some(make_count(target, worker.index())?),
            false => None,
        };
        let mut begun_anew = 0;
        let (mut number, mut detail) = (0_u64, AppendDetail::default());
        worker.start()?;
        while worker.goes_on() {
            if worker.operations() == 0 {
                detail = AppendDetail::default();
            }
            let length = worker.rng.u32(self.record_min..=self.record_max) as usize;
            seal(&mut record[..length], writer, number);
            let mut is_done = false;
            for attempt in 0..BEGINNINGS_MAX {
                match file.append(&record[..length]) {
                    Ok(count) if count == length => is_done = true,
                    // There was room for a part of it; for the rest there is none.
                    Ok(count) => match file.append(&record[count..length]) {
                        Err(errno) if is_full(errno) => {}
                        Err(errno) => return Err(errno).during("append", PATH),
                        Ok(_) => {
                            let line =
                                format!("{count} bytes of a record of {length} were appended");
                            return Err(WorkloadError::Wrong(line));
                        }
                    },
                    Err(errno) if is_full(errno) => {}
                    Err(errno) => return Err(errno).during("append", PATH),
                }
                if is_done {
                    break;
                }
                begin_anew(&file, &mut [&mut begun_anew, &mut detail.begun_anew])?;
                if attempt > 0 {
                    // Some file systems give what was freed only when that is durable.
                    target.sync().during("sync", DIR)?;
                }
            }
            if !is_done {
                worker.end_all();
                break;
            }
            number += 1;
            detail.bytes += length as u64;
            if self.sync_every != 0 && number.is_multiple_of(u64::from(self.sync_every)) {
                match file.sync_data() {
                    Err(errno) if is_full(errno) => {
                        begin_anew(&file, &mut [&mut begun_anew, &mut detail.begun_anew])?;
                    }
                    result => result.during("sync", PATH)?,
                }
            }
            worker.done();
        }
        worker.end();
        if let Some((path, file)) = count_file {
            let count = Count {
                records: number,
                begun_anew,
            };
            write_all_at(&file, &count.to_bytes(), 0).during("write", &path)?;
        }
        Ok(detail)
    }

    fn clean_up<T: Target>(&self, target: &T, crew: Crew) -> Result<()> {
        let outcome = read_counts(target, crew).and_then(|counts| match counts {
            Some(counts) => check(target, &counts, self),
            None => Ok(()),
        });
        remove_tree(target, DIR).during("remove", DIR)?;
        outcome
    }

    fn describe(&self, report: &Report<Append>) -> String {
        let per_second = rate(report.detail.bytes, report.seconds);
        let mut text = format!("{}\n{:.1} MB/s", report.line(), per_second / 1e6);
        if report.detail.begun_anew > 0 {
            text.push_str(&format!(
                "\nno room: the file was begun anew, {} times",
                report.detail.begun_anew
            ));
        }
        text
    }

    fn what_to_raise(&self) -> &'static str {
        "the space: there was none even for the first records of a file"
    }
}

impl Append {
    /// The work with several appends under way.
    fn work_ahead<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<AppendDetail> {
        let mut appends = target
            .open_appends(PATH, self.depth)
            .during("begin appends to", PATH)?;
        let mut record = vec![0; self.record_max as usize];
        worker.rng.fill(&mut record);
        let writer = worker.index() as u32;
        let count_file = match worker.verifies() {
            true => Some(make_count(target, worker.index())?),
            false => None,
        };
        let (mut number, mut detail) = (0_u64, AppendDetail::default());
        worker.start()?;
        while worker.goes_on() {
            if worker.operations() == 0 {
                detail = AppendDetail::default();
            }
            let length = worker.rng.u32(self.record_min..=self.record_max) as usize;
            seal(&mut record[..length], writer, number);
            appends.submit(&record[..length]).during("append", PATH)?;
            number += 1;
            detail.bytes += length as u64;
            worker.done();
        }
        appends.finish().during("append", PATH)?;
        worker.end();
        if let Some((path, file)) = count_file {
            let count = Count {
                records: number,
                begun_anew: 0,
            };
            write_all_at(&file, &count.to_bytes(), 0).during("write", &path)?;
        }
        Ok(detail)
    }
}

fn make_count<T: Target>(target: &T, writer: usize) -> Result<(String, T::File)> {
    let path = count_path(writer);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = target.open(&path, flags).during("create", &path)?;
    write_all_at(&file, &Count::NONE.to_bytes(), 0).during("write", &path)?;
    Ok((path, file))
}

/// What each writer left; `None` when they left nothing, or not all came to an end.
fn read_counts<T: Target>(target: &T, crew: Crew) -> Result<Option<Vec<Count>>> {
    let mut counts = Vec::new();
    for writer in 0..crew.count() {
        let path = count_path(writer);
        let file = match target.open(&path, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.during("open", &path)?,
        };
        let mut bytes = Count::NONE.to_bytes();
        file.read_at(&mut bytes, 0).during("read", &path)?;
        match Count::of_bytes(bytes) {
            Count::NONE => return Ok(None),
            count => counts.push(count),
        }
    }
    Ok(Some(counts))
}

/// What is to come of a writer's records.
#[derive(Clone, Debug)]
struct Due {
    /// The number that is due; `None` where any may be the first.
    number: Option<u64>,
    /// Those that came before it.
    early: BTreeSet<u64>,
}

impl Due {
    /// Takes note of a record; false if it cannot be this one's turn. One comes before another that
    /// was handed over earlier only if both were under way.
    fn take(&mut self, number: u64, depth: u32) -> bool {
        let due = *self.number.get_or_insert(number);
        if number < due || number - due >= u64::from(depth) || !self.early.insert(number) {
            return false;
        }
        let mut next = due;
        while self.early.remove(&next) {
            next += 1;
        }
        self.number = Some(next);
        true
    }
}

/// The file is a sequence of just these records; if it was begun anew, of the last ones of each
/// writer.
fn check<T: Target>(target: &T, counts: &[Count], append: &Append) -> Result<()> {
    let record_max = append.record_max as usize;
    let file = target.open(PATH, OFlags::RDONLY).during("open", PATH)?;
    let is_whole = counts.iter().all(|count| count.begun_anew == 0);
    let first = Due {
        number: is_whole.then_some(0),
        early: BTreeSet::new(),
    };
    let mut next = vec![first; counts.len()];
    let mut data = Vec::new();
    let (mut start, mut offset) = (0, 0_u64);
    loop {
        if data.len() - start < record_max {
            data.drain(..start);
            start = 0;
            let before = data.len();
            data.resize(before + (1 << 20), 0);
            let count = file.read_at(&mut data[before..], offset + before as u64);
            data.truncate(before + count.during("read", PATH)?);
        }
        if start == data.len() {
            break;
        }
        let wrong = |what: String| WorkloadError::Wrong(format!("{PATH} at {offset}: {what}"));
        let (writer, number, length) =
            unseal(&mut data[start..]).ok_or_else(|| wrong("no whole record".to_owned()))?;
        let due = next.get_mut(writer as usize);
        if !due.is_some_and(|due| due.take(number, append.depth)) {
            return Err(wrong(format!("record {number} of writer {writer}")));
        }
        start += length;
        offset += length as u64;
    }
    let is_last = |(due, count): (&Due, &Count)| {
        due.early.is_empty() && due.number.is_none_or(|number| number == count.records)
    };
    if !next.iter().zip(counts).all(is_last) {
        let line =
            format!("{PATH} ends before records {next:?} of its writers, who left {counts:?}");
        return Err(WorkloadError::Wrong(line));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_early_within_the_depth_alone() {
        let due = || Due {
            number: Some(0),
            early: BTreeSet::new(),
        };
        let mut order = due();
        assert!([1, 0, 2, 4, 3].iter().all(|number| order.take(*number, 2)));
        assert_eq!((order.number, order.early.len()), (Some(5), 0));
        assert!(!order.take(4, 2), "twice");
        assert!(!order.take(7, 2), "too early");
        let mut order = due();
        assert!(order.take(0, 1) && !order.take(2, 1));
    }

    #[test]
    fn a_torn_record_is_seen() {
        let mut record = vec![7; 100];
        seal(&mut record, 3, 9);
        assert_eq!(unseal(&mut record.clone()), Some((3, 9, 100)));
        for at in 0..100 {
            let mut torn = record.clone();
            torn[at] ^= 0x40;
            assert_eq!(unseal(&mut torn), None, "{at}");
        }
        assert_eq!(unseal(&mut record[..99].to_vec()), None);
    }
}
