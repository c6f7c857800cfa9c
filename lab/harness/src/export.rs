//! An image on a server: what finefs reaches by NBD.

use crate::cleanup::Scratch;
use crate::run::{self, Running};
use anyhow::{Result, bail};
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server may need to listen, and to end.
const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(60);

/// Where finefs finds an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Storage {
    /// In a file.
    #[default]
    File,
    /// On nbdkit.
    Nbdkit,
    /// On nbdkit, which answers each request after a millisecond.
    NbdkitSlow,
    /// On qemu-nbd.
    QemuNbd,
}

impl Storage {
    /// Starts the server of an image; `None` where there is none.
    pub fn serve(self, image: &Path) -> Result<Option<Export>> {
        let (program, args): (_, &[&str]) = match self {
            Storage::File => return Ok(None),
            Storage::Nbdkit => ("nbdkit", &["file"]),
            Storage::NbdkitSlow => (
                "nbdkit",
                &["--filter=delay", "rdelay=1ms", "wdelay=1ms", "file"],
            ),
            Storage::QemuNbd => ("qemu-nbd", &["-f", "raw", "--discard=unmap"]),
        };
        let image = image.as_os_str();
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([image]).collect();
        Export::start(program, &args).map(Some)
    }
}

/// A server of one export at a socket; it is killed on drop.
#[derive(Debug)]
pub struct Export {
    server: Running,
    socket: PathBuf,
    _dir: Scratch,
}

impl Export {
    /// Starts nbdkit or qemu-nbd with these arguments beside those for the socket.
    pub fn start(program: &str, args: &[&OsStr]) -> Result<Export> {
        let dir = Scratch::new_in(&std::env::temp_dir())?;
        let socket = dir.path().join("nbd");
        let own: &[&str] = match program {
            "nbdkit" => &["-f", "-U"],
            // For any number of clients, and when the last has gone too.
            _ => &["--persistent", "--shared=0", "--socket"],
        };
        let mut command = run::cmd(program, own);
        let mut server = run::spawn(command.arg(&socket).args(args))?;
        let start = Instant::now();
        // It is there before somebody listens at it.
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = server.try_wait()? {
                bail!("{command:?}: {status}");
            }
            if start.elapsed() > START_LIMIT {
                bail!("{command:?}: does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Export {
            server,
            socket,
            _dir: dir,
        })
    }

    /// What finefs and qemu-img call it.
    pub fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The socket that it listens at.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Lets it end in order: what it was given is in the image then.
    pub fn end(mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.server.pid() as i32) {
            rustix::process::kill_process(pid, Signal::TERM)?;
        }
        let (status, killed) = self.server.wait_limit(END_LIMIT)?;
        match killed {
            false => Ok(()),
            true => bail!("the NBD server did not end: {status}"),
        }
    }
}
