//! Opens what is mounted or served: an image, or memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use finefs::front_end::namespace::{Error, Namespace, Store};
use finefs::{ImageOptions, MemoryOptions, OnError};
use finefs_block::{Access, Claim};
use finefs_image::address::partitions_named;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::options::MountOptions;
use crate::size::Size;
use crate::{CliResult, Failure, keys, say, spare_memory};

/// How long the server of the last mount of an image is waited for while it writes out what is
/// left.
const SERVER_PATIENCE: Duration = Duration::from_secs(600);

/// Opens the image at this path, or memory, as the options say. `mount_point` is noted in the
/// image, and `source` names it in messages. Changes of a frozen file system fail, to be tried
/// again: a server thread that waited would serve nobody.
pub(crate) fn open(
    image: Option<&Path>,
    mount_point: Option<&Path>,
    options: &MountOptions,
    source: &str,
) -> CliResult<(Arc<Namespace>, Option<Claim>)> {
    let Some(path) = image else {
        return Ok((open_memory(options)?, None));
    };
    let mut image_options = ImageOptions::new()
        .offset_bytes(options.offset_bytes)
        .size_limit_bytes(options.size_limit_bytes)
        .recovery(!options.skips_recovery)
        .read_only(options.kernel.is_read_only)
        .barriers(!options.lacks_barriers)
        .discard(options.discards)
        .commit_interval(options.commit_interval)
        .when_quiet(spare_memory::give_back)
        .atime(options.kernel.atime)
        .directory_atime(options.kernel.notes_directories)
        .bsd_groups(options.has_bsd_groups)
        .synchronous_directories(options.has_synchronous_directories())
        .on_error(options.on_error)
        .acls(options.has_acls)
        .locking(options.locking)
        .wait_for_server(SERVER_PATIENCE, |path| {
            say(format!(
                "{}: waiting for the server of its last mount, which still writes it out",
                path.display()
            ));
        })
        .waits_for_thaw(false);
    if let Some(mount_point) = mount_point {
        image_options = image_options.mount_point(mount_point);
    }
    image_options = image_options.quota_limits(options.quota_limits.iter().copied());
    if let Some(path) = &options.journal {
        image_options = image_options.journal(path);
    }
    for path in &options.keys {
        image_options = image_options.key(keys::read(path)?);
    }
    if !options.keys.is_empty() {
        // What a crash leaves shall not hold them.
        let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        hidden.map_err(|error| Failure::new(format!("core dumps cannot be ruled out: {error}")))?;
    }
    if let Some(size) = options.cache {
        image_options = image_options.cache(size.bytes());
    }
    if let Some(size) = options.data_cache {
        image_options = image_options.data_cache_max(size.bytes());
    }
    let image = finefs::front_end::open_image(path, image_options);
    let image = image.map_err(|error| not_opened(error, path, options, source))?;
    for note in image.notes {
        say(format!("{source}: {note}"));
    }
    if image.on_error == OnError::Panic {
        image.namespace.on_stop(end_at_once);
    }
    Ok((image.namespace, image.claim))
}

/// As fuse2fs does (errors=panic). The mount stays, dead.
fn end_at_once(error: &Error, store: &dyn Store) {
    log::error!("ending at once (errors=panic)");
    // A failed commit has left it already.
    if matches!(error, Error::Corrupt(_)) {
        store.write_error(error);
    }
    std::process::abort();
}

/// Names the partitions where a whole disk was taken for a file system; the error of anything else.
fn advised(error: finefs::Error, path: &Path, source: &str) -> Result<Failure, finefs::Error> {
    if Errno::from_raw_os_error(error.errno()) != Errno::INVAL {
        return Err(error);
    }
    let disk = finefs::front_end::open_device(path, Access::Inspect, 0);
    let advice = disk.ok().and_then(|disk| partitions_named(&*disk, source));
    advice.map(Failure::new).ok_or(error)
}

/// Says what to do where it may be read but not written, or is a whole disk.
fn not_opened(error: finefs::Error, path: &Path, options: &MountOptions, source: &str) -> Failure {
    let is_read_only = options.kernel.is_read_only;
    let error = match options.offset_bytes {
        0 => match advised(error, path, source) {
            Ok(advice) => return advice,
            Err(error) => error,
        },
        _ => error,
    };
    let errno = Errno::from_raw_os_error(error.errno());
    match is_read_only || !matches!(errno, Errno::ACCESS | Errno::ROFS) {
        true => Failure::new(error),
        false => Failure::new(format!("{error}, or mount it with -o ro")),
    }
}

fn open_memory(options: &MountOptions) -> CliResult<Arc<Namespace>> {
    let size = options.size.unwrap_or(Size::PercentOfMemory(50));
    // As tmpfs: everybody may make files.
    let root_mode = options.mode.unwrap_or(0o1777);
    let uid = options.uid.unwrap_or(rustix::process::getuid().as_raw());
    let gid = options.gid.unwrap_or(rustix::process::getgid().as_raw());
    let made = MemoryOptions::new()
        .root_mode(root_mode)
        .root_owner(uid, gid)
        .read_only(options.kernel.is_read_only)
        .atime(options.kernel.atime)
        .directory_atime(options.kernel.notes_directories)
        .bsd_groups(options.has_bsd_groups)
        .synchronous_directories(options.has_synchronous_directories())
        .waits_for_thaw(false)
        .acls(options.has_acls)
        .locking(options.locking)
        .open_namespace(size.bytes_in_memory()?);
    made.map_err(Failure::new)
}
