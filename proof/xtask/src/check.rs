//! `make check`: what to run while working on a change. Format, style and lints, the tests beside
//! the code, and a mount that is worked in; [`suite`](crate::suite) has the rest.

use crate::report::Report;
use crate::schedule::{self, Step};
use crate::setup;
use crate::suite;
use anyhow::Result;
use finefs_harness::cleanup::Scratch;
use finefs_harness::compare::{Relation, expect_equal};
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets::{self, TimeRange};
use finefs_harness::snapshot::Snapshot;
use finefs_harness::tools;
use finefs_harness::tree::{Plan, Tree, copy_in_parallel};

/// What the smoke mount needs of [`setup`].
const PROGRAMS: &[&str] = &["mke2fs", "fusermount3"];
const PLAN: Plan = Plan {
    files: 200,
    max_size: 100 << 10,
    xattr_max: 2000,
    seed: 1,
};
const IMAGE_MIB: u64 = 128;

/// Runs the steps; an error when any failed.
pub fn run() -> Result<()> {
    setup::packages_of(|program| PROGRAMS.contains(&program))?;
    let mut steps = suite::lints();
    let beside_the_code = ["test", "--workspace", "--lib", "--bins", "--quiet"];
    steps.push(suite::cargo("unit tests", &beside_the_code));
    steps.push(suite::cargo(
        "build",
        &["build", "--quiet", "-p", "finefs-cli"],
    ));
    steps.push(Step::new("smoke mount", |_| smoke_mount()).needs("build"));
    let mut report = Report::default();
    // What the first ones find is told before the rest has run.
    schedule::run(steps, 1, &mut report);
    report.finish()
}

/// A tree copied into an image through a mount of the debug build comes back, and e2fsck finds
/// nothing.
fn smoke_mount() -> Result<String> {
    let scratch = Scratch::new_in(&std::env::temp_dir())?;
    let image = scratch.path().join("image");
    let owner = format!(
        "root_owner={}:{}",
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    sets::find("ext4")?.make_image_with(&image, IMAGE_MIB, &["-E", &owner])?;
    let tree = Tree::make(&scratch.path().join("source"), PLAN)?;
    let finefs = tools::target_dir().join("debug/finefs");
    let server = Server::new(Kind::Finefs, Some(&finefs))?;
    let dir = scratch.subdir("mnt")?;

    let mount = server.mount(What::Image(&image), &dir, &[])?;
    let copy = mount.dir().join("tree");
    std::fs::create_dir(&copy)?;
    copy_in_parallel(&tree.root, &copy)?;
    mount.unmount()?;
    sets::fsck(&image)?;

    let mount = server.mount(What::Image(&image), &dir, &["ro"])?;
    let made = Snapshot::take(&tree.root)?.without_atimes();
    let seen = Snapshot::take(&copy)?.without_atimes();
    mount.unmount()?;
    let relation = Relation::Copy(TimeRange::Nanoseconds34Bit);
    expect_equal(("source", &made), ("mount", &seen), relation)?;
    Ok(format!("{} entries copied", seen.entries.len()))
}
