//! `finefs mount`

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use clap::error::ErrorKind;
use finefs::front_end::namespace::Namespace;
use finefs_block::Claim;
use finefs_fuse::AttachError;

use crate::attendant::{Attendant, Charge};
use crate::background::{self, Readiness, Role, Watched};
use crate::channel::Answering;
use crate::confine::{self, Sandbox};
use crate::inherited::Inherited;
use crate::options::{self, MountOptions};
use crate::output::print;
use crate::serve::{self, EndSignals};
use crate::target::find_at;
use crate::{CliResult, Failure, logger, open, progress, remount, say, usage};

/// Mount an ext2/3/4 or reiserfs image, or a file system in memory, at a directory
#[derive(Args)]
#[command(
    override_usage = "finefs mount [OPTIONS] IMAGE DIR\n       finefs mount [OPTIONS] --memory DIR",
    after_help = options::help()
)]
pub(crate) struct Mount {
    /// The image, a file or block device, or a partition of one (IMAGE@p2); left out with --memory
    #[arg(value_name = "IMAGE", required = true)]
    first: Option<PathBuf>,
    /// The directory to mount it at
    #[arg(value_name = "DIR")]
    second: Option<PathBuf>,
    /// Mount a file system in memory; what is in it is gone after unmounting
    #[arg(long)]
    memory: bool,
    /// Mount options, comma separated; see below
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Read-only, as -o ro
    #[arg(short = 'r', long)]
    read_only: bool,
    /// Stay in the foreground until unmounted; messages go to the terminal
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Append messages to this file (default: the system log)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Say which options have no effect, and why
    #[arg(short, long)]
    verbose: bool,
    /// Show all mount options, also those without effect, and end
    #[arg(long, exclusive = true)]
    help_options: bool,
    /// Called by mount(8): its defaults hold.
    #[arg(long, hide = true)]
    by_mount: bool,
    /// mount -f: looks at the options only.
    #[arg(long, hide = true)]
    fake: bool,
    /// mount -s: options that are unknown have no effect.
    #[arg(long, hide = true)]
    sloppy: bool,
}

/// What is to be mounted, and where.
struct Plan {
    /// `None` for memory.
    image: Option<PathBuf>,
    directory: PathBuf,
    options: MountOptions,
    /// What is shown as mounted.
    source: OsString,
}

impl Mount {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        if self.help_options {
            print(&options::page())?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = self.parse(self.defaults())?;
        if options.is_remount {
            return self.remount();
        }
        if self.fake {
            return Ok(ExitCode::SUCCESS);
        }
        let inherited = Inherited::note();
        let log = self.log.as_deref().map(open_log).transpose()?;
        let is_foreground = self.foreground;
        let plan = self.plan(options)?;
        logger::start(plan.options.is_debug);
        let charge = plan.charge();
        let watched = Some(plan.watched());
        if is_foreground {
            if log.is_some() {
                logger::redirect(log);
            }
            let attendant = charge.map(|charge| background::start_attendant(charge, watched));
            return plan.serve(None, attendant.transpose()?);
        }
        // Looked at before the fork, while a relative path still means what the user meant.
        match background::start(watched, log, charge, inherited)? {
            Role::Done(status) => Ok(status),
            Role::Server(readiness, attendant) => plan.serve(Some(readiness), attendant),
        }
    }

    /// What holds where no option says otherwise.
    fn defaults(&self) -> MountOptions {
        let mut options = MountOptions::default();
        // mount(8) hands over nosuid and nodev, and leaves suid and dev out, which are what it does
        // by default.
        let is_by_mount = self.by_mount && rustix::process::geteuid().is_root();
        options.kernel.allows_suid = is_by_mount;
        options.kernel.allows_devices = is_by_mount;
        options
    }

