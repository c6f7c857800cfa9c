//! What options with a value set, and which values they take.

use std::time::Duration;

use finefs::{LockingScheme, OnError};
use finefs_fuse::WakeupLatency;

use super::MountOptions;
use crate::confine::{RunAs, Sandbox};
use crate::size::{self, Size};
use crate::{CliResult, Failure, accounts};

/// The longest commit interval: beyond it the option is a mistake.
const COMMIT_SECONDS_MAX: u64 = 3600;

/// The least memory for a cache: below it a mount would do little but read things again.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// A bound above a second would bound nothing.
const CPU_LATENCY_US_MAX: u32 = 1_000_000;

fn number<N: std::str::FromStr>(name: &str, value: &str) -> CliResult<N> {
    value.parse().map_err(|_| bad(name, value, "a number"))
}

pub(super) fn bad(name: &str, value: &str, wanted: &str) -> Failure {
    Failure::new(format!("option {name}={value}: give {wanted}"))
}

pub(super) fn commit(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.commit_interval = match number(name, value)? {
        // As with the kernel's ext4: 0 is the default.
        0 => finefs::front_end::namespace::Options::default().commit_interval,
        seconds @ 1..=COMMIT_SECONDS_MAX => Duration::from_secs(seconds),
        _ => return Err(bad(name, value, "seconds, at most 3600")),
    };
    Ok(())
}

pub(super) fn barrier(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.lacks_barriers = match value {
        "0" => true,
        "1" | "" => false,
        _ => return Err(bad(name, value, "0 or 1")),
    };
    Ok(())
}

pub(super) fn errors(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.on_error = Some(match value {
        "continue" => OnError::Continue,
        "remount-ro" => OnError::ReadOnly,
        "panic" => OnError::Panic,
        _ => return Err(bad(name, value, "continue, remount-ro or panic")),
    });
    Ok(())
}

pub(super) fn journal_path(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.journal = Some(match finefs_disk::is_url(value.as_ref()) {
        true => value.into(),
        // The server goes on elsewhere.
        false => std::path::absolute(value).map_err(|_| bad(name, value, "a path"))?,
    });
    Ok(())
}

pub(super) fn key(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    // The server goes on elsewhere.
    let path = std::path::absolute(value).map_err(|_| bad(name, value, "a path"))?;
    options.keys.push(path);
    Ok(())
}

/// A device number as the kernel's ext4 takes it: of 32 bits, in decimal or hexadecimal.
pub(super) fn journal_device(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let number = match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => value.parse(),
    };
    let number = number.map_err(|_| bad(name, value, "the number of a block device"))?;
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00);
    options.journal = Some(format!("/dev/block/{major}:{minor}").into());
    Ok(())
}

pub(super) fn offset(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let offset = size::bytes(value);
    options.offset_bytes =
        offset.map_err(|reason| Failure::new(format!("option {name}={value}: {reason}")))?;
    Ok(())
}

pub(super) fn size_limit(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    // As with losetup: 0 is no limit.
    let limit = size::bytes(value).map(|bytes| Some(bytes).filter(|bytes| *bytes > 0));
    options.size_limit_bytes =
        limit.map_err(|reason| Failure::new(format!("option {name}={value}: {reason}")))?;
    Ok(())
}

pub(super) fn threads(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.kernel.threads = match number(name, value)? {
        threads @ 1..=64 => Some(threads),
        _ => return Err(bad(name, value, "1 to 64")),
    };
    Ok(())
}

pub(super) fn cpu_latency(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.kernel.wakeup_latency = match value {
        "auto" => WakeupLatency::Auto,
        "off" => WakeupLatency::Unbounded,
        "poll" => WakeupLatency::Polled,
        _ => match value.parse() {
            Ok(us @ 0..=CPU_LATENCY_US_MAX) => WakeupLatency::AtMostUs(us),
            _ => {
                return Err(bad(
                    name,
                    value,
                    "auto, off, poll, or microseconds, at most 1000000",
                ));
            }
        },
    };
    Ok(())
}

/// A scheme under which files behave.
pub(super) fn locking(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let found = value.parse().ok();
    let found = found.filter(|scheme: &LockingScheme| scheme.keeps_semantics());
    options.locking = found.ok_or_else(|| {
        let names = LockingScheme::ALL.iter().filter(|s| s.keeps_semantics());
        let names: Vec<&str> = names.map(|scheme| scheme.name()).collect();
        bad(name, value, &format!("one of {}", names.join(", ")))
    })?;
    Ok(())
}

pub(super) fn room(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.size = Some(Size::parse(name, value)?);
    Ok(())
}

pub(super) fn cache(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.cache = Some(cache_size(name, value)?);
    Ok(())
}

pub(super) fn data_cache(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.data_cache = Some(cache_size(name, value)?);
    Ok(())
}

fn cache_size(name: &str, value: &str) -> CliResult<Size> {
    let size = Size::parse(name, value)?;
    match size.bytes() < CACHE_BYTES_MIN {
        true => Err(bad(name, value, "1m at least, as 256m")),
        false => Ok(size),
    }
}

pub(super) fn mode(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let mode = u32::from_str_radix(value, 8).ok();
    let mode = mode.filter(|&mode| mode <= 0o7777);
    options.mode = Some(mode.ok_or_else(|| bad(name, value, "octal permissions like 755"))?);
    Ok(())
}

pub(super) fn umask(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let umask = u32::from_str_radix(value, 8).ok();
    let umask = umask.filter(|&umask| umask <= 0o777);
    options.umask = Some(umask.ok_or_else(|| bad(name, value, "octal permissions like 022"))?);
    Ok(())
}

pub(super) fn uid(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let uid = owner(value, accounts::USERS);
    options.uid = Some(uid.ok_or_else(|| nobody(name, value, "user", "a user"))?);
    Ok(())
}

pub(super) fn gid(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let gid = owner(value, accounts::GROUPS);
    options.gid = Some(gid.ok_or_else(|| nobody(name, value, "group", "a group"))?);
    Ok(())
}

/// Why no number was found: there is no account of that name, or it can be nobody's.
fn nobody(name: &str, value: &str, kind: &str, wanted: &str) -> Failure {
    let is_name = value.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
    match is_name {
        true => Failure::new(format!("option {name}={value}: there is no such {kind}")),
        false => bad(name, value, wanted),
    }
}

/// The last number stands for no owner: see chown(2).
fn owner(text: &str, table: &str) -> Option<u32> {
    accounts::number_of(text, table).filter(|number| *number != u32::MAX)
}

pub(super) fn sandbox(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.sandbox = match value {
        "auto" => Sandbox::Auto,
        "on" => Sandbox::On,
        "off" => Sandbox::Off,
        _ => return Err(bad(name, value, "auto, on or off")),
    };
    Ok(())
}

pub(super) fn setuid(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let run_as = RunAs::parse(value);
    options.run_as = Some(run_as.ok_or_else(|| nobody(name, value, "user", "owner, or a user"))?);
    Ok(())
}

pub(super) fn fsname(options: &mut MountOptions, _: &str, value: &str) -> CliResult<()> {
    options.source = Some(value.to_owned());
    Ok(())
}
