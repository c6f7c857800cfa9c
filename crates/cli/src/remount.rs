//! `finefs remount`, `finefs mount -o remount`: other flags for what is mounted.
//!
//! The kernel keeps them (ro, nosuid and the like), and only those are changed: the server goes on
//! as it was mounted. Of sync it is told, since the kernel heeds that for data alone; dirsync no
//! kernel changes by a remount. A mount that becomes read-only is so for its users; its server has
//! the image open for writing all the same, and puts everything on it once.
//!
//! ro is a flag of the file system, and one of each mount of it. A bind mount that is read-only
//! stays so, and leaves the others as they are.
//!
//! The kernel makes nothing read-only that somebody has open for writing. By force the server
//! refuses all changes instead, so that their writes fail.
//!
//! mount(8) hands over all options of the mount that it knows, from fstab or mountinfo: those of
//! the server have no effect, which is told but for those that hold in any case. `finefs remount`
//! refuses them.

use std::path::PathBuf;

use clap::Args;
use finefs::AtimePolicy;
use finefs_fuse::{AttachError, MountPoint, Remounted};

use crate::channel::{Change, Channel};
use crate::options::MountOptions;
use crate::output::print_beside;
use crate::target::find_at;
use crate::{CliResult, Failure, lsof, say, sync};

/// Change flags of a mounted file system: ro, rw, nosuid, nodev, noexec, sync and their like
///
/// As mount -o remount. It stays writable while somebody has a file open for writing: who that is
/// is told, and the status is 1.
#[derive(Args)]
pub(crate) struct Remount {
    /// Flags, comma separated
    #[arg(short, long, value_name = "OPTIONS", required = true)]
    options: Vec<String>,
    /// With ro: refuse all changes, so that writes to files that are open for writing fail
    #[arg(short, long)]
    force: bool,
    /// The directory that it is mounted at
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Remount {
    pub(crate) fn run(self) -> CliResult<()> {
        let mount = find_at(&self.directory)?;
        let (options, _) = as_it_is(&mount).changed_by(&self.options, false)?;
        let place = mount.path.display();
        let fail = |reason: String| Failure::new(format!("{place}: {reason}"));
        let is_read_only = options.kernel.is_read_only;
        let left = left_by(&mount, &options);
        if !left.is_empty() {
            return Err(fail(format!("only a new mount changes {}", left.join(","))));
        }
        if self.force && !is_read_only {
            return Err(fail("--force goes with ro".to_owned()));
        }
        if self.force {
            let channel = Channel::of(&mount).map_err(fail)?;
            // What was written before and is only in the kernel is not refused.
            if let Err(reason) = sync::everything(&mount) {
                say(format!("{place}: {reason}"));
            }
            channel.change(Change::Refuse).map_err(fail)?;
            // Where the kernel does not make it read-only (not for this user, or not while somebody
            // writes), the server is enough.
            let everywhere = Remounted::FileSystem;
            if finefs_fuse::remount(&mount.path, &options.kernel, everywhere).is_err() {
                let writers = lsof::writers(&mount);
                if !writers.is_empty() {
                    say(format!(
                        "{place}: open for writing, and writes fail from now on:"
                    ));
                    print_beside(&writers);
                }
            }
            return Ok(());
        }
        // What was refused by force stays so until this is asked for.
        let mut words = self.options.iter().flat_map(|words| words.split(','));
        let refusal = match words.any(|word| word == "rw") {
            true => ForcedRefusal::Ends,
            false => ForcedRefusal::Stays,
        };
        remount(&mount, &options, refusal)
    }
}

/// The options that would mount it as it is, as far as a remount can change them.
pub(crate) fn as_it_is(mount: &MountPoint) -> MountOptions {
    let mut options = MountOptions::default();
    let kernel = &mut options.kernel;
    kernel.is_read_only = mount.has_option("ro");
    kernel.allows_suid = !mount.has_option("nosuid");
    kernel.allows_devices = !mount.has_option("nodev");
    kernel.allows_execution = !mount.has_option("noexec");
    kernel.follows_symlinks = !mount.has_option("nosymfollow");
    kernel.is_synchronous = mount.has_option("sync");
    kernel.is_directory_synchronous = mount.has_option("dirsync");
    kernel.atime = match (mount.has_option("noatime"), mount.has_option("relatime")) {
        (true, _) => AtimePolicy::Noatime,
        (_, true) => AtimePolicy::Relatime,
        _ => AtimePolicy::Strict,
    };
    kernel.notes_directories = !mount.has_option("nodiratime");
    options
}

/// What these options ask of the server, but for what the mount has: no remount changes it.
fn left_by<'a>(mount: &MountPoint, options: &'a MountOptions) -> Vec<&'a str> {
    let times = |options: &MountOptions| (options.kernel.atime, options.kernel.notes_directories);
    let has_times = times(options) == times(&as_it_is(mount));
    let is_left = |word: &&str| match word.ends_with("atime") {
        true => !has_times,
        false => !mount.has_option(word),
    };
    let words = options.of_server.iter().map(String::as_str);
    words.filter(is_left).collect()
}

