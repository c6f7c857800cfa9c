//! `finefs serve`
//!
//! | Module | Thing |
//! |---|---|
//! | `exports` | what is to be served, of the command line |
//! | `told` | what the user is told |

mod exports;
mod told;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use finefs::front_end::namespace::Namespace;
use finefs_block::Claim;
use finefs_nfs::{
    ExportOptions, LockOptions, Network, RPCBIND_PORT, Rpcbind, Served, Server, ServerOptions,
    Squash,
};

use self::exports::Export;
use crate::attendant::{Attendant, Charge};
use crate::background::{self, Readiness, Role};
use crate::channel::{Answering, Serving, Subject, User};
use crate::file_limit::raise_file_limit;
use crate::inherited::Inherited;
use crate::options::MountOptions;
use crate::output::print;
use crate::serve::{EndSignals, finish};
use crate::{
    CliResult, Failure, channel, confine, logger, mount, open, progress, say, target, usage,
};

/// The port of NFS, which ordinary users may listen on.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// The longest grace period: a day.
const GRACE_SECONDS_MAX: u64 = 86_400;

/// Serve ext2/3/4 images, or a file system in memory, by NFS version 3
///
/// NFS, MOUNT, the lock manager (NLM) and the status monitor (NSM) are on one port. Needs no root
/// and no FUSE. It runs in the background until it is told to end by SIGTERM or finefs umount;
/// everything is on the images then. top, freeze, thaw, sync, lsof and umount take the image or the
/// address.
#[derive(Args)]
#[command(
    override_usage = "finefs serve [OPTIONS] IMAGE\n       finefs serve [OPTIONS] --memory\n       \
                      finefs serve [OPTIONS] --export NAME=IMAGE[,OPTION...] ...",
    after_help = "Clients name users by numbers and are believed: serve to machines that you trust, \
                  or with --squash all. Locks of clients exclude each other only with --rpcbind: \
                  clients ask port 111 of the server's address where the lock manager is. The \
                  options of mount that concern the image or the memory hold for -o as well (finefs \
                  mount --help-options)."
)]
pub(crate) struct Serve {
    /// The image, a file or block device, or a partition of one (IMAGE@p2); left out with --memory
    /// and --export
    image: Option<PathBuf>,
    /// Serve a file system in memory; what is in it is gone at the end
    #[arg(long)]
    memory: bool,
    /// Serve the image as /NAME; may be given several times. Options as in exports(5): ro, rw
    /// (default), clients=CIDR (several times; default: all), squash=root|all|none (default: root),
    /// sync (default), async, secure, insecure (default)
    #[arg(long = "export", value_name = "NAME=IMAGE[,OPTION...]",
        conflicts_with_all = ["read_only", "squash", "clients", "is_async", "secure"])]
    exports: Vec<Export>,
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = ADDRESS)]
    nfs: SocketAddr,
    /// Refuse all changes
    #[arg(short = 'r', long = "ro", alias = "read-only")]
    read_only: bool,
    /// Which users of clients become nobody (65534)
    #[arg(long, value_enum, default_value_t = Squashed::Root)]
    squash: Squashed,
    /// Serve only to addresses in this network, as 192.0.2.0/24; may be given several times
    #[arg(long, value_name = "CIDR")]
    clients: Vec<Network>,
    /// Answer changes of names and attributes before they are on the image, as async of exports(5):
    /// faster, and what was answered in the last seconds is lost if the machine fails
    #[arg(long = "async")]
    is_async: bool,
    /// Refuse calls from ports above 1023, as secure of exports(5)
    #[arg(long)]
    secure: bool,
    /// Tell clients the port of the lock manager: serve (be the port mapper, at port 111 of the
    /// address of --nfs), register (with the rpcbind of this machine, as root), or an address where
    /// to be the port mapper
    #[arg(long, value_name = "serve|register|ADDRESS:PORT")]
    rpcbind: Option<Mapper>,
    /// Note here which clients have locks, so that they get them again when the server was started
    /// again [default: with --rpcbind and an image, a file in the user's state directory]
    #[arg(long, value_name = "FILE")]
    lock_state: Option<PathBuf>,
    /// For how many seconds after such a start clients get their locks again, and nobody else one;
    /// a day at most
    #[arg(long, value_name = "SECONDS", default_value_t = 45,
        value_parser = clap::value_parser!(u64).range(..=GRACE_SECONDS_MAX))]
    grace: u64,
    /// Options, comma separated, as of mount
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground; messages go to the terminal
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Append messages to this file (default: the system log)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Squashed {
    /// Root of a client
    Root,
    /// Everybody
    All,
    /// Nobody does: root of a client is root here
    None,
}

