//! Appends that go on while who made them does something else.
//!
//! # Data model
//! Records wait in a queue, and one thread takes all that wait at once and appends them as one: one
//! lock of the range, one allocation and one log group for as many as there are. Where that fails
//! each is tried by itself, so that each has the outcome that it would have had alone.
//!
//! # Invariants
//! 1. At most `depth` records are under way: handed over, and not taken back by
//!    [`Appender::next_completion`].
//! 2. Records of one appender lie in the file in the order in which they were handed over, and
//!    complete in it.
//!
//! # Locking
//! `appender.queue` guards the queue; a leaf: appends are made without it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use finefs_locks::{Condvar, Mutex};

use crate::classes;
use crate::error::{Error, Result};
use crate::file::File;

/// Records are put together up to so many bytes.
const TOGETHER_BYTES: usize = 1 << 20;

/// An append that has come to its end.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// let appender = finefs::Appender::new(fs.create("log")?, 1)?;
/// appender.submit(b"up\n".to_vec(), 7).expect("one may be under way");
/// let done = appender.next_completion().expect("it is under way");
/// assert_eq!((done.token, done.outcome?), (7, 0));
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Debug)]
pub struct Completion {
    /// What it was handed over with.
    pub token: u64,
    /// The record, whose memory can be used again.
    pub record: Vec<u8>,
    /// The offset in the file at which it begins.
    pub outcome: Result<u64>,
}

/// Appends to one file, several of them under way at a time, as with io_uring(7) or aio(7).
///
/// ```
/// use finefs::{Appender, FileSystem};
///
/// let fs = FileSystem::memory(1 << 20)?;
/// let appender = Appender::new(fs.create("log")?, 8)?;
/// for number in 0..3 {
///     let record = format!("line {number}\n").into_bytes();
///     appender.submit(record, number).expect("eight may be under way");
/// }
/// while let Some(done) = appender.next_completion() {
///     assert_eq!(done.outcome?, done.token * 7);
/// }
/// assert_eq!(fs.read_to_string("log")?, "line 0\nline 1\nline 2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it waits for what is under way. What was appended is durable when the file was synced
/// after its completion.
pub struct Appender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    file: File,
    depth: usize,
    queue: Mutex<Queue>,
    /// Something waits, or it is over.
    submitted: Condvar,
    /// Something has completed, or was taken.
    completed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Vec<u8>, u64)>,
    done: VecDeque<Completion>,
    /// All that were handed over and not taken back.
    under_way: usize,
    is_over: bool,
}

