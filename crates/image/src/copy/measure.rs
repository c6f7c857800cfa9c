//! How much there is to copy: for the time that is left, and for how much space is missing.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use super::Options;
use super::file::{block_bytes, follow};
use crate::attributes::Attributes;
use crate::error::Result;
use crate::tree::SourceDir;

/// What sources hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Files, directories and others.
    pub files: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
    /// Bytes of the blocks that they take, where a block is as large as was asked.
    pub block_bytes: u64,
}

/// Counts what copying a source means, to where blocks are of `block` bytes. What cannot be read
/// counts as nothing; `go_on` is asked between directories.
pub fn measure(
    source: &Arc<dyn SourceDir>,
    name: &OsStr,
    options: &Options,
    block: u64,
    go_on: &dyn Fn() -> bool,
) -> Totals {
    let mut totals = Totals::default();
    let mut count = |attributes: &Attributes| {
        totals.files += 1;
        totals.bytes += match attributes.kind {
            finefs::FileKind::Regular => attributes.size.min(attributes.sectors * 512),
            _ => 0,
        };
        totals.block_bytes += block_bytes(attributes, block);
    };
    let mut levels: Vec<(Arc<dyn SourceDir>, Vec<OsString>)> =
        vec![(Arc::clone(source), vec![name.to_owned()])];
    let mut is_named = true;
    while let Some((dir, names)) = levels.last_mut() {
        let Some(name) = names.pop() else {
            levels.pop();
            continue;
        };
        let follow = follow(options.links, is_named);
        is_named = false;
        let Ok(attributes) = dir.attributes(&name, follow) else {
            continue;
        };
        count(&attributes);
        if attributes.is_directory() && options.is_recursive && go_on() {
            let opened = dir.open_dir(&name, follow);
            let open =
                |dir: Arc<dyn SourceDir>| -> Result<_> { Ok((Arc::clone(&dir), dir.names()?)) };
            if let Ok(level) = opened.and_then(open) {
                levels.push(level);
            }
        }
    }
    totals
}