impl From<Squashed> for Squash {
    fn from(squashed: Squashed) -> Squash {
        match squashed {
            Squashed::Root => Squash::Root,
            Squashed::All => Squash::All,
            Squashed::None => Squash::None,
        }
    }
}

/// What tells clients the ports.
#[derive(Clone, Copy)]
enum Mapper {
    Serve,
    Register,
    At(SocketAddr),
}

impl FromStr for Mapper {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Mapper, &'static str> {
        match text {
            "serve" => Ok(Mapper::Serve),
            "register" => Ok(Mapper::Register),
            address => match address.parse() {
                Ok(address) => Ok(Mapper::At(address)),
                Err(_) => Err("give serve, register or an address with a port"),
            },
        }
    }
}

/// A file system that is open.
struct Open {
    namespace: Arc<Namespace>,
    claim: Option<Claim>,
    source: String,
}

impl Serve {
    pub(crate) fn run(mut self) -> CliResult<ExitCode> {
        let ways = [self.memory, self.image.is_some(), !self.exports.is_empty()];
        if ways.iter().filter(|is_given| **is_given).count() != 1 {
            let message = "give the image, or --memory, or --export";
            usage(&["serve"], ErrorKind::WrongNumberOfValues, message);
        }
        let mut lists = self.options.clone();
        if self.read_only {
            lists.push("ro".into());
        }
        let (mut options, _) = MountOptions::default().changed_by(&lists, false)?;
        options.check_for(self.memory)?;
        MountOptions::check_for_serving(&self.options)?;
        if options.run_as.is_some() {
            let line = "option setuid: run finefs serve as that user; it needs no root";
            return Err(Failure::new(line));
        }
        if !self.memory && !options.view().is_plain() {
            let line = "options uid, gid and umask: only a mount shows an image so";
            return Err(Failure::new(line));
        }
        let inherited = Inherited::note();
        let log = self.log.as_deref().map(mount::open_log).transpose()?;
        // Looked at before the fork, while a relative path still means what the user meant.
        if let Some(image) = &mut self.image {
            *image = options.begin_at_partition(image)?;
        }
        for export in &mut self.exports {
            export.locate()?;
        }
        if let Some(path) = &mut self.lock_state {
            *path = std::path::absolute(&*path).map_err(Failure::new)?;
        }
        logger::start(options.is_debug);
        if self.foreground {
            if log.is_some() {
                logger::redirect(log);
            }
            let charge = self.charge(&options);
            let attendant = charge.map(|charge| background::start_attendant(charge, None));
            return self.serve(&options, None, attendant.transpose()?);
        }
        match background::start(None, log, self.charge(&options), inherited)? {
            Role::Done(status) => Ok(status),
            Role::Server(readiness, attendant) => self.serve(&options, Some(readiness), attendant),
        }
    }

    /// What an attendant is for, where the server will be confined and needs one.
    fn charge(&self, options: &MountOptions) -> Option<Charge> {
        let exported = self
            .exports
            .iter()
            .filter_map(|export| export.image.as_ref());
        let images = self.image.iter().chain(exported).chain(&options.journal);
        let charge = Charge::of(None, images);
        (options.sandbox != confine::Sandbox::Off && !charge.exports.is_empty()).then_some(charge)
    }

    /// What is to be served.
    fn all(&self) -> Vec<Export> {
        if !self.exports.is_empty() {
            return self.exports.clone();
        }
        vec![Export {
            name: "/".into(),
            image: self.image.clone(),
            start_bytes: None,
            options: ExportOptions {
                is_read_only: self.read_only,
                squash: self.squash.into(),
                clients: self.clients.clone(),
                is_async: self.is_async,
                needs_reserved_port: self.secure,
            },
        }]
    }

