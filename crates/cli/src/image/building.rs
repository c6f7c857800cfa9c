//! What build and tar -x share: how far it is, signals, and what is left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_image::build::Progress;
use indicatif::ProgressStyle;

use super::copying;
use crate::progress::{self, Companion};
use crate::{CliResult, output};

/// Does work with a progress bar, until a signal stops it.
pub(crate) fn watched<T>(
    work: &mut dyn FnMut(&Progress) -> finefs_image::Result<T>,
) -> CliResult<finefs_image::Result<T>> {
    let progress = Arc::new(Progress {
        stop: copying::watch_signals()?,
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
    progress::bar(move |bar| {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let all = now(&progress.files_all);
        let style = match all {
            0 => "listing, {msg}",
            _ => "{msg} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(match all {
            0 => format!("{} files", now(&progress.listed)),
            _ => format!("{} of {all} files,", now(&progress.files)),
        });
        bar.set_length(now(&progress.bytes_all));
        bar.set_position(now(&progress.bytes));
    })
}
