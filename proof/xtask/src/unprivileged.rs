//! A mount by an ordinary user: image made, mounted, worked in and unmounted without root.
//! /dev/fuse may be closed to that user, see [`fuse_device`].

use crate::fuse_device;
use crate::report::Report;
use anyhow::{Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::compare::{Relation, expect_equal};
use finefs_harness::programs::{Shape, run_postmark};
use finefs_harness::run;
use finefs_harness::server::{self, Kind, Server, User, What};
use finefs_harness::sets::{self, TimeRange};
use finefs_harness::snapshot::Snapshot;
use finefs_harness::tools;
use finefs_harness::tree::{Plan, Tree, copy_in_parallel};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// "nobody", who is on every system: fusermount3 wants a user that has a name.
pub const USER: User = User(65_534);

/// The one proof. Root starts it, for changing to the user and for the kernel's judgement.
pub fn run(server: &Server, parent: &Path, report: &mut Report) -> Result<()> {
    if server.kind == Kind::Kernel {
        report.skip("unprivileged/kernel", "only root mounts by the kernel");
        return Ok(());
    }
    report.proof(&format!("unprivileged/{}", server.kind), || {
        prove(server, parent)
    });
    Ok(())
}

fn prove(server: &Server, parent: &Path) -> Result<String> {
    let scratch = Scratch::new_in(parent)?;
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    let home = scratch.subdir("home")?;
    chown(&home, Some(USER.0), Some(USER.0))?;
    // Copies that the user can run wherever the originals are.
    let bin = scratch.subdir("bin")?;
    let xtask = bin.join("xtask");
    std::fs::copy(std::env::current_exe()?, &xtask)?;
    let mut server = server.clone().run_by(USER);
    if server.kind == Kind::Finefs {
        std::fs::copy(server.binary(), bin.join("finefs"))?;
        server = server.with_binary(bin.join("finefs"));
    }
    let (image, dir) = (home.join("image"), home.join("mnt"));
    let size = 256;
    std::fs::File::create(&image)?.set_len(size << 20)?;
    std::fs::create_dir(&dir)?;
    for path in [&image, &dir] {
        chown(path, Some(USER.0), Some(USER.0))?;
    }
    let _access = fuse_device::allow(USER)?;
    let owner = format!("root_owner={0}:{0}", USER.0);
    let mut mkfs = USER.cmd(tools::program("mke2fs"));
    run::ok(
        mkfs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E", &owner])
            .arg(&image),
    )?;
    let mount = server.mount(What::Image(&image), &dir, &[])?;
    let seen_by_root = std::fs::read_dir(&dir);
    ensure!(
        seen_by_root.is_err(),
        "without allow_other another user, root too, must be kept out"
    );
    let source = home.join("source");
    let mut work = USER.cmd(&xtask);
    let worked = run::ok(work.args(["worker", "unprivileged"]).arg(&source).arg(&dir))?;
    mount.unmount()?;
    sets::fsck(&image)?;
    let judge = server::judge(&image, &scratch.subdir("judge")?)?;
    let (made, seen) = (
        Snapshot::take(&source)?,
        Snapshot::take(&judge.dir().join("tree"))?,
    );
    judge.unmount()?;
    let relation = Relation::Copy(TimeRange::Nanoseconds34Bit);
    // The kernel's view after the user's own comparison, which looked at access times.
    expect_equal(
        ("source", &made.without_atimes()),
        ("kernel", &seen.without_atimes()),
        relation,
    )?;
    Ok(worked.stdout.trim().to_owned())
}

/// What the user does: makes a tree, copies it into the mount, compares, and runs PostMark.
pub fn worker(source: &Path, mount: &Path) -> Result<()> {
    ensure!(!tools::is_root(), "this part must not run as root");
    let plan = Plan {
        files: 400,
        max_size: 100 << 10,
        xattr_max: 2000,
        seed: 5,
    };
    let tree = Tree::make(source, plan)?;
    let copy = mount.join("tree");
    std::fs::create_dir(&copy)?;
    copy_in_parallel(&tree.root, &copy)?;
    let (made, seen) = (Snapshot::take(source)?, Snapshot::take(&copy)?);
    let relation = Relation::Copy(TimeRange::Nanoseconds34Bit);
    expect_equal(
        ("source", &made.without_atimes()),
        ("mount", &seen.without_atimes()),
        relation,
    )?;
    let shape = Shape {
        files: 200,
        transactions: 200,
    };
    run_postmark(mount, 2, shape, false)?;
    println!(
        "as uid {}: {} files copied, PostMark run",
        USER.0, plan.files
    );
    Ok(())
}