    /// Opens, serves, ends.
    fn serve(
        self,
        options: &MountOptions,
        readiness: Option<Readiness>,
        mut attendant: Option<Attendant>,
    ) -> CliResult<ExitCode> {
        let signals = EndSignals::catch()?;
        // Each connection is one.
        raise_file_limit();
        let all = self.all();
        let mut opened = Vec::new();
        for export in &all {
            match open_one(export, options) {
                Ok(one) => opened.push(one),
                Err(error) => {
                    close(&opened);
                    return Err(error);
                }
            }
        }
        std::panic::set_hook(Box::new(|panic| log::error!("bug in finefs: {panic}")));
        let started = self.start(&all, &opened).and_then(|server| {
            let names = all.iter().map(|export| export.name.clone());
            let sources = opened.iter().map(|one| one.source.clone());
            let served: Vec<_> = names.zip(sources).collect();
            let rpcbind = self.rpcbind();
            let how_to_mount = told::how_to_mount(&served, server.address(), rpcbind);
            let running = Arc::new(Running::default());
            let channels = answer(&all, &opened, &server, options, &running);
            // Nobody else sets it.
            let _ = running.server.set(server);
            // By now the commands that it names work.
            print(&how_to_mount)?;
            for (export, one) in all.iter().zip(&opened) {
                if let Some(advice) = told::advice(export, &one.source, &one.namespace) {
                    say(advice);
                }
            }
            if let Some(attendant) = &mut attendant {
                attendant.connect_from_now_on();
            }
            self.begin(options, &channels, readiness)?;
            Ok((running, channels))
        });
        let (running, channels) = match started {
            Ok(started) => started,
            Err(error) => {
                close(&opened);
                return Err(error);
            }
        };
        signals.wait();
        if let Some(server) = running.server.get() {
            server.end();
        }
        for claim in opened.iter().filter_map(|one| one.claim.as_ref()) {
            claim.mark_ending();
        }
        let finished = opened.iter().map(|one| finish(&one.source, &one.namespace));
        // All of them, whatever becomes of one.
        let finished: Vec<Result<(), String>> = finished.collect();
        let outcome = finished.into_iter().find(Result::is_err).unwrap_or(Ok(()));
        for channel in channels {
            channel.finish(&outcome);
        }
        outcome.map_err(Failure)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Confines the server and lets the launcher end.
    fn begin(
        &self,
        options: &MountOptions,
        channels: &[Answering],
        readiness: Option<Readiness>,
    ) -> CliResult<()> {
        let state_file = self.lock_state.clone().or_else(|| self.state_file());
        let is_registered = matches!(self.rpcbind, Some(Mapper::Register));
        let sandbox = options.sandbox;
        let confinement =
            confine::prepare_serving(sandbox, channels, state_file.as_deref(), is_registered)?;
        let mut readiness = readiness;
        if let Some(readiness) = &mut readiness {
            readiness.leave()?;
        }
        if let Some(confinement) = confinement {
            confinement.apply()?;
        }
        if let Some(readiness) = readiness {
            readiness.report();
        }
        Ok(())
    }

    fn rpcbind(&self) -> Option<Rpcbind> {
        self.rpcbind.map(|mapper| match mapper {
            Mapper::Serve => Rpcbind::Serve(SocketAddr::new(self.nfs.ip(), RPCBIND_PORT)),
            Mapper::Register => Rpcbind::Register,
            Mapper::At(address) => Rpcbind::Serve(address),
        })
    }

    fn start(&self, all: &[Export], opened: &[Open]) -> CliResult<Server> {
        let served = all.iter().zip(opened).map(|(export, one)| Served {
            name: export.name.clone(),
            namespace: one.namespace.clone(),
            options: export.options.clone(),
        });
        let state_file = self.lock_state.clone().or_else(|| self.state_file());
        let options = ServerOptions {
            address: self.nfs,
            rpcbind: self.rpcbind(),
            locks: LockOptions {
                state_file,
                grace: Duration::from_secs(self.grace),
                ..LockOptions::default()
            },
        };
        Server::start_all(served.collect(), &options)
            .map_err(|error| Failure::new(format!("cannot serve at {}: {error}", self.nfs)))
    }

    /// Where the clients that have locks are noted: by address, as clients know the server by that.
    fn state_file(&self) -> Option<PathBuf> {
        if self.rpcbind.is_none() || self.memory || self.nfs.port() == 0 {
            return None;
        }
        let directory = state_directory()?;
        if let Err(error) = std::fs::create_dir_all(&directory) {
            let place = directory.display();
            say(format!("{place}: {error}; locks do not survive a restart"));
            return None;
        }
        Some(directory.join(format!("locks-{}", self.nfs)))
    }
}

/// Where programs of this user keep what they want to find again (XDG Base Directory
/// Specification).
fn state_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/finefs".into());
    }
    let given = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(".local/state"));
    let state = given.filter(|path| path.is_absolute()).or_else(home)?;
    Some(state.join("finefs"))
}

