//! What build and tar -x share: how far it is, signals, and what is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_image::build::Progress;

use super::stop;
use crate::progress::{self, Companion, Step};
use crate::{CliResult, output};

/// Does work with a progress bar, until a signal stops it.
pub(crate) fn watched<T>(
    work: &mut dyn FnMut(&Progress) -> finefs_image::Result<T>,
) -> CliResult<finefs_image::Result<T>> {
    let progress = Arc::new(Progress {
        stop: stop::watch_signals()?,
        ..Progress::default()
    });
    let _bar = bar(&progress);
    Ok(work(&progress))
}

/// Says what an image does not have.
pub(crate) fn say_left_out(lines: &[String]) {
    for line in lines {
        output::say(format!("left out: {line}"));
    }
}

/// Shows how far it is.
fn bar(progress: &Arc<Progress>) -> Option<Companion> {
    let progress = Arc::clone(progress);
    progress::bar(move || {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let message = match now(&progress.files_all) {
            0 => format!("listing, {} files", now(&progress.listed)),
            all => format!("{} of {all} files", now(&progress.files)),
        };
        Step {
            message,
            bytes: now(&progress.bytes),
            bytes_all: now(&progress.bytes_all),
        }
    })
}
