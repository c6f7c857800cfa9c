//! The fast commit area, as the kernel leaves it: small commits on top of the log's last
//! transaction. They are said in terms of inodes and names, not of blocks; `fast_commit` carries
//! them out.
//!
//! A fast commit begins a block and ends in a tail, which has the checksum of all records since the
//! tail before. What has no right tail was not finished when the kernel stopped, and counts as
//! little as what is behind it.

use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::jbd2::fast_commit::{self, FcHead, FcTag, FcTail, HEADER_SIZE};
use finefs_namespace::{Error, Result};

use super::Journal;

/// The records of whole fast commits, in order.
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    /// How many commits they are of.
    pub count: u32,
    /// Tags and values.
    pub records: Vec<(FcTag, Vec<u8>)>,
}

/// Bytes of a tail's value that its checksum covers.
const TAIL_COVERED: usize = 4;

impl Journal {
    /// The fast commits on top of the log that ends before the transaction `sequence`.
    pub fn fast_commits(&self, sequence: u32) -> Result<FastCommits> {
        let mut commits = FastCommits::default();
        // The area starts one block behind the log: the block between is never used.
        let start = self.superblock.log_end().saturating_add(1);
        let mut bytes = vec![0; self.format.block_size as usize];
        let mut pending = Vec::new();
        let mut checksum = 0;
        for block in start..self.superblock.max_len() {
            self.read(block, &mut bytes)?;
            for record in fast_commit::records(&bytes) {
                let Ok(record) = record else {
                    return Ok(commits);
                };
                let is_first = block == start && record.offset == 0;
                let end = record.offset + HEADER_SIZE + record.value.len();
                match record.tag {
                    FcTag::Unknown(_) => return Ok(commits),
                    FcTag::Head => match FcHead::parse(record.value) {
                        Some(head) if is_first && head.transaction == sequence => {
                            if head.features != 0 {
                                return Err(Error::corrupt("fast commits of an unknown kind"));
                            }
                        }
                        _ => return Ok(commits),
                    },
                    _ if is_first => return Ok(commits),
                    FcTag::Tail => {
                        let covered = &bytes[record.offset..end - TAIL_COVERED];
                        checksum = crc32c(checksum, covered);
                        let tail = FcTail::parse(record.value);
                        if tail.is_none_or(|tail| {
                            tail.transaction != sequence || tail.checksum != checksum
                        }) {
                            return Ok(commits);
                        }
                        commits.records.append(&mut pending);
                        commits.count += 1;
                        checksum = 0;
                        continue;
                    }
                    FcTag::Pad => {}
                    tag => pending.push((tag, record.value.to_vec())),
                }
                checksum = crc32c(checksum, &bytes[record.offset..end]);
            }
        }
        Ok(commits)
    }
}