fn open_one(export: &Export, options: &MountOptions) -> CliResult<Open> {
    let source = match &export.image {
        Some(path) => path.display().to_string(),
        None => "memory".to_owned(),
    };
    let mut options = options.clone();
    options.offset_bytes = export.start_bytes.unwrap_or(options.offset_bytes);
    if export.options.is_read_only {
        (options, _) = options.changed_by(&["ro".to_owned()], false)?;
    }
    let (namespace, claim) = progress::during(&format!("opening {source}"), || {
        open::open(export.image.as_deref(), None, &options, &source)
    })?;
    if let Some(claim) = &claim {
        claim.mark_exported();
    }
    Ok(Open {
        namespace,
        claim,
        source,
    })
}

/// Closes what was opened in vain.
fn close(opened: &[Open]) {
    for one in opened {
        if let Err(error) = one.namespace.shut_down() {
            say(format!("{}: cannot be closed: {error}", one.source));
        }
    }
}

/// The server, once it runs.
#[derive(Default)]
struct Running {
    server: OnceLock<Server>,
}

impl Serving for Running {
    fn users(&self) -> Vec<User> {
        let Some(server) = self.server.get() else {
            return Vec::new();
        };
        let clients = server.clients().into_iter().map(|client| User {
            client: client.address.to_canonical().to_string(),
            name: None,
            connections: client.connections,
            lock: None,
        });
        let locks = server.locks().into_iter().map(|lock| User {
            client: lock.client.to_canonical().to_string(),
            name: Some(lock.client_name),
            connections: 0,
            lock: Some((lock.owner, lock.export, lock.ino)),
        });
        clients.chain(locks).collect()
    }

    /// As if it were told by a signal.
    fn stop(&self) {
        let own = rustix::process::getpid();
        // One may always signal oneself.
        let _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
    }
}

/// Answers at a socket for the address, and one for each image. A socket that cannot be had is no
/// reason not to serve.
fn answer(
    all: &[Export],
    opened: &[Open],
    server: &Server,
    options: &MountOptions,
    running: &Arc<Running>,
) -> Vec<Answering> {
    let subject = |which: &[usize]| Subject {
        namespaces: which
            .iter()
            .map(|at| opened[*at].namespace.clone())
            .collect(),
        locking: options.locking,
        is_read_only: which.iter().all(|at| opened[*at].namespace.is_read_only()),
        serving: Some(Arc::clone(running) as Arc<dyn Serving>),
    };
    let every: Vec<usize> = (0..opened.len()).collect();
    let mut wanted = vec![(subject(&every), channel::name_of_address(server.address()))];
    for (at, export) in all.iter().enumerate() {
        let name = |path: &PathBuf| target::name_of_image(Path::new(path)).ok();
        if let Some(name) = export.image.as_ref().and_then(name) {
            wanted.push((subject(&[at]), name));
        }
    }
    let answering = wanted.into_iter().filter_map(|(subject, name)| {
        Answering::about(subject, &name)
            .inspect_err(|reason| say(format!("finefs top and its like do not reach it: {reason}")))
            .ok()
    });
    answering.collect()
}
