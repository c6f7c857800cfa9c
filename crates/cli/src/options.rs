//! The options of `-o`: those of mount(8), fuse2fs and mount.fuse3 that mean something here.
//!
//! Of options that contradict each other the last one counts, as with mount(8). What only tells
//! mount(8) itself something (nofail, user, x-...) is accepted and does nothing. Everything else
//! is an error that names the option: a typing error must not silently mount something different.

use std::time::Duration;

use finefs::{AtimePolicy, LockingScheme, OnError};

use crate::size::{self, Size};
use crate::{CliResult, Failure};

/// What the options say.
#[derive(Clone, Debug)]
pub(crate) struct MountOptions {
    /// What the kernel is told, but for what is shown as mounted.
    pub kernel: finefs_fuse::Options,
    pub offset_bytes: u64,
    pub atime: AtimePolicy,
    pub commit_interval: Duration,
    pub lacks_barriers: bool,
    pub on_error: Option<OnError>,
    pub has_acls: bool,
    pub locking: LockingScheme,
    pub is_debug: bool,
    /// What shall be shown as mounted; only for memory.
    pub source: Option<String>,
    /// Of a memory file system: its size and its root.
    pub size: Option<Size>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let namespace = finefs::Options::default();
        MountOptions {
            kernel: finefs_fuse::Options::default(),
            offset_bytes: 0,
            atime: namespace.atime,
            commit_interval: namespace.commit_interval,
            lacks_barriers: false,
            on_error: None,
            has_acls: namespace.has_acls,
            locking: namespace.locking,
            is_debug: false,
            source: None,
            size: None,
            mode: None,
            uid: None,
            gid: None,
        }
    }
}

/// The longest commit interval: beyond it the option is a mistake.
const COMMIT_SECONDS_MAX: u64 = 3600;

/// A bound above a second would bound nothing.
const CPU_LATENCY_US_MAX: u32 = 1_000_000;

impl MountOptions {
    /// Parses the values of all `-o`.
    pub(crate) fn parse<S: AsRef<str>>(lists: &[S]) -> CliResult<MountOptions> {
        let mut options = MountOptions::default();
        for list in lists {
            for word in split(list.as_ref()) {
                options.take(&word)?;
            }
        }
        Ok(options)
    }

    fn take(&mut self, word: &str) -> CliResult<()> {
        match word.split_once('=') {
            _ if is_for_others(word) => Ok(()),
            None => self.take_flag(word),
            Some((name, value)) => self.take_value(name, value),
        }
    }

