//! Journals that lie on a device of their own: which of several is an image's.

use std::path::{Path, PathBuf};

use finefs_block::Access;
use finefs_ext::replay;

use crate::error::Result;
use crate::image::{Format, format_of, open_device};

/// Which of `candidates` the journal of an image lies on: none where the image has its own, the
/// first where none fits, so that opening the image with it says why not. Nothing is written.
///
/// # Errors
/// The image or a candidate cannot be opened.
pub fn journal_of(
    image: &Path,
    offset_bytes: u64,
    candidates: &[PathBuf],
) -> Result<Option<PathBuf>> {
    let Some(first) = candidates.first() else {
        return Ok(None);
    };
    let image = open_device(image, Access::Inspect, offset_bytes)?;
    let is_reiserfs = format_of(&*image) == Some(Format::Reiserfs);
    let is_external = match is_reiserfs {
        true => finefs_reiser::has_external_journal(&*image),
        false => replay::has_external_journal(&*image),
    };
    if !is_external {
        return Ok(None);
    }
    for candidate in candidates {
        let journal = open_device(candidate, Access::Inspect, 0)?;
        let fits = match is_reiserfs {
            true => finefs_reiser::is_journal_of(&*journal, &*image),
            false => replay::is_journal_of(&*journal, &*image),
        };
        if fits {
            return Ok(Some(candidate.clone()));
        }
    }
    Ok(Some(first.clone()))
}
