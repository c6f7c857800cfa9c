//! `finefs serve`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use finefs_nfs::{ExportOptions, Network, Server, Squash};

use crate::background::{self, Readiness, Role};
use crate::options::MountOptions;
use crate::output::print;
use crate::serve::{EndSignals, finish};
use crate::{CliResult, Failure, logger, mount, open, progress, usage};

/// The port of NFS, which ordinary users may listen on.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// Serve an ext2/3/4 image, or a file system in memory, by NFS version 3
///
/// NFS and MOUNT are on one TCP port, and no port mapper is needed: clients are told the port.
/// Needs no root and no FUSE. It runs in the background until it is told to end by SIGTERM;
/// everything is on the image then.
#[derive(Args)]
#[command(
    override_usage = "finefs serve [OPTIONS] IMAGE\n       finefs serve [OPTIONS] --memory",
    after_help = "Clients name users by numbers and are believed: serve to machines that you trust, \
                  or with --squash all. The options of mount that concern the image or the memory \
                  hold for -o as well (finefs mount --help-options)."
)]
pub(crate) struct Serve {
    /// The image, a file or block device; left out with --memory
    image: Option<PathBuf>,
    /// Serve a file system in memory; what is in it is gone at the end
    #[arg(long)]
    memory: bool,
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
    /// root
    Root,
    /// all
    All,
    /// none: root of a client is root here
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

impl Serve {
    pub(crate) fn run(mut self) -> CliResult<ExitCode> {
        if self.memory == self.image.is_some() {
            let message = "give the image, or --memory";
            usage(&["serve"], ErrorKind::WrongNumberOfValues, message);
        }
        let mut lists = self.options.clone();
        if self.read_only {
            lists.push("ro".into());
        }
        let (options, _) = MountOptions::default().changed_by(&lists, false)?;
        options.check_for(self.memory)?;
        let log = self.log.as_deref().map(mount::open_log).transpose()?;
        // Looked at before the fork, while a relative path still means what the user meant.
        let image = self.image.take();
        self.image = image.map(|path| path.canonicalize().unwrap_or(path));
        logger::start(options.is_debug);
        if self.foreground {
            if log.is_some() {
                logger::redirect(log);
            }
            return self.serve(&options, None);
        }
        match background::start(None, log)? {
            Role::Done(status) => Ok(status),
            Role::Server(readiness) => self.serve(&options, Some(readiness)),
        }
    }

    /// Opens, serves, ends.
    fn serve(self, options: &MountOptions, readiness: Option<Readiness>) -> CliResult<ExitCode> {
        let signals = EndSignals::catch()?;
        let source = match &self.image {
            Some(path) => path.display().to_string(),
            None => "memory".to_owned(),
        };
        let (namespace, claim) = progress::during(&format!("opening {source}"), || {
            open::open(self.image.as_deref(), None, options, &source)
        })?;
        if let Some(claim) = &claim {
            claim.mark_served();
        }
        std::panic::set_hook(Box::new(|panic| log::error!("bug in finefs: {panic}")));
        let export = ExportOptions {
            is_read_only: options.kernel.is_read_only,
            squash: self.squash.into(),
            clients: self.clients.clone(),
            is_async: self.is_async,
        };
        let started = Server::start(namespace.clone(), self.nfs, export)
            .map_err(|error| Failure::new(format!("cannot listen at {}: {error}", self.nfs)))
            .and_then(|server| {
                print(&how_to_mount(&source, server.address()))?;
                if let Some(readiness) = readiness {
                    readiness.report()?;
                }
                Ok(server)
            });
        if let Ok(server) = started {
            signals.wait();
            server.stop();
            if let Some(claim) = &claim {
                claim.mark_ending();
            }
            finish(&source, &namespace).map_err(Failure)?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Err(error) = namespace.shut_down() {
            crate::say(format!("{source}: cannot be closed: {error}"));
        }
        started.map(|_| ExitCode::SUCCESS)
    }
}

/// What its user is told.
fn how_to_mount(source: &str, address: SocketAddr) -> String {
    let port = address.port();
    let host = match address.ip() {
        ip if ip.is_unspecified() => "HOST".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let pid = std::process::id();
    format!(
        "serving {source} at {address} (NFS version 3, TCP)\n\
         Linux:  mount -t nfs -o \
         vers=3,proto=tcp,port={port},mountproto=tcp,mountport={port},nolock {host}:/ DIR\n\
         macOS:  mount -t nfs -o vers=3,tcp,port={port},mountport={port},nolocks {host}:/ DIR\n\
         to end: kill {pid}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_stands_in_the_commands() {
        let text = how_to_mount("x.img", "127.0.0.1:4711".parse().unwrap());
        assert_eq!(text.matches("port=4711").count(), 4);
        assert!(text.contains("nolock 127.0.0.1:/ DIR"));
        let text = how_to_mount("x.img", "[::1]:4711".parse().unwrap());
        assert!(text.contains(" [::1]:/ DIR"));
        let text = how_to_mount("x.img", "0.0.0.0:4711".parse().unwrap());
        assert!(text.contains(" HOST:/ DIR"));
    }
}
