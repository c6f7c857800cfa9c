//! Wrong arguments: each gets one clear line that names the file, exit status 1, and no byte
//! changes.

use crate::images::{digest, expect_refusal};
use crate::report::Report;
use anyhow::{Result, ensure};
use finefs_harness::cleanup::{Scratch, is_mounted};
use finefs_harness::rng::Rng;
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, User, What};
use finefs_harness::sets;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All cases, each in the background and in the foreground mode.
pub fn run(finefs: &Path, parent: &Path, report: &mut Report) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    // Where an ordinary user can run it.
    let binary = scratch.path().join("finefs");
    std::fs::copy(finefs, &binary)?;
    let bench = Bench {
        binary,
        dir: scratch.subdir("mnt")?,
        scratch,
    };
    type Case = (&'static str, fn(&Path) -> Result<()>);
    let cases: &[Case] = &[
        ("missing", |_| Ok(())),
        ("empty", |path| Ok(std::fs::write(path, b"")?)),
        ("a directory", |path| Ok(std::fs::create_dir(path)?)),
        ("garbage", |path| {
            Ok(std::fs::write(path, Rng::new(7).bytes(1 << 20))?)
        }),
        (
            "all zeros",
            |path| Ok(File::create(path)?.set_len(8 << 20)?),
        ),
        ("cut before the superblock ends", |path| cut(path, 1500)),
        ("cut in half", |path| cut(path, 32 << 20)),
        ("a superblock alone", |path| cut(path, 2048)),
        ("a wrong block size", |path| {
            patch(path, 1024 + 24, &[200, 0, 0, 0])
        }),
        ("no blocks per group", |path| {
            patch(path, 1024 + 32, &[0; 4])
        }),
        ("no inodes per group", |path| {
            patch(path, 1024 + 40, &[0; 4])
        }),
        ("an unknown incompatible feature", |path| {
            patch(path, 1024 + 96 + 3, &[0x80])
        }),
    ];
    for (name, make) in cases {
        report.proof(&format!("bad input/{name}"), || {
            let image = bench.scratch.path().join("bad.img");
            let _ = std::fs::remove_file(&image);
            let _ = std::fs::remove_dir(&image);
            make(&image)?;
            bench.refused(&image, None)
        });
    }
    report.proof("bad input/no permission", || {
        let image = bench.scratch.path().join("secret.img");
        good(&image)?;
        std::fs::set_permissions(&image, PermissionsExt::from_mode(0o600))?;
        bench.refused(&image, Some(User(65_534)))
    });
    for kind in [Kind::Finefs, Kind::Kernel] {
        report.proof(&format!("bad input/already mounted by {kind}"), || {
            let image = bench.scratch.path().join("mounted.img");
            good(&image)?;
            let other = bench.scratch.subdir("other")?;
            let server = Server::new(kind, Some(finefs))?;
            let mount = server.mount(What::Image(&image), &other, &[])?;
            let said = bench.refused(&image, None);
            mount.unmount()?;
            sets::fsck(&image)?;
            said
        });
    }
    report.proof("bad input/no mount point", || {
        let image = bench.scratch.path().join("good.img");
        good(&image)?;
        let before = digest(&image)?;
        let nowhere = bench.scratch.path().join("nowhere");
        let mut command = run::cmd(&bench.binary, ["mount"]);
        command.arg(&image).arg(&nowhere);
        let said = expect_refusal(&run::capture_with(&mut command, b"", LIMIT)?)?;
        ensure!(
            said.contains("nowhere"),
            "the message does not name the directory: {said}"
        );
        ensure!(digest(&image)? == before, "the image was written");
        Ok(said)
    });
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(30);

struct Bench {
    binary: PathBuf,
    dir: PathBuf,
    scratch: Scratch,
}

impl Bench {
    fn refused(&self, image: &Path, user: Option<User>) -> Result<String> {
        let before = if image.is_file() {
            Some(digest(image)?)
        } else {
            None
        };
        let mut said = String::new();
        for more in [&[][..], &["-f"], &["-o", "ro"]] {
            // A cut image may be mounted read-only to save what there is.
            let mut command = user.map_or_else(
                || run::cmd(&self.binary, [] as [&str; 0]),
                |user| user.cmd(&self.binary),
            );
            command.arg("mount").arg(image).arg(&self.dir).args(more);
            let output = run::capture_with(&mut command, b"", LIMIT)?;
            said = expect_refusal(&output)?;
            let name = image.file_name().unwrap_or_default().to_string_lossy();
            ensure!(
                said.contains(&*name),
                "the message does not name the image: {said}"
            );
            ensure!(!is_mounted(&self.dir), "refused, but mounted");
        }
        if let Some(before) = before {
            ensure!(digest(image)? == before, "the image was written");
        }
        let prefix = format!("{}/", self.scratch.path().display());
        Ok(said.replace(&prefix, ""))
    }
}

fn good(path: &Path) -> Result<()> {
    let _ = std::fs::remove_file(path);
    sets::find("ext4")?.make_image(path, 64)
}

fn cut(path: &Path, len: u64) -> Result<()> {
    good(path)?;
    Ok(OpenOptions::new().write(true).open(path)?.set_len(len)?)
}

fn patch(path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
    sets::find("ext2")?.make_image(path, 16)?;
    Ok(OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all_at(bytes, offset)?)
}
