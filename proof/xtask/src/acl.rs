//! ACLs in mounts by finefs beside the kernel's ext4: setfacl, getfacl, chmod, umasks and accesses
//! by several users must come out the same, and what one has written the other must understand.

use crate::report::Report;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// All feature sets, not only one of each way to keep attributes
    #[arg(long)]
    long: bool,
}

const FUNCTIONS: &str = include_str!("acl/functions.sh");
const CHANGE: &str = include_str!("acl/change.sh");
const LOOK: &str = include_str!("acl/look.sh");

const SIZE_MIB: u64 = 64;
const LIMIT: Duration = Duration::from_secs(300);

/// Feature sets, with more arguments to mke2fs: inodes with room for ACLs, with none, and no
/// attributes so far.
const SETS: &[(&str, &[&str])] = &[
    ("ext4", &[]),
    ("ext4-inode128", &[]),
    ("ext2-1k-linear", &["-O", "^ext_attr"]),
];

/// Those for long.
const MORE_SETS: &[(&str, &[&str])] = &[
    ("ext4-nojournal", &[]),
    ("ext3", &[]),
    ("ext2-nofiletype", &[]),
];

/// Compares the server with the kernel.
pub fn run(server: &Server, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    let kernel = Server::new(Kind::Kernel, None)?;
    let kind = server.kind;
    if kind == Kind::Finefs {
        report.proof("acl/finefs/memory", || {
            let image = scratch.path().join("by-kernel");
            sets::find("ext4")?.make_image(&image, SIZE_MIB)?;
            let expected = transcript(&kernel, What::Image(&image), &scratch, CHANGE, "rw")?;
            let got = transcript(server, What::Memory(SIZE_MIB), &scratch, CHANGE, "rw")?;
            same("what happened", &expected, &got)
        });
        report.proof("acl/finefs/mode of a mount for root alone", || {
            mode_without_checks(server, &scratch)
        });
    }
    let more_sets = if options.long { MORE_SETS } else { &[] };
    for (set, more) in SETS.iter().chain(more_sets) {
        report.proof(&format!("acl/{kind}/{set}"), || {
            on_images(server, &kernel, &scratch, set, more)
        });
    }
    Ok(())
}

fn on_images(
    server: &Server,
    kernel: &Server,
    scratch: &Scratch,
    set: &str,
    more: &[&str],
) -> Result<String> {
    let images = [("by-kernel", kernel), ("by-server", server)];
    let mut made = Vec::new();
    for (name, by) in images {
        let image = scratch.path().join(name);
        sets::find(set)?.make_image_with(&image, SIZE_MIB, more)?;
        made.push(transcript(by, What::Image(&image), scratch, CHANGE, "rw")?);
        sets::fsck(&image).with_context(|| name.to_owned())?;
    }
    let note = same("what happened", &made[0], &made[1])?;
    for option in ["rw", "ro"] {
        let mut expected = None;
        for (name, _) in images {
            for (_, by) in images {
                let image = scratch.path().join(name);
                let seen = transcript(by, What::Image(&image), scratch, LOOK, option)?;
                sets::fsck(&image).with_context(|| format!("{name} after {}", by.kind))?;
                let what = format!("{name}, mounted {option} by {}", by.kind);
                same(&what, expected.get_or_insert_with(|| seen.clone()), &seen)?;
            }
        }
    }
    Ok(note)
}

/// Runs a script in a mount; gives what it printed.
fn transcript(
    server: &Server,
    what: What<'_>,
    scratch: &Scratch,
    script: &str,
    option: &str,
) -> Result<String> {
    let dir = scratch.subdir("mnt")?;
    let mount = server.mount(what, &dir, &["allow_other", "suid", "dev", option])?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).or_else(
        |error| match option {
            "ro" => Ok(()),
            _ => Err(error),
        },
    )?;
    let text = format!("{FUNCTIONS}\n{script}");
    let mut shell = run::cmd("sh", ["-c", &text]);
    let output = run::capture_with(shell.current_dir(&dir), b"", LIMIT)?;
    ensure!(!output.timed_out, "did not end within {LIMIT:?}");
    mount.unmount()?;
    let mut both = output.stdout;
    ensure!(
        both.lines().count() > 100,
        "the script did not run:\n{both}{}",
        output.stderr
    );
    write!(both, "\n{}", output.stderr)?;
    Ok(both)
}

/// The outcome lines, equal but for none.
fn same(what: &str, expected: &str, got: &str) -> Result<String> {
    let lines = expected.lines().count();
    let differs = (expected.lines().zip(got.lines()))
        .enumerate()
        .find(|(_, (one, other))| one != other);
    if let Some((at, (one, other))) = differs {
        let before: Vec<&str> = expected.lines().take(at).collect();
        let before = before[at.saturating_sub(12)..].join("\n");
        anyhow::bail!("{what}: after\n{before}\nthe kernel has\n{one}\nand not\n{other}");
    }
    ensure!(
        got.lines().count() == lines,
        "{what}: {lines} lines by the kernel, {} by the server",
        got.lines().count()
    );
    Ok(format!("{lines} lines equal"))
}

/// Where the kernel was not asked to check anything it still shows the mode that an ACL sets.
fn mode_without_checks(server: &Server, scratch: &Scratch) -> Result<String> {
    let dir = scratch.subdir("mnt")?;
    let mount = server.mount(What::Memory(SIZE_MIB), &dir, &[])?;
    // stat asks for the mode alone.
    let script = "touch f; chmod 640 f; stat -c %a f; setfacl -m u:2001:rwx f; stat -c %a f; \
                  setfacl -m m::x f; stat -c %a f; setfattr -x system.posix_acl_access f; stat -c %a f";
    let output = run::ok(run::cmd("sh", ["-c", script]).current_dir(&dir))?;
    mount.unmount()?;
    ensure!(
        output.stdout == "640\n670\n610\n610\n",
        "modes are {:?}",
        output.stdout
    );
    Ok(String::new())
}
