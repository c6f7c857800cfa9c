//! The journal for who looks at an image without mounting it: what a replay would show, and the
//! replay itself. And mounts for a program that repairs an image: it keeps other hosts away itself
//! ([`crate::MmpCheck`]), where its writes reach the image at all.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::Overlay;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::Superblock;
use finefs_namespace::{Caller, Error, Namespace, Options, Store};

use crate::error::detail;
use crate::journal::listing;
use crate::mount::Protection;
use crate::quota::QuotaUsage;
use crate::recover::{self, Finding};
use crate::{ExtOptions, ExtStore};

pub use crate::found::backup_command;
pub use crate::journal::external::{
    has_external_journal, is_external, is_journal_of, what_journal,
};
pub use crate::journal::listing::{LogBlock, LogContent, LogCopy, LogListing};

/// What the journal of an image asks for.
#[derive(Debug)]
pub enum Replay {
    /// Nothing.
    Nothing,
    /// It must be replayed before the image is what it shall be.
    Pending {
        /// The image as it is then.
        overlay: Overlay,
        /// Whole transactions in the log.
        transactions: u32,
    },
    /// It should be replayed and cannot be, or only in part.
    Damaged {
        /// Why.
        reason: String,
        /// The image after what can be replayed.
        overlay: Overlay,
    },
}

/// Looks at the journal, on the device `external` where that is given. Reads only.
pub fn inspect(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Replay {
    let must_replay = superblock.incompat().contains(Incompat::NEEDS_RECOVERY);
    match recover::inspect(device, external, superblock, geometry) {
        Finding::ReadOnly(reason, overlay) if must_replay => Replay::Damaged { reason, overlay },
        Finding::Replay(journal, log) if must_replay => match recover::overlay(&journal, &log) {
            Ok(overlay) => Replay::Pending {
                overlay,
                transactions: log.transactions,
            },
            Err(error) => Replay::Damaged {
                reason: detail(&error),
                overlay: Overlay::default(),
            },
        },
        // What it says about a journal that need not be replayed is the journal's check to say.
        _ => Replay::Nothing,
    }
}

/// Lists the blocks of the journal's log, on the device `external` where that is given. Reads only.
pub fn list(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Result<LogListing, String> {
    listing::list(device, external, superblock, geometry).map_err(|error| detail(&error))
}

/// Replays the journal on the device and empties it. Gives the number of transactions.
pub fn replay(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Result<u32, String> {
    match recover::inspect(device, None, superblock, geometry) {
        Finding::Nothing => Ok(0),
        Finding::ReadOnly(reason, _) => Err(reason),
        Finding::Replay(journal, log) => {
            let transactions = log.transactions;
            recover::replay(&**device, superblock, journal, log).map_err(|error| detail(&error))?;
            Ok(transactions)
        }
    }
}

fn open(device: &Arc<dyn BlockDevice>) -> Result<ExtStore, String> {
    let options = ExtOptions::default();
    ExtStore::open_with(Arc::clone(device), &options, Protection::Callers)
        .map_err(|error| error.to_string())
}

/// Makes the quota files of an image say that ids have so many bytes and inodes, and others
/// nothing: mounts the image and unmounts it. False where it cannot be written.
pub fn set_quota_usage(
    device: &Arc<dyn BlockDevice>,
    usage: &[QuotaUsage],
) -> Result<bool, String> {
    let store = open(device)?;
    if store.geometry().is_read_only {
        return Ok(false);
    }
    let is_set = store.set_quota_usage(usage).and_then(|()| store.close());
    is_set.map(|()| true).map_err(|error| detail(&error))
}

/// Removes the orphans, as a mount does: mounts the image and unmounts it.
pub fn remove_orphans(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    let store = open(device)?;
    store.close().map_err(|error| detail(&error))
}

/// Makes a directory in the root, which has no entry of that name, for the superuser alone. False
/// where there is no room for it, or the image cannot be written. All that is in use must be marked
/// so.
pub fn make_directory(device: &Arc<dyn BlockDevice>, name: &[u8]) -> Result<bool, String> {
    let made = mounted(device, |namespace| {
        namespace.make_directory(&Caller::root(), namespace.root(), name, 0o700)
    });
    Ok(made?.is_some())
}

/// Makes an empty file that has these names, which are not there, in a directory of the root. Gives
/// its number; `None` where there is no room for all of them, or the image cannot be written: some
/// may be there then. All that is in use must be marked so.
pub fn make_names(
    device: &Arc<dyn BlockDevice>,
    directory: &[u8],
    names: &[Vec<u8>],
) -> Result<Option<u32>, String> {
    mounted(device, |namespace| {
        let caller = Caller::root();
        let dir = namespace.lookup(&caller, namespace.root(), directory)?.ino;
        let (first, rest) = names.split_first().ok_or(Error::Invalid)?;
        let file = namespace.create_file(&caller, dir, first, 0)?.ino;
        for name in rest {
            namespace.make_link(&caller, file, dir, name)?;
        }
        u32::try_from(file.0).map_err(|_| Error::Invalid)
    })
}

/// Mounts an image, has something done to it, and unmounts it. `None` where that found no room.
fn mounted<T>(
    device: &Arc<dyn BlockDevice>,
    work: impl FnOnce(&Namespace) -> finefs_namespace::Result<T>,
) -> Result<Option<T>, String> {
    let store = open(device)?;
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    let namespace = namespace.map_err(|error| detail(&error))?;
    let done = work(&namespace);
    namespace.shut_down().map_err(|error| detail(&error))?;
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::NoSpace | Error::ReadOnly | Error::Exists) => Ok(None),
        Err(error) => Err(detail(&error)),
    }
}
