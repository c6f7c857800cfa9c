//! One file that all threads append records to: what a crash may leave of it.
//!
//! An append is one operation, and commits hold operations whole and in their order. So what is
//! there is whole records from the first on; each thread's are there without a gap, not fewer than
//! were synced, nor more than had begun. Nothing else is in the file: no bytes of another one, or
//! that nobody wrote.
//!
//! Without a journal the inode of a batch that a crash tears may be there and the blocks that map
//! its file not. Then what was synced is whole, and behind that are records, parts of them and
//! zeros.

use super::base::is_poison;
use super::oracle::{History, Window};
use super::tree::Tree;
use super::{SHARED_LOG, mix};

/// Mark, thread, number, length.
const HEAD_BYTES: usize = 8;
const MARK: u8 = 0xc5;
const LENGTH_MAX: u64 = 1500;
const SECTOR: usize = 512;

/// The record of this number of a thread.
pub fn record(thread: usize, number: usize) -> Vec<u8> {
    let mut state = mix(mix(thread as u64) ^ number as u64);
    let length = HEAD_BYTES + (state % LENGTH_MAX) as usize;
    let mut bytes = vec![MARK, thread as u8];
    bytes.extend((number as u32).to_le_bytes());
    bytes.extend((length as u16).to_le_bytes());
    while bytes.len() < length {
        state = mix(state);
        let left = (length - bytes.len()).min(8);
        bytes.extend_from_slice(&state.to_le_bytes()[..left]);
    }
    bytes
}

/// Whether a tree's log is right for these threads; `may_be_torn` without a journal.
pub fn judge(
    tree: &Tree,
    histories: &[History],
    windows: &[Window],
    may_be_torn: bool,
) -> Result<(), String> {
    let Some(found) = tree
        .names
        .get(SHARED_LOG)
        .and_then(|ino| tree.inodes.get(ino))
    else {
        return Err(format!("{SHARED_LOG:?} is missing"));
    };
    let (counts, outcome) = read(&found.data, histories.len());
    match outcome {
        Err(text) if !may_be_torn => return Err(format!("{SHARED_LOG:?}: {text}")),
        Err(_) if found.data.chunks(SECTOR).any(is_poison) => {
            return Err(format!("{SHARED_LOG:?} has bytes that nobody wrote"));
        }
        _ => {}
    }
    for (thread, (history, window)) in histories.iter().zip(windows).enumerate() {
        let last = history.records.len() - 1;
        let allowed = history.records[window.synced]..=history.records[window.begun.min(last)];
        if !allowed.contains(&counts[thread]) {
            return Err(format!(
                "{SHARED_LOG:?} has {} records of thread {thread}, must have {allowed:?}",
                counts[thread]
            ));
        }
    }
    Ok(())
}

/// How many records each thread has, up to the first that is not right, and what is wrong with
/// that.
fn read(mut data: &[u8], threads: usize) -> (Vec<usize>, Result<(), String>) {
    let mut counts = vec![0; threads];
    while !data.is_empty() {
        match next(data, &counts) {
            Ok((thread, rest)) => {
                counts[thread] += 1;
                data = rest;
            }
            Err(what) => {
                let all: usize = counts.iter().sum();
                let begin = &data[..data.len().min(16)];
                return (counts, Err(format!("record {all} {what}: {begin:02x?}...")));
            }
        }
    }
    (counts, Ok(()))
}

/// The thread of the first record, and what follows it.
fn next<'a>(data: &'a [u8], counts: &[usize]) -> Result<(usize, &'a [u8]), &'static str> {
    let Some(&[MARK, thread, ..]) = data.first_chunk::<HEAD_BYTES>() else {
        return Err("has no head");
    };
    let thread = usize::from(thread);
    let Some(count) = counts.get(thread) else {
        return Err("is of no thread");
    };
    data.strip_prefix(&record(thread, *count)[..])
        .map(|rest| (thread, rest))
        .ok_or("is not whole, or not the next of its thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_records_in_their_order_are_right() {
        let log = [record(0, 0), record(1, 0), record(0, 1)].concat();
        assert_eq!(read(&log, 2), (vec![2, 1], Ok(())));
        assert_eq!(read(&[], 2), (vec![0, 0], Ok(())));
        let is_wrong = |data: &[u8], counts: [usize; 2]| {
            let (found, outcome) = read(data, 2);
            assert_eq!(found, counts);
            assert!(outcome.is_err());
        };
        // Half a record, a gap, another order, zeros behind, bytes of others in place of one.
        is_wrong(&log[..log.len() - 1], [1, 1]);
        is_wrong(&[record(0, 0), record(0, 2)].concat(), [1, 0]);
        is_wrong(&[record(0, 1), record(0, 0)].concat(), [0, 0]);
        is_wrong(&[log.clone(), vec![0; 512]].concat(), [2, 1]);
        let mut foreign = log.clone();
        let end = foreign.len();
        foreign[end - 5..].fill(0xa7);
        is_wrong(&foreign, [1, 1]);
        is_wrong(&record(2, 0), [0, 0]);
    }
}
