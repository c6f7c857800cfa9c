//! A small image filled until ENOSPC, half emptied, and filled again.
//!
//! Every file's contents follow from its name, so each can be judged alone. A file whose write was
//! refused is removed, which must work on a full image; a name whose making was refused must not be
//! there.

use super::Work;
use crate::rng::Rng;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const THREADS: u64 = 4;

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    let first = fill(work, 0)?;
    full_means_nothing_half_done(work.dir)?;
    let all = files(work.dir)?;
    for path in all.iter().step_by(2) {
        std::fs::remove_file(path)?;
    }
    check(work.dir)?;
    let second = fill(work, 1)?;
    check(work.dir)?;
    ensure!(first > 20, "only {first} files fitted");
    ensure!(
        second * 4 > first,
        "{first} files fitted at first, {second} after deleting half"
    );
    // Room for the metadata that unmounting may need is the server's business, not freed here.
    Ok(format!("{first} files, then {second} into the freed half"))
}

/// Writes files from several threads until each has met ENOSPC. How many were written whole.
fn fill(work: &Work<'_>, round: u64) -> Result<usize> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || fill_alone(work.dir, round * THREADS + thread)))
            .collect();
        let mut whole = 0;
        for thread in threads {
            whole += thread
                .join()
                .map_err(|_| anyhow::anyhow!("a filling thread panicked"))??;
        }
        Ok(whole)
    })
}

fn fill_alone(dir: &Path, stream: u64) -> Result<usize> {
    let mut rng = Rng::new(stream);
    for number in 0..100_000 {
        let size = rng.range(1, 256 << 10);
        let path = dir.join(format!("s{stream}-{number}-{size}"));
        match write_whole(&path, size) {
            Ok(()) => {}
            Err(error) if is_full(&error) => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).context("removing the file that did not fit");
                }
                _ => return Ok(number),
            },
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    bail!("the image never became full")
}

fn write_whole(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(&contents(path, size))?;
    // Space may be given out late; this is where it must be refused at the latest.
    file.sync_all()
}

fn contents(path: &Path, size: u64) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let seed = name
        .iter()
        .fold(size, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    Rng::new(seed).bytes(size as usize)
}

fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"s"))
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Every file holds exactly its contents.
fn check(dir: &Path) -> Result<()> {
    for path in files(dir)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let size: u64 = name.rsplit('-').next().unwrap_or_default().parse()?;
        let found = std::fs::read(&path).with_context(|| name.clone())?;
        ensure!(found == contents(&path, size), "{name}: wrong contents");
    }
    Ok(())
}

/// On the full image a mkdir or a long symlink either works or leaves no name.
fn full_means_nothing_half_done(dir: &Path) -> Result<()> {
    let target = "t".repeat(900);
    let mut refused = 0;
    for number in 0..2000 {
        let directory = dir.join(format!("d{number}"));
        let link = dir.join(format!("l{number}"));
        let file = dir.join(format!("n{number}"));
        let tries = [
            (&directory, std::fs::create_dir(&directory)),
            (&link, symlink(&target, &link)),
            (&file, File::create_new(&file).map(drop)),
        ];
        for (path, outcome) in tries {
            match outcome {
                Ok(()) => ensure!(
                    path.symlink_metadata().is_ok(),
                    "{}: made, not there",
                    path.display()
                ),
                Err(error) if is_full(&error) => {
                    refused += 1;
                    ensure!(
                        path.symlink_metadata().is_err(),
                        "{}: refused with ENOSPC, but there",
                        path.display()
                    );
                }
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        if refused > 30 {
            return Ok(());
        }
    }
    ensure!(refused > 0, "a full image went on making directories");
    Ok(())
}
