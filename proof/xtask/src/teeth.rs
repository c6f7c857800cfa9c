//! Shows that the proofs bite: for each thing that the matrix claims to check, it is changed on the
//! image behind the proof's back, and the proof must then fail and name it.

use crate::matrix::{self, Options};
use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup;
use finefs_harness::programs::{self, QUICK, Size};
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// A change behind the back, and the word by which the proof must name it.
struct Tooth {
    name: &'static str,
    named: &'static str,
    change: fn(&Path) -> Result<()>,
}

const TEETH: &[Tooth] = &[
    Tooth {
        name: "a byte of a file",
        named: "contents:",
        change: byte,
    },
    Tooth {
        name: "a mode",
        named: "mode:",
        change: mode,
    },
    Tooth {
        name: "an owner",
        named: "owner:",
        change: owner,
    },
    Tooth {
        name: "a nanosecond",
        named: "mtime:",
        change: nanosecond,
    },
    Tooth {
        name: "an xattr",
        named: "xattrs:",
        change: xattr,
    },
    Tooth {
        name: "a symlink's target",
        named: "target:",
        change: target,
    },
    Tooth {
        name: "a hard link made a copy",
        named: "hard link of:",
        change: hard_link,
    },
    Tooth {
        name: "a missing file",
        named: "missing in kernel",
        change: missing,
    },
    Tooth {
        name: "a file too many",
        named: "missing in mount",
        change: extra,
    },
    Tooth {
        name: "a hole filled",
        named: "holes:",
        change: hole,
    },
    Tooth {
        name: "a device number",
        named: "device:",
        change: device,
    },
];

/// Runs the tree workload once untouched, and once for each tooth.
pub fn run(parent: &Path, seed: u64, report: &mut Report) -> Result<()> {
    let set = sets::find("ext4")?;
    let tree = programs::find("tree")?;
    let size = Size {
        tree_files: 500,
        tree_max_size: 100 << 10,
        image_mib: 256,
        ..QUICK
    };
    let prove = |tamper: Option<matrix::Tamper>| {
        let server = Server::new(Kind::Kernel, None)?;
        let parent = parent.to_owned();
        let options = Options {
            server,
            size,
            parent,
            seed,
            tamper,
        };
        matrix::prove_alone(&options, set, tree)
    };
    report.proof("teeth/untouched passes", || prove(None));
    for tooth in TEETH {
        let change = tooth.change;
        report.proof(&format!("teeth/{} fails", tooth.name), || {
            must_fail(
                tooth.named,
                prove(Some(Box::new(move |image| on_image(image, change)))),
            )
        });
    }
    report.proof("teeth/a bit in a bitmap fails", || {
        must_fail(
            "e2fsck -fn ended with 4",
            prove(Some(Box::new(mark_block_used))),
        )
    });
    Ok(())
}

fn must_fail(named: &str, outcome: Result<String>) -> Result<String> {
    match outcome {
        Ok(_) => bail!("the proof passed all the same"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(
                text.contains(named),
                "the proof failed without saying {named:?}:\n{text}"
            );
            Ok(format!("said {named:?}"))
        }
    }
}

fn on_image(image: &Path, change: fn(&Path) -> Result<()>) -> Result<()> {
    let dir = image.with_extension("tamper");
    std::fs::create_dir_all(&dir)?;
    let mount = Server::new(Kind::Kernel, None)?.mount(What::Image(image), &dir, &[])?;
    change(&dir.join("tree"))?;
    mount.unmount()?;
    debug_assert!(!cleanup::is_mounted(&dir));
    Ok(())
}

fn mark_block_used(image: &Path) -> Result<()> {
    run::ok(run::cmd(tools::program("debugfs"), ["-w", "-R", "setb 60000"]).arg(image))?;
    Ok(())
}

/// The first inode below `root` that `is_it`.
fn first(root: &Path, is_it: impl Fn(&Path, &std::fs::Metadata) -> bool) -> Result<PathBuf> {
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            if is_it(&path, &meta) {
                return Ok(path);
            }
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    bail!("the tree has no such file")
}

fn some_file(root: &Path) -> Result<PathBuf> {
    first(root, |_, meta| {
        meta.is_file() && meta.nlink() == 1 && meta.len() > 100
    })
}

fn restore_times(path: &Path, meta: &std::fs::Metadata) -> Result<()> {
    let time = |seconds: i64, ns: i64| Timespec {
        tv_sec: seconds,
        tv_nsec: ns as _,
    };
    let times = Timestamps {
        last_access: time(meta.atime(), meta.atime_nsec()),
        last_modification: time(meta.mtime(), meta.mtime_nsec()),
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

fn byte(root: &Path) -> Result<()> {
    let path = some_file(root)?;
    let meta = path.metadata()?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    let mut one = [0u8];
    file.read_exact_at(&mut one, 50)?;
    file.write_all_at(&[one[0] ^ 1], 50)?;
    drop(file);
    restore_times(&path, &meta)
}

fn mode(root: &Path) -> Result<()> {
    let path = some_file(root)?;
    let mode = path.metadata()?.mode() ^ 0o010;
    Ok(std::fs::set_permissions(
        path,
        PermissionsExt::from_mode(mode),
    )?)
}

fn owner(root: &Path) -> Result<()> {
    Ok(chown(some_file(root)?, Some(77), None)?)
}

fn nanosecond(root: &Path) -> Result<()> {
    let path = some_file(root)?;
    let meta = path.metadata()?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: meta.atime(),
            tv_nsec: meta.atime_nsec() as _,
        },
        last_modification: Timespec {
            tv_sec: meta.mtime(),
            tv_nsec: (meta.mtime_nsec() ^ 1) as _,
        },
    };
    Ok(rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?)
}

fn xattr(root: &Path) -> Result<()> {
    let has = |path: &Path| rustix::fs::lgetxattr(path, "user.small", &mut [0u8; 64][..]).is_ok();
    let path = first(root, |path, meta| meta.is_file() && has(path))?;
    Ok(rustix::fs::setxattr(
        path,
        "user.small",
        b"changed",
        XattrFlags::empty(),
    )?)
}

fn target(root: &Path) -> Result<()> {
    let path = first(root, |_, meta| meta.is_symlink())?;
    std::fs::remove_file(&path)?;
    Ok(symlink("elsewhere", path)?)
}

fn hard_link(root: &Path) -> Result<()> {
    let path = first(root, |_, meta| meta.is_file() && meta.nlink() > 1)?;
    let contents = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    Ok(std::fs::write(path, contents)?)
}

fn missing(root: &Path) -> Result<()> {
    Ok(std::fs::remove_file(some_file(root)?)?)
}

fn extra(root: &Path) -> Result<()> {
    Ok(std::fs::write(root.join("extra"), b"")?)
}

fn hole(root: &Path) -> Result<()> {
    let path = first(root, |_, meta| {
        meta.is_file() && meta.blocks() * 512 + (200 << 10) < meta.len() * 3 / 4
    })?;
    let contents = std::fs::read(&path)?;
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&contents, 0).context("filling a hole")
}

fn device(root: &Path) -> Result<()> {
    let path = first(root, |_, meta| meta.file_type().is_char_device())?;
    std::fs::remove_file(&path)?;
    let device = rustix::fs::makedev(9, 9);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    Ok(rustix::fs::mknodat(
        CWD,
        &path,
        rustix::fs::FileType::CharacterDevice,
        mode,
        device,
    )?)
}
