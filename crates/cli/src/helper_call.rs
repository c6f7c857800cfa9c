//! Being called by mount(8), umount(8) and mount.fuse3.
//!
//! mount(8) runs `/sbin/mount.TYPE SOURCE DIR [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE.SUBTYPE]`, so
//! a link `/sbin/mount.fuse.finefs` to this program makes `mount -t fuse.finefs IMAGE DIR` work.
//! Without it mount.fuse3 is run, which runs `finefs SOURCE DIR [-o OPTIONS]`. Both become
//! `finefs mount [-o OPTIONS] SOURCE DIR`. A difference is what mount(8) leaves out of its options
//! because it is its default: suid and dev (`--by-mount`).
//!
//! umount(8) runs `/sbin/umount.TYPE DIR [-flnrv] [-N NS] [-t TYPE.SUBTYPE]` for mounts of that
//! type: with a link
//! `/sbin/umount.fuse.finefs` it becomes `finefs umount DIR`, which waits for the server. That ends
//! a busy mount neither by force (`-f`) nor by making it read-only (`-r`); umount -i goes without
//! the link.
//!
//! Both hand the helper's status on, so it is one of theirs: 1 for a wrong call, 32 for a mount or
//! unmount that failed.
//!
//! # References
//! mount(8) and umount(8), "External helpers" and "Exit status"; mount.fuse3(8).

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::CommandFactory;

use crate::Arguments;

/// The status of a wrong call.
pub(crate) const MISUSED: u8 = 1;
/// That of a mount or unmount that failed.
pub(crate) const FAILED: u8 = 32;

/// True for what is asked for by hand: a subcommand, or an alias of one.
fn is_subcommand(word: &OsStr) -> bool {
    let arguments = Arguments::command();
    word == "help"
        || arguments
            .get_subcommands()
            .flat_map(|command| {
                std::iter::once(command.get_name()).chain(command.get_all_aliases())
            })
            .any(|name| word == name)
}

/// True for what looks like a mistyped subcommand rather than an image: a plain word that names no
/// file.
fn is_plain_word(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !Path::new(&*word).exists()
}

/// The calling program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Mount,
    Umount,
    /// mount.fuse3, or a user that left the subcommand out.
    Bare,
}

fn caller(arguments: &[OsString]) -> Option<Caller> {
    let name = arguments
        .first()
        .and_then(|name| Path::new(name).file_name())?;
    let name = name.to_string_lossy();
    if name.starts_with("mount.") {
        return Some(Caller::Mount);
    }
    if name.starts_with("umount.") {
        return Some(Caller::Umount);
    }
    let first = arguments.get(1).filter(|_| arguments.len() >= 3)?;
    let is_bare =
        !first.to_string_lossy().starts_with('-') && !is_subcommand(first) && !is_plain_word(first);
    is_bare.then_some(Caller::Bare)
}

/// True for a call by mount(8) or umount(8), by the name that this program was called by.
pub(crate) fn is_helper(arguments: &[OsString]) -> bool {
    matches!(caller(arguments), Some(Caller::Mount | Caller::Umount))
}

/// A flag as it would have been given by hand; none where there is nothing to do for it.
fn flag(caller: Caller, letter: char) -> Option<&'static str> {
    match (caller, letter) {
        (Caller::Mount, 'f') => Some("--fake"),
        (Caller::Mount, 's') => Some("--sloppy"),
        (Caller::Mount, 'v') => Some("--verbose"),
        (Caller::Umount, 'l') => Some("--lazy"),
        // No mtab; and see the module's head.
        _ => None,
    }
}

/// The arguments as they would have been given by hand.
pub(crate) fn translate(arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(caller) = caller(&arguments) else {
        return arguments;
    };
    let mut out: Vec<OsString> = vec!["finefs".into()];
    match caller {
        Caller::Mount => out.extend(["mount".into(), "--by-mount".into()]),
        Caller::Umount => out.push("umount".into()),
        Caller::Bare => out.push("mount".into()),
    }
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        let flags = argument.to_str().and_then(|word| word.strip_prefix('-'));
        match (caller, flags) {
            // The type and the mount namespace (which mount(8) has entered already).
            (_, Some("t" | "N")) => {
                rest.next();
            }
            (Caller::Bare, Some("s" | "v" | "n")) => {}
            (Caller::Mount | Caller::Umount, Some(letters))
                if !letters.is_empty() && letters.chars().all(|c| "flnrsv".contains(c)) =>
            {
                let flags = letters.chars().filter_map(|letter| flag(caller, letter));
                out.extend(flags.map(OsString::from));
            }
            _ => out.push(argument),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let out = translate(line.split(' ').map(OsString::from).collect());
        let words: Vec<_> = out.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn helper_calls_become_mounts() {
        assert_eq!(
            translated("/sbin/mount.fuse.finefs a.img /mnt -n -o rw,dev -t fuse.finefs"),
            "finefs mount --by-mount a.img /mnt -o rw,dev"
        );
        assert_eq!(
            translated("/sbin/mount.finefs a.img /mnt -s -f -n -v -o ro,remount"),
            "finefs mount --by-mount a.img /mnt --sloppy --fake --verbose -o ro,remount"
        );
        assert_eq!(
            translated("mount.fuse.finefs a.img /mnt -sfv"),
            "finefs mount --by-mount a.img /mnt --sloppy --fake --verbose"
        );
        assert_eq!(
            translated("/sbin/umount.fuse.finefs /mnt -n -l -f -v -r -N 5"),
            "finefs umount /mnt --lazy"
        );
        assert_eq!(
            translated("finefs a.img /mnt -o rw"),
            "finefs mount a.img /mnt -o rw"
        );
        // Tests run in their crate's directory.
        assert_eq!(translated("finefs src /mnt"), "finefs mount src /mnt");
    }

    #[test]
    fn other_calls_stay() {
        for line in [
            "finefs mount a b -n",
            "finefs info a.img --json",
            "finefs top /mnt -n 1",
            "finefs unmount /mnt --lazy",
            "finefs help mount",
            "finefs",
            "finefs a.img",
            "finefs unmout /mnt",
        ] {
            assert_eq!(translated(line), line);
        }
    }
}