    fn take_flag(&mut self, word: &str) -> CliResult<()> {
        match word {
            "ro" => self.kernel.is_read_only = true,
            "rw" => self.kernel.is_read_only = false,
            "noload" | "norecovery" => {
                return Err(Failure::new(format!(
                    "option {word}: not supported; use ro, which replays the journal in memory and \
                     writes nothing"
                )));
            }
            "noatime" => self.atime = AtimePolicy::Noatime,
            "relatime" => self.atime = AtimePolicy::Relatime,
            "strictatime" => self.atime = AtimePolicy::Strict,
            // mount(8): "use the kernel default", which is relatime.
            "atime" | "nostrictatime" | "norelatime" => self.atime = AtimePolicy::Relatime,
            "suid" => self.kernel.allows_suid = true,
            "nosuid" => self.kernel.allows_suid = false,
            "dev" => self.kernel.allows_devices = true,
            "nodev" => self.kernel.allows_devices = false,
            "exec" => self.kernel.allows_execution = true,
            "noexec" => self.kernel.allows_execution = false,
            "sync" => self.kernel.is_synchronous = true,
            "async" => self.kernel.is_synchronous = false,
            "dirsync" => self.kernel.is_directory_synchronous = true,
            "allow_other" => self.kernel.allow_other = true,
            "allow_root" => {
                return Err(Failure::new(
                    "option allow_root: the kernel cannot enforce it on what it has cached; \
                     use allow_other and file permissions",
                ));
            }
            "writeback_cache" => self.kernel.has_writeback_cache = true,
            "nowriteback_cache" => self.kernel.has_writeback_cache = false,
            "default_permissions" => self.kernel.checks_root = true,
            "acl" => self.has_acls = true,
            "noacl" => self.has_acls = false,
            "barrier" => self.lacks_barriers = false,
            "nobarrier" => self.lacks_barriers = true,
            "io_uring" => self.kernel.has_ring = true,
            "noio_uring" | "no_io_uring" => self.kernel.has_ring = false,
            "debug" => self.is_debug = true,
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    fn take_value(&mut self, name: &str, value: &str) -> CliResult<()> {
        match name {
            "offset" => {
                self.offset_bytes = size::bytes(value)
                    .map_err(|reason| Failure::new(format!("option {name}={value}: {reason}")))?;
            }
            "size" => self.size = Some(Size::parse(name, value)?),
            "mode" => {
                let mode = u32::from_str_radix(value, 8)
                    .ok()
                    .filter(|&mode| mode <= 0o7777);
                let mode = mode.ok_or_else(|| bad(name, value, "octal permissions like 755"))?;
                self.mode = Some(mode);
            }
            "uid" => self.uid = Some(number(name, value)?),
            "gid" => self.gid = Some(number(name, value)?),
            "commit" => {
                let seconds: u64 = number(name, value)?;
                self.commit_interval = match seconds {
                    // As with the kernel's ext4: 0 is the default.
                    0 => finefs::Options::default().commit_interval,
                    1..=COMMIT_SECONDS_MAX => Duration::from_secs(seconds),
                    _ => return Err(bad(name, value, "seconds, at most 3600")),
                };
            }
            "threads" => match number(name, value)? {
                threads @ 1..=64 => self.kernel.threads = Some(threads),
                _ => return Err(bad(name, value, "1 to 64")),
            },
            "barrier" => match value {
                "0" => self.lacks_barriers = true,
                "1" => self.lacks_barriers = false,
                _ => return Err(bad(name, value, "0 or 1")),
            },
            // What is written is on the image before the metadata that points at it, in either.
            "data" if matches!(value, "ordered" | "writeback") => {}
            "data" => return Err(bad(name, value, "ordered, which is what happens")),
            "cpu_latency" => match number(name, value)? {
                us @ 0..=CPU_LATENCY_US_MAX => self.kernel.cpu_latency_us = Some(us),
                _ => return Err(bad(name, value, "microseconds, at most 1000000")),
            },
            "locking" => self.locking = locking(name, value)?,
            "fsname" => self.source = Some(value.to_owned()),
            "subtype" if value == "finefs" => {}
            "subtype" => return Err(bad(name, value, "finefs, which it always is")),
            "errors" => {
                self.on_error = Some(match value {
                    "continue" => OnError::Continue,
                    "remount-ro" => OnError::ReadOnly,
                    "panic" => OnError::Panic,
                    _ => return Err(bad(name, value, "continue, remount-ro or panic")),
                });
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// Options that speak to mount(8), or ask for what is always so.
fn is_for_others(word: &str) -> bool {
    matches!(
        word,
        "" | "defaults"
            | "auto"
            | "noauto"
            | "nofail"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "_netdev"
            | "nonempty"
    ) || ["x-", "X-", "comment="]
        .iter()
        .any(|prefix| word.starts_with(prefix))
}

/// At commas; `\,` is a comma and `\\` a backslash inside a value.
fn split(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' {
            characters.next()
        } else {
            None
        };
        let Some(word) = words.last_mut() else { break };
        match (character, escaped) {
            (',', _) => words.push(String::new()),
            (_, Some(escaped)) => word.push(escaped),
            (character, None) => word.push(character),
        }
    }
    words
}

/// A scheme under which files behave.
fn locking(name: &str, value: &str) -> CliResult<LockingScheme> {
    let found = value.parse().ok();
    found
        .filter(|scheme: &LockingScheme| scheme.keeps_semantics())
        .ok_or_else(|| {
            let names = LockingScheme::ALL.iter().filter(|s| s.keeps_semantics());
            let names: Vec<&str> = names.map(|scheme| scheme.name()).collect();
            bad(name, value, &format!("one of {}", names.join(", ")))
        })
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> CliResult<N> {
    value.parse().map_err(|_| bad(name, value, "a number"))
}

fn bad(name: &str, value: &str, wanted: &str) -> Failure {
    Failure::new(format!("option {name}={value}: give {wanted}"))
}

fn unknown(word: &str) -> Failure {
    Failure::new(format!(
        "unknown mount option {word}; see finefs mount --help"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> CliResult<MountOptions> {
        MountOptions::parse(&[list])
    }

    #[test]
    fn options_are_understood() {
        let options = parse(
            "ro,offset=1m,allow_other,noatime,nosuid,nodev,noexec,commit=30,size=50%,mode=1777,\
             uid=7,gid=8,threads=3,writeback_cache,errors=remount-ro,debug",
        )
        .unwrap();
        assert!(options.kernel.is_read_only && options.kernel.allow_other && options.is_debug);
        assert!(
            !options.kernel.allows_suid
                && !options.kernel.allows_devices
                && !options.kernel.allows_execution
        );
        assert_eq!(options.offset_bytes, 1 << 20);
        assert_eq!(options.atime, AtimePolicy::Noatime);
        assert_eq!(options.commit_interval, Duration::from_secs(30));
        assert_eq!(options.size, Some(Size::PercentOfMemory(50)));
        assert_eq!(
            (
                options.mode,
                options.uid,
                options.gid,
                options.kernel.threads
            ),
            (Some(0o1777), Some(7), Some(8), Some(3))
        );
        assert!(options.kernel.has_writeback_cache);
        assert_eq!(options.on_error, Some(OnError::ReadOnly));
    }

    #[test]
    fn acls_count_unless_told_otherwise() {
        assert!(parse("").unwrap().has_acls);
        assert!(!parse("noacl").unwrap().has_acls);
        assert!(parse("noacl,acl").unwrap().has_acls);
    }

    #[test]
    fn locking_schemes_have_names() {
        assert_eq!(parse("").unwrap().locking, LockingScheme::Fine);
        let options = parse("locking=fine,locking=per-superblock").unwrap();
        assert_eq!(options.locking, LockingScheme::PerSuperblock);
    }

    #[test]
    fn the_defaults_are_those_of_a_fuse_mount() {
        let options = parse("defaults").unwrap();
        assert!(!options.kernel.is_read_only && !options.kernel.allow_other);
        assert!(
            !options.kernel.allows_suid
                && !options.kernel.allows_devices
                && options.kernel.allows_execution
        );
        assert_eq!(options.atime, AtimePolicy::Relatime);
        assert_eq!(options.commit_interval, Duration::from_secs(5));
    }

    #[test]
    fn the_last_one_counts_also_over_several_lists() {
        assert!(!parse("ro,rw").unwrap().kernel.is_read_only);
        assert!(
            MountOptions::parse(&["rw", "suid,ro"])
                .unwrap()
                .kernel
                .is_read_only
        );
        assert!(parse("nosuid,suid").unwrap().kernel.allows_suid);
    }

    #[test]
    fn what_speaks_to_mount_is_accepted() {
        parse("defaults,nofail,user,_netdev,x-systemd.automount,comment=a,default_permissions,,")
            .unwrap();
    }

    #[test]
    fn unknown_and_wrong_options_are_named() {
        for (list, word) in [
            ("ro,rwx", "rwx"),
            ("foo=1", "foo"),
            ("offset=abc", "offset=abc"),
            ("offset=5%", "offset=5%"),
            ("mode=999", "mode=999"),
            ("mode=77777", "mode=77777"),
            ("uid=-1", "uid=-1"),
            ("commit=9999999", "commit=9999999"),
            ("threads=0", "threads=0"),
            ("size=", "size="),
            ("allow_root", "allow_root"),
            ("noload", "noload"),
            ("errors=ignore", "errors=ignore"),
            ("subtype=ext4", "subtype=ext4"),
            ("locking=big", "big-spin"),
            ("locking=unlocked-data", "one of fine"),
        ] {
            let Failure(line) = parse(list).unwrap_err();
            assert!(line.contains(word), "{list}: {line}");
        }
    }

    #[test]
    fn commas_can_be_escaped() {
        assert_eq!(
            parse("fsname=a\\,b\\\\c,ro").unwrap().source.as_deref(),
            Some("a,b\\c")
        );
    }
}
