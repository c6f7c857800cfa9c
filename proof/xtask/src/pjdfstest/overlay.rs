//! pjdfstest in overlayfs whose upper and work directories lie in a mount of the server, and beside
//! it in one over the kernel's ext4. What passes over the kernel's must pass over the server's:
//! what fails over both is overlayfs's own.

use super::{CONFIG, Options, Outcome, Outcomes, counts, mount_dir, run_in};
use anyhow::{Result, ensure};
use finefs_harness::cleanup::{self, Scratch};
use finefs_harness::run;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_harness::tools;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its name among the file systems that the tests run on.
pub(super) const OVERLAY: &str = "overlay";

const IMAGE_MIB: u64 = 512;
const UNMOUNT_LIMIT: Duration = Duration::from_secs(60);

/// So many of the tests must pass over the kernel's ext4, or there is nothing to compare with.
const PASSED_MIN: usize = 350;

/// What fails over every FUSE file system, with ESTALE: the kernel looks a name of FUSE up anew
/// once it was removed, and overlayfs asks so for the name by which it knew a file with several
/// (`ovl_revalidate_real`).
const FORGOTTEN_NAMES: [&str; 3] = [
    "link::remove_link::",
    "rename::to_multiply_linked::",
    "unlink::update_ctime_success::",
];

fn is_forgotten_name(test: &str, why: &str) -> bool {
    let is_stale = why.contains("ESTALE") || why.contains("Stale file handle");
    is_stale && FORGOTTEN_NAMES.iter().any(|name| test.starts_with(name))
}

/// Why the tests cannot run.
pub(super) fn impossible(server: &Server) -> Option<&'static str> {
    if server.kind == Kind::Fuse2fs {
        return Some("what overlayfs needs of its upper file system is not known of fuse2fs");
    }
    // It may be a module.
    let _ = run::capture(&mut run::cmd(tools::program("modprobe"), ["-q", OVERLAY]));
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known.lines().any(|line| line.ends_with("\toverlay"));
    (!is_known).then_some("this kernel has no overlayfs")
}

/// Runs the tests over both and compares.
pub(super) fn prove(server: &Server, parent: &Path, options: &Options) -> Result<String> {
    let kernel = &Server::new(Kind::Kernel, None)?;
    let [by_server, by_kernel] = std::thread::scope(|scope| {
        let run = |server| scope.spawn(move || run_over(server, parent, options));
        let both = [server, kernel].map(run);
        both.map(|one| one.join().expect("no panic"))
    });
    judge(&by_kernel?, &by_server?, options.only.is_some())
}

fn run_over(server: &Server, parent: &Path, options: &Options) -> Result<Outcomes> {
    let scratch = &Scratch::new_in(parent)?;
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
    let image = scratch.path().join("upper.img");
    sets::make("ext4", &image, IMAGE_MIB)?;
    let mount = server.mount(What::Image(&image), &scratch.subdir("upper")?, &[])?;
    let overlay = Overlay::mount(mount.dir(), scratch)?;
    fs::set_permissions(&overlay.dir, PermissionsExt::from_mode(0o755))?;
    let outcomes = run_in(&overlay.dir, scratch, CONFIG, options)?;
    overlay.unmount()?;
    mount.unmount()?;
    sets::check("ext4", &image)?;
    Ok(outcomes)
}

/// An overlay that is mounted.
struct Overlay {
    dir: PathBuf,
    _entry: cleanup::Entry,
}

impl Overlay {
    /// With its upper and work directories in the root of a mount.
    fn mount(upper: &Path, scratch: &Scratch) -> Result<Overlay> {
        let (upper, work) = (upper.join("upper"), upper.join("work"));
        for dir in [&upper, &work] {
            fs::create_dir(dir)?;
        }
        let dir = mount_dir(scratch, OVERLAY)?;
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            scratch.subdir("lower")?.display(),
            upper.display(),
            work.display()
        );
        let overlay = Overlay {
            _entry: cleanup::mount(&dir),
            dir,
        };
        let args = ["-t", OVERLAY, "-o", &layers, OVERLAY];
        run::ok(run::cmd(tools::program("mount"), args).arg(&overlay.dir))?;
        Ok(overlay)
    }

    fn unmount(self) -> Result<()> {
        let mut command = run::cmd(tools::program("umount"), [&self.dir]);
        run::unmount(&mut command, UNMOUNT_LIMIT)?;
        Ok(())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        cleanup::force_unmount(&self.dir);
    }
}

/// What passes over the kernel's must pass over the server's. `is_part`: some tests were left out.
fn judge(kernel: &Outcomes, server: &Outcomes, is_part: bool) -> Result<String> {
    let (passed, failed, skipped) = counts(kernel.values());
    ensure!(
        is_part || passed >= PASSED_MIN,
        "over the kernel's ext4 {failed} tests fail, {skipped} are skipped"
    );
    let (mut wrong, mut forgotten) = (String::new(), 0);
    for (name, _) in kernel.iter().filter(|(_, is)| **is == Outcome::Passed) {
        let why = match server.get(name) {
            Some(Outcome::Passed) => continue,
            Some(Outcome::Failed(why)) if is_forgotten_name(name, why) => {
                forgotten += 1;
                continue;
            }
            Some(Outcome::Failed(why) | Outcome::Skipped(why)) => why.as_str(),
            None => "was not run",
        };
        let _ = writeln!(
            wrong,
            "{name}: passes over the kernel's ext4, not here: {why}"
        );
    }
    ensure!(wrong.is_empty(), "{wrong}");
    let (own, ..) = counts(server.values());
    Ok(format!(
        "{own} passed, {forgotten} failed as over all of FUSE, over the kernel's ext4 {passed} \
         passed; {failed} fail there, {skipped} skipped"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_over_the_kernels_must_pass() {
        let outcomes = |each: &[Outcome]| -> Outcomes {
            let numbered = each.iter().enumerate();
            numbered
                .map(|(number, outcome)| (format!("a::{number}"), outcome.clone()))
                .collect()
        };
        let (passed, failed) = (Outcome::Passed, Outcome::Failed("EIO".to_owned()));
        let skipped = Outcome::Skipped(String::new());
        let kernel = outcomes(&[passed.clone(), failed.clone()]);
        judge(&kernel, &outcomes(&[passed.clone(), passed.clone()]), true).unwrap();
        judge(&kernel, &outcomes(&[passed.clone(), failed.clone()]), true).unwrap();
        for wrong in [vec![failed, passed.clone()], vec![skipped, passed], vec![]] {
            judge(&kernel, &outcomes(&wrong), true).unwrap_err();
        }
        // A kernel over which little passes proves nothing.
        judge(&kernel, &kernel, false).unwrap_err();
    }
}
