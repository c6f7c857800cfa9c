//! Access to /dev/fuse for an ordinary user.
//!
//! Debian's fusermount3 opens /dev/fuse with the caller's rights. On a system with udev everybody
//! may open it (mode 0666); in a container or a small virtual machine it may be root's alone.
//! There, root gives the one user of the proof access by an ACL and takes it back afterwards.

use anyhow::Result;
use finefs_harness::cleanup;
use finefs_harness::run;
use finefs_harness::server::User;
use finefs_harness::tools;
use std::os::unix::fs::MetadataExt;

const DEVICE: &str = "/dev/fuse";

/// Access that was given; taken back on drop.
#[derive(Debug)]
pub struct Access {
    _entry: cleanup::Entry,
}

/// Lets `user` open the device. None when everybody can.
pub fn allow(user: User) -> Result<Option<Access>> {
    if std::fs::metadata(DEVICE)?.mode() & 0o006 == 0o006 {
        return Ok(None);
    }
    let entry = cleanup::acl(DEVICE.as_ref());
    let access = Access { _entry: entry };
    let acl = format!("u:{}:rw", user.0);
    run::ok(&mut run::cmd(
        tools::program("setfacl"),
        ["-m", &acl, DEVICE],
    ))?;
    Ok(Some(access))
}

impl Drop for Access {
    fn drop(&mut self) {
        cleanup::remove_acl(DEVICE.as_ref());
    }
}