impl Appender {
    /// Appends to `file`, at most `depth` (one at least) records under way at a time. An error when
    /// no thread can be started.
    pub fn new(file: File, depth: usize) -> Result<Appender> {
        let shared = Arc::new(Shared {
            file,
            depth: depth.max(1),
            queue: Mutex::new(&classes::APPENDS, Queue::default()),
            submitted: Condvar::new(),
            completed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("finefs-append".into())
            .spawn(move || of_thread.append_all())
            .map_err(|error| Error::host("start appender", None, error))?;
        Ok(Appender {
            shared,
            thread: Some(thread),
        })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.shared.file
    }

    /// Hands a record over, which comes back with `token` when it was appended, or could not be.
    /// Gives it back where `depth` are under way: take a completion first.
    pub fn submit(&self, record: Vec<u8>, token: u64) -> std::result::Result<(), Vec<u8>> {
        let mut queue = self.shared.queue.lock();
        if queue.under_way >= self.shared.depth {
            return Err(record);
        }
        queue.under_way += 1;
        queue.waiting.push_back((record, token));
        let is_first = queue.waiting.len() == 1;
        drop(queue);
        if is_first {
            self.shared.submitted.notify_one();
        }
        Ok(())
    }

    /// The next append that has come to its end: waits for it. `None` when none is under way.
    pub fn next_completion(&self) -> Option<Completion> {
        let mut queue = self.shared.queue.lock();
        while queue.done.is_empty() && queue.under_way > 0 {
            self.shared.completed.wait(&mut queue);
        }
        take(&mut queue)
    }

    /// The same without waiting: `None`, too, when none has come to its end.
    pub fn try_completion(&self) -> Option<Completion> {
        take(&mut self.shared.queue.lock())
    }
}

fn take(queue: &mut Queue) -> Option<Completion> {
    let done = queue.done.pop_front()?;
    queue.under_way -= 1;
    Some(done)
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.shared.queue.lock().is_over = true;
        self.shared.submitted.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic was told when it happened; nothing here is poisoned by it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Appends what is handed over until it is over.
    fn append_all(&self) {
        let mut together = Vec::new();
        while let Some(records) = self.take_waiting() {
            let done = self.append(records, &mut together);
            self.queue.lock().done.extend(done);
            self.completed.notify_all();
        }
    }

    /// Waits for records; `None` when no more come.
    fn take_waiting(&self) -> Option<Vec<(Vec<u8>, u64)>> {
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() {
            if queue.is_over {
                return None;
            }
            self.submitted.wait(&mut queue);
        }
        let mut bytes = 0;
        let fits = |record: &&(Vec<u8>, u64)| {
            bytes += record.0.len();
            bytes <= TOGETHER_BYTES
        };
        let count = queue.waiting.iter().take_while(fits).count().max(1);
        Some(queue.waiting.drain(..count).collect())
    }

    /// Appends records; `together` is room for them.
    fn append(&self, records: Vec<(Vec<u8>, u64)>, together: &mut Vec<u8>) -> Vec<Completion> {
        let offset = match &records[..] {
            [_] => None,
            _ => {
                together.clear();
                records.iter().for_each(|(data, _)| together.extend(data));
                // An error may be of one of them alone.
                self.file.append(together).ok()
            }
        };
        let mut next = offset;
        let complete = |(record, token): (Vec<u8>, u64)| {
            let outcome = match next {
                Some(at) => {
                    next = Some(at + record.len() as u64);
                    Ok(at)
                }
                None => self.file.append(&record),
            };
            Completion {
                token,
                record,
                outcome,
            }
        };
        records.into_iter().map(complete).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileSystem;

    #[test]
    fn records_are_in_order_and_whole() {
        let fs = FileSystem::memory(8 << 20).unwrap();
        let appenders: Vec<_> = ["a", "a", "b"]
            .iter()
            .map(|name| {
                let file = crate::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&fs.open_dir(".").unwrap(), name)
                    .unwrap();
                Appender::new(file, 5).unwrap()
            })
            .collect();
        std::thread::scope(|scope| {
            for (index, appender) in appenders.iter().enumerate() {
                scope.spawn(move || {
                    let mut expected = 0;
                    for number in 0..2000_u64 {
                        let length = 9 + (number % 90) as usize;
                        let mut record = vec![index as u8; length];
                        record[..8].copy_from_slice(&number.to_le_bytes());
                        let mut waiting = Some(record);
                        while let Some(record) = waiting.take() {
                            if let Err(record) = appender.submit(record, number) {
                                waiting = Some(record);
                                let done = appender.next_completion().unwrap();
                                assert_eq!(done.token, expected);
                                assert!(done.outcome.is_ok());
                                expected += 1;
                            }
                        }
                    }
                    while let Some(done) = appender.next_completion() {
                        assert_eq!(done.token, expected);
                        expected += 1;
                    }
                    assert_eq!(expected, 2000);
                });
            }
        });
        drop(appenders);
        for (name, writers) in [("a", &[0_u8, 1][..]), ("b", &[2])] {
            let data = fs.read(name).unwrap();
            let (mut at, mut next) = (0, [0_u64; 3]);
            while at < data.len() {
                let number = u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
                let length = 9 + (number % 90) as usize;
                let writer = data[at + 8];
                assert!(data[at + 8..at + length].iter().all(|byte| *byte == writer));
                assert_eq!(next[writer as usize], number);
                next[writer as usize] += 1;
                at += length;
            }
            assert!(writers.iter().all(|writer| next[*writer as usize] == 2000));
        }
    }

    #[test]
    fn each_has_its_own_outcome() {
        let fs = FileSystem::memory(1 << 20).unwrap();
        let appender = Appender::new(fs.create("full").unwrap(), 8).unwrap();
        // The first may come by itself; the last fits again.
        let large = vec![1; 700 << 10];
        for (token, record) in [large.clone(), large, vec![2; 10]].into_iter().enumerate() {
            appender.submit(record, token as u64).unwrap();
        }
        let outcomes: Vec<_> = std::iter::from_fn(|| appender.next_completion())
            .map(|done| done.outcome.map_err(|error| error.errno()))
            .collect();
        assert_eq!(outcomes, [Ok(0), Err(libc::ENOSPC), Ok(700 << 10)]);
        assert!(appender.try_completion().is_none());
    }

    #[test]
    fn no_more_than_the_depth_are_under_way() {
        let fs = FileSystem::memory(1 << 20).unwrap();
        let appender = Appender::new(fs.create("file").unwrap(), 2).unwrap();
        appender.submit(vec![1], 1).unwrap();
        appender.submit(vec![2], 2).unwrap();
        assert_eq!(appender.submit(vec![3], 3), Err(vec![3]));
        assert_eq!(appender.next_completion().unwrap().token, 1);
        appender.submit(vec![3], 3).unwrap();
        drop(appender);
        assert_eq!(fs.read("file").unwrap(), [1, 2, 3]);
    }
}
