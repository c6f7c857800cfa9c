//! Being called by mount(8) and mount.fuse3.
//!
//! mount(8) runs `/sbin/mount.TYPE SOURCE DIR [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE.SUBTYPE]`, so
//! a link `/sbin/mount.fuse.finefs` to this program makes `mount -t fuse.finefs IMAGE DIR` work.
//! Without it mount.fuse3 is run, which runs `finefs SOURCE DIR [-o OPTIONS]`. Both become
//! `finefs mount [-o OPTIONS] SOURCE DIR`.
//!
//! # References
//! mount(8), "External helpers"; mount.fuse3(8).

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::CommandFactory;

use crate::Arguments;

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

/// True for what looks like a mistyped subcommand rather than an image: a plain word that names no file.
fn is_plain_word(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !Path::new(&*word).exists()
}

/// The arguments as they would have been given by hand.
pub(crate) fn translate(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_helper = arguments
        .first()
        .and_then(|name| Path::new(name).file_name())
        .is_some_and(|name| name.to_string_lossy().starts_with("mount."));
    let is_bare = arguments.len() >= 3
        && arguments.get(1).is_some_and(|first| {
            !first.to_string_lossy().starts_with('-')
                && !is_subcommand(first)
                && !is_plain_word(first)
        });
    if !is_helper && !is_bare {
        return arguments;
    }
    let mut out: Vec<OsString> = vec!["finefs".into(), "mount".into()];
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // Sloppy, verbose, no mtab: nothing to do for us.
            Some("-s" | "-v" | "-n") => {}
            // The type and the mount namespace (which mount(8) has entered already).
            Some("-t" | "-N") => {
                rest.next();
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
            "finefs mount a.img /mnt -o rw,dev"
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
