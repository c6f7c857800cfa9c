//! The small images of reiserfs that the fuzzer changes beside the one that the store's tests have:
//! format 3.5, and a journal on a device of its own.
//!
//! mkreiserfs makes them, finefs fills them through a mount and is killed, so that each journal
//! holds transactions that are not replayed yet. They are other bytes each time they are made.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use finefs_harness::cleanup::Scratch;
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;

/// The fewest blocks that mkreiserfs gives a journal.
const JOURNAL_BLOCKS: &str = "513";

/// Makes the images, in `scratch`: the name of each seed, and its file.
pub fn make(scratch: &Scratch) -> Result<Vec<(&'static str, PathBuf)>> {
    let server = Server::new(Kind::Finefs, None)?;
    let old = scratch.path().join("old");
    let common = ["-b", "1024", "-s", JOURNAL_BLOCKS];
    sets::make_reiserfs(&old, 2, &[&common[..], &["--format", "3.5"]].concat())?;
    fill(&server, scratch, &old, None)?;

    let (image, journal) = (scratch.path().join("image"), scratch.path().join("journal"));
    File::create(&journal)?.set_len(600 << 10)?;
    let beside = ["-j", journal.to_str().context("a path of other bytes")?];
    sets::make_reiserfs(&image, 1, &[&common[..], &beside].concat())?;
    fill(&server, scratch, &image, Some(&journal))?;
    Ok(vec![
        ("reiserfs-3.5", old),
        ("reiserfs-external", image),
        ("reiserfs-external.journal", journal),
    ])
}

/// Fills an image and kills the server that has its last changes in the journal alone.
fn fill(server: &Server, scratch: &Scratch, image: &Path, journal: Option<&Path>) -> Result<()> {
    let name = image.file_name().and_then(OsStr::to_str);
    let dir = scratch.subdir(&format!("{}-mount", name.context("it has a name")?))?;
    let option = journal.map(|journal| format!("journal_path={}", journal.display()));
    let options: Vec<&str> = option.iter().map(String::as_str).collect();
    let mount = server.mount_in_foreground(What::Image(image), &dir, &options)?;
    plant(mount.dir())?;
    mount.kill()?;
    // The judge replays the journal.
    let copy = |file: &Path| -> Result<PathBuf> {
        let copy = file.with_extension("judged");
        fs::copy(file, &copy)?;
        Ok(copy)
    };
    let journal = journal.map(copy).transpose()?;
    sets::reiserfsck(&copy(image)?, journal.as_deref())
}

/// Directories of several leaves, tails, unformatted blocks with holes, links, attributes of mode
/// and time; each object is synced, so that there are many transactions.
fn plant(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("d/sub/e"))?;
    for number in 0..60_u8 {
        let name = format!("d/a name that is long enough for few in one leaf {number:03}");
        let file = File::create(root.join(name))?;
        file.write_all_at(&vec![number; usize::from(number % 8) * 300], 0)?;
        file.sync_all()?;
    }
    std::os::unix::fs::symlink("short", root.join("d/sub/short"))?;
    fs::hard_link(root.join("d/sub/short"), root.join("d/sub/other"))?;
    let islands = File::create(root.join("d/islands"))?;
    for place in [0, 3, 5, 8, 40, 300, 5000] {
        islands.write_all_at(&[place as u8; 1024], place * 1024)?;
    }
    islands.sync_all()?;
    for number in (0..60).step_by(3) {
        let name = format!("d/a name that is long enough for few in one leaf {number:03}");
        fs::remove_file(root.join(name))?;
    }
    File::create(root.join("d/sub/e/last"))?.sync_all()?;
    Ok(())
}