    fn parse(&self, defaults: MountOptions) -> CliResult<MountOptions> {
        let mut lists = self.options.clone();
        if self.read_only {
            lists.push("ro".into());
        }
        let (options, remarks) = defaults.changed_by(&lists, self.sloppy)?;
        if self.verbose {
            remarks.iter().for_each(say);
        }
        Ok(options)
    }

    /// The image, if there is one, and the directory.
    fn places(&self) -> (Option<PathBuf>, PathBuf) {
        let first = self.first.clone().unwrap_or_default();
        match (self.memory, self.second.clone()) {
            (true, None) => (None, first),
            (false, Some(directory)) => (Some(first), directory),
            (true, Some(_)) => misused("--memory takes only the directory"),
            (false, None) => misused("give the image and the directory"),
        }
    }

    /// Changes the flags of what is mounted there.
    fn remount(self) -> CliResult<ExitCode> {
        let first = self.first.clone().unwrap_or_default();
        let directory = self.second.clone().unwrap_or(first);
        let mount = find_at(&directory)?;
        let options = self.parse(match self.by_mount {
            // It hands over all flags that shall hold, old and new.
            true => self.defaults(),
            false => remount::as_it_is(&mount),
        })?;
        if !self.fake {
            remount::remount(&mount, &options, remount::ForcedRefusal::Ends)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(self, mut options: MountOptions) -> CliResult<Plan> {
        options.check_for(self.memory)?;
        if options.kernel.makes_root && (options.kernel.allow_other || options.kernel.checks_root) {
            return Err(Failure::new(
                "option fakeroot: not with allow_other, which would make everybody root there, nor \
                 with default_permissions, which checks what fakeroot does not",
            ));
        }
        if options.kernel.makes_root && !self.memory && !options.view().is_plain() {
            return Err(Failure::new(
                "option fakeroot: not with uid, gid or umask, by which access goes",
            ));
        }
        let is_root = rustix::process::geteuid().is_root();
        if (options.kernel.allows_suid || options.kernel.allows_devices) && !is_root {
            return Err(Failure::new(
                "options suid and dev: only root may give them",
            ));
        }
        let (image, directory) = self.places();
        let image = image.map(|path| options.begin_at_partition(&path));
        let image = image.transpose()?;
        let source = match (&image, &options.source) {
            (None, Some(source)) => source.into(),
            (None, None) => "finefs-memory".into(),
            (Some(path), given) => {
                if given.is_some() {
                    let path = path.display();
                    say(format!(
                        "{path}: option fsname has no effect; the image is shown"
                    ));
                }
                path.into()
            }
        };
        let directory = finefs_fuse::resolve(&directory).unwrap_or(directory);
        Ok(Plan {
            image,
            directory,
            options,
            source,
        })
    }
}

impl Plan {
    /// What is looked after when the server is killed.
    fn watched(&self) -> Watched {
        Watched {
            mount_point: self.directory.clone(),
            is_unmounted: self.options.is_auto_unmounted,
        }
    }

    /// What an attendant is for, where the server will be confined, or something be done when it is
    /// killed.
    fn charge(&self) -> Option<Charge> {
        let options = &self.options;
        let is_confined = options.sandbox != Sandbox::Off || options.run_as.is_some();
        let is_attended = is_confined || options.is_auto_unmounted;
        let images = self.image.iter().chain(&self.options.journal);
        is_attended.then(|| Charge::of(Some(self.directory.clone()), images))
    }

    /// Opens, mounts, serves.
    fn serve(
        self,
        readiness: Option<Readiness>,
        attendant: Option<Attendant>,
    ) -> CliResult<ExitCode> {
        let what = self.source.display().to_string();
        let image = self.image.as_deref();
        let MountOptions {
            sandbox, run_as, ..
        } = &self.options;
        let confinement = confine::prepare(*sandbox, run_as.as_ref(), image)?;
        let signals = EndSignals::catch()?;
        self.remove_dead()?;
        // Before the image is opened, which marks it as in use.
        finefs_fuse::check_mount_point(&self.directory).map_err(Failure::new)?;
        let opened = progress::during(&format!("opening {what}"), || {
            open::open(image, Some(&self.directory), &self.options, &what)
        });
        let (namespace, claim) = opened?;
        if let Some(claim) = &claim {
            claim.mark_served();
        }
        match self.mount(&namespace, claim.as_ref()) {
            Ok(mount) => {
                let channel = Answering::open(
                    &self.directory,
                    namespace.clone(),
                    self.options.locking,
                    namespace.geometry().is_read_only || self.options.kernel.is_read_only,
                );
                let channel = channel
                    .inspect_err(|reason| log::warn!("{what}: no top, no freeze: {reason}"))
                    .ok();
                let ends = serve::Ends {
                    readiness,
                    channel,
                    claim,
                    confinement,
                    attendant,
                };
                serve::serve(mount, &namespace, &what, signals, ends)
            }
            Err(error) => {
                let closed = namespace.shut_down();
                if let Err(error) = closed {
                    say(format!("{what}: cannot be closed: {error}"));
                }
                Err(Failure::new(error))
            }
        }
    }

    /// Makes room for it where a server was killed.
    fn remove_dead(&self) -> CliResult<()> {
        let place = self.directory.display();
        // Of a directory that is not there, the check of it tells.
        let Ok(directory) = finefs_fuse::resolve(&self.directory) else {
            return Ok(());
        };
        match finefs_fuse::remove_dead(&directory) {
            Ok(false) => Ok(()),
            Ok(true) => {
                say(format!(
                    "{place}: took a mount away whose server was killed"
                ));
                Ok(())
            }
            Err(error) => Err(Failure::new(format!(
                "{place}: a mount whose server was killed is there, and cannot be taken away: \
                 {error}"
            ))),
        }
    }

    /// Mounts it: a block device so that the kernel waits for the server at the unmount, where it
    /// does that.
    fn mount(
        &self,
        namespace: &Arc<Namespace>,
        claim: Option<&Claim>,
    ) -> Result<finefs_fuse::Mount, AttachError> {
        let mut options = self.fuse_options(namespace.geometry().is_read_only);
        let attach = |options: &finefs_fuse::Options| {
            finefs_fuse::Mount::new(namespace.clone(), &self.directory, options)
        };
        let is_root = rustix::process::geteuid().is_root();
        let Some(claim) = claim.filter(|claim| claim.is_block_device() && is_root) else {
            return attach(&options);
        };
        let page_bytes = rustix::param::page_size().try_into().unwrap_or(u32::MAX);
        options.device_block_bytes = Some(namespace.geometry().block_size_bytes.min(page_bytes));
        // The kernel takes it for the mount, which fails while this process has it.
        claim.hand_over();
        match attach(&options) {
            Err(AttachError::BlockDevice(_, error)) => {
                log::info!("{}: not as fuseblk: {error}", self.source.display());
                if let Err(error) = claim.take_back() {
                    return Err(AttachError::BlockDevice(self.source.clone(), error));
                }
                options.device_block_bytes = None;
                attach(&options)
            }
            attached => attached.inspect_err(|_| {
                // It is still to be closed, which writes to it.
                let _ = claim.take_back();
            }),
        }
    }

    fn fuse_options(&self, is_read_only: bool) -> finefs_fuse::Options {
        finefs_fuse::Options {
            source: self.source.clone(),
            is_read_only: is_read_only || self.options.kernel.is_read_only,
            view: match self.image {
                Some(_) => self.options.view(),
                None => finefs_fuse::View::default(),
            },
            ..self.options.kernel.clone()
        }
    }
}

pub(crate) fn open_log(path: &Path) -> CliResult<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| Failure::new(format!("{}: cannot log there: {error}", path.display())))
}

fn misused(message: &str) -> ! {
    usage(&["mount"], ErrorKind::WrongNumberOfValues, message)
}
