//! What errors leave behind in the image: the state ERROR, and when and what the first and the last
//! were.
//!
//! # Rules
//! - Damage that is found (while loading, while applying) is noted in the superblock in memory, and
//!   goes to the device with the next commit or at the end.
//! - When commits have become impossible the note is written at once, past the journal: into the
//!   superblock as the device has it, with nothing else changed. A replay may put an older copy
//!   over it, so the journal's own superblock says so too (`s_errno`), for e2fsck, the kernel and
//!   [`crate::recover`] to find after the replay.
//! - Nothing here fails: where the device does not take the note, there is none.
//!
//! # References
//! `fs/ext4/super.c` (save_error_info, ext4_handle_error, ext4_clear_journal_err);
//! `fs/jbd2/journal.c` (jbd2_journal_abort).

use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use finefs_namespace::{Error, Result, Timestamp};

use crate::state::ExtState;

/// Who saw the error, where the kernel has the name of a function.
const SEEN_BY: &[u8] = b"finefs";

/// The codes of `s_first_error_errcode` (EXT4_ERR_*).
fn code(error: &Error) -> u8 {
    match error {
        Error::Io(_) => 2,
        Error::Corrupt(_) => 5,
        _ => 1,
    }
}

/// Puts an error into a superblock.
pub(crate) fn put(superblock: &mut Superblock, error: &Error) {
    let now = Timestamp::now().seconds().max(0) as u64;
    let mut seen_by = [0; 32];
    seen_by[..SEEN_BY.len()].copy_from_slice(SEEN_BY);
    superblock.set_state(superblock.state() | State::ERROR);
    if superblock.error_count() == 0 {
        superblock.set_first_error_time(now);
        superblock.set_first_error_errcode(code(error));
        superblock.set_first_error_func_raw(&seen_by);
        superblock.set_first_error_ino(0);
        superblock.set_first_error_line(0);
        superblock.set_first_error_block(0);
    }
    superblock.set_last_error_time(now);
    superblock.set_last_error_errcode(code(error));
    superblock.set_last_error_func_raw(&seen_by);
    superblock.set_last_error_ino(0);
    superblock.set_last_error_line(0);
    superblock.set_last_error_block(0);
    superblock.set_error_count(superblock.error_count().saturating_add(1));
}

/// Passes a result on; damage in it is noted, to be written with the next commit.
pub(crate) fn noted<T>(state: &ExtState, result: Result<T>) -> Result<T> {
    if let Err(error @ Error::Corrupt(_)) = &result
        && !state.is_read_only
    {
        put(&mut state.superblock.lock(), error);
    }
    result
}

/// Writes down that commits have become impossible.
pub(crate) fn write_stop(state: &ExtState, error: &Error) {
    if let Err(error) = try_write_stop(state, error) {
        log::warn!(
            "{}: the error could not be noted in the image: {error}",
            state.device.describe()
        );
    }
}

fn try_write_stop(state: &ExtState, error: &Error) -> std::io::Result<()> {
    let device = &*state.device;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let mut superblock = Superblock::parse(&bytes).map_err(std::io::Error::other)?;
    put(&mut superblock, error);
    superblock.update_checksum();
    device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
    let writer = state.journal.lock().take();
    if let Some(mut writer) = writer {
        let outcome = writer.note_error().map_err(std::io::Error::other);
        *state.journal.lock() = Some(writer);
        outcome?;
    }
    device.flush()
}
