//! From a name to a device.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_block::{
    Access, BlockDevice, Claim, OpenError, OpenErrorKind, PartitionDevice, Patience,
};

use crate::format::{Format, recognise};
use crate::{android, vhd, vmdk};

/// How an image is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For what.
    pub access: Access,
    /// False where nobody waits for the disk.
    pub has_barriers: bool,
    /// How long to wait for a server that writes it out.
    pub patience: Patience,
    /// As what; by its first bytes without it.
    pub format: Option<Format>,
}

/// An open image.
pub struct Opened {
    /// Its bytes.
    pub device: Arc<dyn BlockDevice>,
    /// What keeps others away; `None` where nothing does, as on servers.
    pub claim: Option<Claim>,
    /// How it lies in its file.
    pub format: Format,
}

/// True for storage that a server has, not a path of the host.
pub fn is_url(name: &OsStr) -> bool {
    const SCHEMES: [&str; 4] = ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"];
    let name = name.as_encoded_bytes();
    SCHEMES
        .iter()
        .any(|scheme| name.starts_with(scheme.as_bytes()))
}

/// The name that means the same from every directory.
pub fn absolute(name: &Path) -> PathBuf {
    if !is_url(name.as_os_str()) {
        return name.canonicalize().unwrap_or_else(|_| name.to_owned());
    }
    // A socket's path may be relative.
    let text = name.to_string_lossy();
    let socket = text.split_once("socket=").map(|pair| pair.1);
    let socket = socket.map(|rest| rest.split('&').next().unwrap_or(rest));
    match (socket, std::env::current_dir()) {
        (Some(socket), Ok(here)) if !socket.is_empty() && !socket.starts_with(['/', '%']) => {
            let whole = here.join(socket);
            let (old, new) = (format!("socket={socket}"), whole.display().to_string());
            PathBuf::from(text.replacen(&old, &format!("socket={new}"), 1))
        }
        _ => name.to_owned(),
    }
}

/// Opens what `name` says: a path, or the URL of an NBD export.
///
/// # Errors
/// Those of [`finefs_block::FileDevice::open`]; `Refused` for a format that cannot be read or, for
/// writing, be written; `Io` with what a server does wrong.
pub fn open(name: &Path, options: &Options) -> Result<Opened, OpenError> {
    if is_url(name.as_os_str()) {
        return open_url(name, options);
    }
    let fail = |kind| OpenError {
        path: name.to_owned(),
        kind,
    };
    let mut file = options.patience.open(name, options.access)?;
    if !options.has_barriers {
        file = file.without_barriers();
    }
    let claim = file.claim();
    let is_block_device = std::fs::metadata(name).is_ok_and(|found| !found.is_file());
    let format = match (options.format, is_block_device) {
        (Some(format), _) => format,
        (None, true) => Format::Raw,
        (None, false) => recognise(&file)
            .map_err(|error| fail(OpenErrorKind::Io(error)))?
            .map_err(|reason| fail(OpenErrorKind::Refused(reason)))?,
    };
    if options.access == Access::ReadWrite && !format.can_be_written() {
        let reason = format!(
            "is in the format {format}, which can only be read; finefs convert makes a raw image \
             of it"
        );
        return Err(fail(OpenErrorKind::Refused(reason)));
    }
    let file = Arc::new(file);
    let device: io::Result<Arc<dyn BlockDevice>> = match format {
        Format::Raw => Ok(file),
        Format::Vhd => vhd::open(file).map(|device| Arc::new(device) as _),
        Format::Vmdk => {
            return open_vmdk(name, &*file, options).map_err(|error| refused(name, error));
        }
        Format::AndroidSparse => {
            android::SparseDevice::open(file).map(|device| Arc::new(device) as _)
        }
        #[cfg(feature = "qcow2")]
        Format::Qcow2 => {
            crate::qcow2::open(file, options.has_barriers).map(|device| Arc::new(device) as _)
        }
        #[cfg(feature = "compressed")]
        Format::Gzip | Format::Zstd | Format::Xz => {
            crate::compressed::open(&file, format).map(|device| Arc::new(device) as _)
        }
        #[allow(
            unreachable_patterns,
            reason = "which are there is a matter of features"
        )]
        other => Err(io::Error::other(format!(
            "is in the format {other}, which this build of finefs does not read"
        ))),
    };
    let device = device.map_err(|error| refused(name, error))?;
    Ok(Opened {
        device,
        claim,
        format,
    })
}