/// Why the kernel did not change the flags. The writers are named.
fn refused(mount: &MountPoint, error: AttachError) -> Failure {
    let AttachError::Remount(place, reason) = &error else {
        return Failure::new(error);
    };
    if reason.raw_os_error() != Some(libc::EBUSY) {
        return Failure::new(error);
    }
    let place = place.display();
    // A process that waits for the thaw has something open for writing.
    if Channel::of(mount).and_then(|channel| channel.is_frozen()) == Ok(true) {
        return Failure::new(format!(
            "{place}: is frozen, and changes wait in it; finefs thaw {place} comes first"
        ));
    }
    print_beside(&lsof::writers(mount));
    Failure::new(format!(
        "{place}: busy: files in it are open for writing; with --force finefs remount makes their \
         writes fail"
    ))
}

/// What has to be remounted for flags to become others, and with which: what is read-only at this
/// place alone must not become so everywhere, nor the other way round.
fn reach(
    mount: &MountPoint,
    before: &finefs_fuse::Options,
    wanted: &finefs_fuse::Options,
) -> (Remounted, finefs_fuse::Options) {
    let is_kept = wanted.is_read_only == before.is_read_only;
    let is_read_only = match is_kept {
        true => mount.is_read_only,
        false => wanted.is_read_only,
    };
    let is_of_all =
        is_read_only != mount.is_read_only || wanted.is_synchronous != before.is_synchronous;
    let mut flags = wanted.clone();
    if is_kept && !is_of_all {
        flags.is_read_only = mount.flags.iter().any(|flag| flag == "ro");
    }
    match is_of_all {
        true => (Remounted::FileSystem, flags),
        false => (Remounted::Place, flags),
    }
}

/// What becomes of a refusal of changes by force (`--force` of [`Remount`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForcedRefusal {
    /// The server is told to take changes again, unless the mount is to be read-only.
    Ends,
    Stays,
}

/// Gives the mount these flags.
pub(crate) fn remount(
    mount: &MountPoint,
    options: &MountOptions,
    refusal: ForcedRefusal,
) -> CliResult<()> {
    let place = mount.path.display();
    let fail = |reason: &str| Failure::new(format!("{place}: {reason}"));
    let mut kernel = as_it_is(mount).kernel;
    (kernel.atime, kernel.notes_directories) =
        (options.kernel.atime, options.kernel.notes_directories);
    kernel.is_directory_synchronous = options.kernel.is_directory_synchronous;
    let changes_flags = options.kernel != kernel;
    if changes_flags && !rustix::process::geteuid().is_root() {
        return Err(fail("only root can remount; unmount it and mount it again"));
    }
    let (what, flags) = reach(mount, &kernel, &options.kernel);
    let of_all = what == Remounted::FileSystem;
    if of_all && flags.is_read_only && mount.is_read_only_here_alone() {
        return Err(fail(
            "is read-only here alone; ask for sync where it is mounted writable",
        ));
    }
    let becomes_read_only = of_all && flags.is_read_only && !mount.is_read_only;
    if becomes_read_only {
        // Its server has to be there for what comes after the flags.
        let answer = Channel::of(mount).and_then(|channel| channel.is_read_only());
        answer.map_err(|reason| fail(&format!("cannot become read-only: {reason}")))?;
    }
    if mount.is_read_only && !options.kernel.is_read_only {
        let answer = Channel::of(mount).and_then(|channel| channel.is_read_only());
        if answer.map_err(|reason| fail(&format!("cannot become writable: {reason}")))? {
            return Err(fail(
                "its server has the image open for reading only; unmount it and mount it again",
            ));
        }
    }
    if refusal == ForcedRefusal::Ends && !options.kernel.is_read_only {
        let accepted = Channel::of(mount).and_then(|channel| channel.change(Change::Accept));
        accepted.map_err(|reason| fail(&reason))?;
    }
    let left = left_by(mount, options);
    if !left.is_empty() {
        say(format!(
            "{place}: only a new mount changes {}; left as it was",
            left.join(",")
        ));
    }
    if !changes_flags {
        return Ok(());
    }
    if let Err(error) = finefs_fuse::remount(&mount.path, &flags, what) {
        return Err(refused(mount, error));
    }
    if options.kernel.is_synchronous != kernel.is_synchronous {
        let are_so = options.kernel.is_synchronous || mount.has_option("dirsync");
        let change = Change::SynchronousDirectories(are_so);
        let told = Channel::of(mount).and_then(|channel| channel.change(change));
        told.map_err(|error| fail(&format!("its server is not told of sync: {error}")))?;
    }
    if becomes_read_only {
        // What the kernel held is at the server by now.
        let synced = Channel::of(mount).and_then(|channel| channel.change(Change::Sync));
        synced.map_err(|error| fail(&format!("is read-only, but not on the image: {error}")))?;
    }
    Ok(())
}
