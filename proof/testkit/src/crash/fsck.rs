//! The judges of other makers: e2fsck and reiserfsck. Each recovers an image by its own means, and
//! says whether one is sound; of ext, `finefs check` must say the same.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_check::{Finding, Problem};
use finefs_harness::sets::has_repaired;
use finefs_sim::{Image, ImageDevice};

use super::format::Format;

/// What reiserfsck says of a sound image, also where its exit code says nothing.
const REISER_SOUND: &str = "No corruptions found";

/// What a program said.
struct Checked {
    code: i32,
    output: String,
}

/// Recovers the image in a file, or repairs it where it has no journal. A journaled one must need
/// nothing but the replay, and be sound after it.
pub fn recover(format: Format, path: &Path, is_journaled: bool) -> Result<(), String> {
    if format.is_reiser() {
        // It replays the journal before it looks.
        return expect_clean(format, path);
    }
    let before = Image::from_bytes(&std::fs::read(path).map_err(|error| error.to_string())?);
    let first = e2fsck(path, "-y")?;
    if !(0..=1).contains(&first.code) {
        return Err(format!(
            "e2fsck -fy ended with {}:\n{}",
            first.code, first.output
        ));
    }
    let is_repaired = has_repaired(&first.output);
    finefs_agrees(&before, is_repaired)
        .map_err(|error| format!("{error}\ne2fsck:\n{}", first.output))?;
    if is_journaled && is_repaired {
        return Err(format!(
            "e2fsck had to repair a journaled image:\n{}",
            first.output
        ));
    }
    expect_clean(format, path)
}

/// The image in a file is sound.
pub fn expect_clean(format: Format, path: &Path) -> Result<(), String> {
    let (checked, is_sound) = match format {
        Format::Ext => {
            let checked = e2fsck(path, "-n")?;
            let is_sound = checked.code == 0;
            (checked, is_sound)
        }
        _ => {
            let checked = reiserfsck(format, path)?;
            let is_sound = checked.code == 0 && checked.output.contains(REISER_SOUND);
            (checked, is_sound)
        }
    };
    if !is_sound {
        return Err(format!(
            "fsck ended with {}:\n{}",
            checked.code, checked.output
        ));
    }
    match format {
        Format::Ext => {
            let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
            finefs_agrees(&Image::from_bytes(&bytes), false)
        }
        _ => Ok(()),
    }
}

/// A journal on another disk is put into a file of its own, and back.
fn reiserfsck(format: Format, path: &Path) -> Result<Checked, String> {
    let options = ["--check", "--yes", "--quiet"];
    let Some(at) = format.journal_at() else {
        return run("reiserfsck", &options, path);
    };
    let text = |error: std::io::Error| error.to_string();
    let mut bytes = std::fs::read(path).map_err(text)?;
    let tail = bytes.split_off(at as usize);
    let journal = path.with_extension("journal");
    std::fs::write(&journal, tail).map_err(text)?;
    std::fs::write(path, &bytes).map_err(text)?;
    let name = journal.display().to_string();
    let checked = run(
        "reiserfsck",
        &[&options[..], &["--journal", &name]].concat(),
        path,
    )?;
    let mut bytes = std::fs::read(path).map_err(text)?;
    bytes.extend(std::fs::read(&journal).map_err(text)?);
    std::fs::write(path, bytes).map_err(text)?;
    Ok(checked)
}

fn e2fsck(path: &Path, option: &str) -> Result<Checked, String> {
    run("e2fsck", &["-f", option], path)
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Result<Checked, String> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.map_err(|error| format!("{program}: {error}"))?;
    Ok(Checked {
        code: status.code().unwrap_or(-1),
        output: String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned(),
    })
}

/// `finefs check` finds something where e2fsck has repaired something, and nothing where it has
/// not. What needs no repair (a journal that is replayed, the mark of an image in use) is no error.
/// e2fsck removes orphans without a word: until then the image is not clean. That an image without
/// a journal was not unmounted says nothing of what is wrong in it.
fn finefs_agrees(image: &Image, is_repaired: bool) -> Result<(), String> {
    let device: Arc<dyn BlockDevice> = Arc::new(ImageDevice::new(image.clone()));
    let report = finefs_check::check(
        &device,
        &finefs_check::Options {
            jobs: 1,
            ..Default::default()
        },
    )?;
    let orphans = [Problem::Orphans, Problem::OrphansPending];
    let waits = |finding: &Finding| orphans.contains(&finding.problem);
    let is_wrong = |finding: &Finding| finding.problem != Problem::NotClean;
    let is_right = match is_repaired {
        false => report.clean || report.findings.iter().any(waits),
        true => !report.clean || report.findings.iter().any(is_wrong),
    };
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "repaired by e2fsck: {is_repaired}, finefs check says:\n{report}"
        )),
    }
}