/// What a format says against an image; an error of the system, or of another file, is itself.
fn refused(name: &Path, error: io::Error) -> OpenError {
    let is_of_system = error.raw_os_error().is_some();
    match error.downcast::<OpenError>() {
        Ok(error) => error,
        Err(error) => OpenError {
            path: name.to_owned(),
            kind: match is_of_system {
                true => OpenErrorKind::Io(error),
                false => OpenErrorKind::Refused(error.to_string()),
            },
        },
    }
}

#[cfg(feature = "nbd")]
fn open_url(name: &Path, options: &Options) -> Result<Opened, OpenError> {
    let fail = |kind| OpenError {
        path: name.to_owned(),
        kind,
    };
    let uri = finefs_nbd::NbdUri::parse(name.as_os_str());
    let uri = uri.map_err(|reason| fail(OpenErrorKind::Refused(reason)))?;
    let is_read_only = options.access != Access::ReadWrite;
    let device = finefs_nbd::NbdDevice::open(&uri, is_read_only);
    let device = device.map_err(|error| match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => fail(OpenErrorKind::ReadOnly),
        _ => fail(OpenErrorKind::Io(error)),
    })?;
    let device = match options.has_barriers {
        true => device,
        false => device.without_barriers(),
    };
    Ok(Opened {
        device: Arc::new(device),
        claim: None,
        format: Format::Raw,
    })
}

/// True for an export to which finefs connects again when it loses the connection.
#[cfg(feature = "nbd")]
pub fn is_reconnecting(name: &OsStr) -> bool {
    is_url(name) && finefs_nbd::NbdUri::parse(name).is_ok_and(|uri| !uri.reconnect_delay.is_zero())
}

/// Connects to the server of an export, for a process that [`connect_by`] speaks of.
///
/// # Errors
/// In the words that a user knows.
#[cfg(feature = "nbd")]
pub fn connect(name: &Path) -> io::Result<OwnedFd> {
    let uri = finefs_nbd::NbdUri::parse(name.as_os_str()).map_err(io::Error::other)?;
    finefs_nbd::dial(&uri)
}

/// From now on `connect` connects this process to servers, given an export's URL, because it may
/// not do so any more by itself. Only the first one counts.
#[cfg(feature = "nbd")]
pub fn connect_by(connect: fn(&str) -> io::Result<OwnedFd>) {
    finefs_nbd::dial_by(connect);
}

/// False: there are no exports.
#[cfg(not(feature = "nbd"))]
pub fn is_reconnecting(_name: &OsStr) -> bool {
    false
}

/// Fails: there are no exports.
#[cfg(not(feature = "nbd"))]
pub fn connect(_name: &Path) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Nothing connects.
#[cfg(not(feature = "nbd"))]
pub fn connect_by(_connect: fn(&str) -> io::Result<OwnedFd>) {}

#[cfg(not(feature = "nbd"))]
fn open_url(name: &Path, _options: &Options) -> Result<Opened, OpenError> {
    Err(OpenError {
        path: name.to_owned(),
        kind: OpenErrorKind::Refused("this build of finefs does not speak NBD".to_owned()),
    })
}

/// Opens the data of the VMDK whose descriptor is open as `file`.
fn open_vmdk(path: &Path, file: &dyn BlockDevice, options: &Options) -> io::Result<Opened> {
    let data = vmdk::data(path, file)?;
    if data.is_read_only && options.access == Access::ReadWrite {
        return Err(io::Error::other(
            "is a VMDK that may only be read (RDONLY in its descriptor); open it read-only",
        ));
    }
    let options = Options {
        format: Some(Format::Raw),
        ..*options
    };
    let opened = open(&data.path, &options).map_err(io::Error::other)?;
    let part = PartitionDevice::new(opened.device, data.start_bytes, Some(data.length_bytes));
    let part = part.map_err(|_| {
        io::Error::other(format!(
            "is a VMDK of {} bytes, which {} does not have",
            data.length_bytes,
            data.path.display()
        ))
    })?;
    // The claim of the data: the descriptor is never written.
    Ok(Opened {
        device: Arc::new(part),
        claim: opened.claim,
        format: Format::Vmdk,
    })
}
