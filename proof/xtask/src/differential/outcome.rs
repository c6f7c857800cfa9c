//! What comes of an operation.

use super::operation::Bytes;
use rustix::io::Errno;
use std::fmt;

/// What an operation gives back when it succeeds.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Done,
    /// A count, an offset.
    Number(u64),
    /// A count, and the file's position then.
    Moved(u64, u64),
    /// Contents.
    Bytes(Vec<u8>),
    /// Contents of a large file: its size, and where it is not zeros, with the sum of each page.
    Sparse(u64, Vec<(u64, u64)>),
    /// Names with their types, in order.
    Names(Vec<(Bytes, u8)>),
    /// Where data begins and ends.
    Ranges(Vec<(u64, u64)>),
    /// What must be the same, as text.
    Text(String),
    /// What statfs says.
    Statfs(Space),
}

/// The numbers of statfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Block size.
    pub block: u64,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that not only root may use.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u64,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Done => f.write_str("done"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Moved(count, position) => write!(f, "{count}, then at {position}"),
            Value::Bytes(bytes) => {
                let hash = blake3::hash(bytes).to_hex();
                write!(f, "{} bytes {}", bytes.len(), &hash[..8])?;
                match bytes.len() <= 64 {
                    true => write!(f, " {:?}", Bytes(bytes.clone())),
                    false => Ok(()),
                }
            }
            Value::Sparse(size, pages) => write!(f, "{size} bytes with data in {pages:?}"),
            Value::Names(names) => write!(f, "{} names", names.len()),
            Value::Ranges(ranges) => write!(f, "data in {ranges:?}"),
            Value::Text(text) => f.write_str(text),
            Value::Statfs(space) => write!(f, "{space:?}"),
        }
    }
}

/// What came of an operation.
pub type Outcome = Result<Value, Errno>;

/// The error's name.
pub fn name(errno: Errno) -> String {
    format!("{:?}", nix::errno::Errno::from_raw(errno.raw_os_error()))
}

/// An outcome for a message.
pub fn shown(outcome: &Outcome) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(errno) => name(*errno),
    }
}
