//! `finefs diff --oci`: what differs as a layer of a container image.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use finefs_image::archive::Progress;
use finefs_image::compare::{Options, Tree};
use finefs_image::{Error, Packing, layer};

use super::TROUBLE;
use crate::image::session::Session;
use crate::image::stop;
use crate::{CliResult, output, progress};

/// Writes what makes the second of the first.
pub(super) fn write(
    mut session: Session<'_>,
    file: &Path,
    (first, second): (Tree, Tree),
    options: Options,
) -> CliResult<ExitCode> {
    if let Some(program) = Packing::lacking_of_name(file.as_os_str()) {
        let reason = format!("there is no {program}; pack by .zst, .xz or .gz");
        session.fail_with(TROUBLE, Error::new(file.display().to_string(), reason));
        return session.end();
    }
    let progress = Progress {
        stop: stop::watch_signals()?,
        ..Progress::default()
    };
    let trees = (&first, &second);
    let written = match file.as_os_str().as_encoded_bytes() {
        b"-" => {
            let mut output = std::io::stdout().lock();
            let shown = "standard output";
            layer::write(&mut output, shown, trees, options, Packing::None, &progress)
        }
        _ => progress::during("writing the layer", || {
            let packing = Packing::of_name(file.as_os_str());
            layer::write_file(file, trees, options, packing, &progress)
        }),
    };
    drop((first, second));
    match written {
        Ok(left_out) => left_out.iter().for_each(output::say),
        Err(error) if progress.stop.load(Ordering::Relaxed) => {
            session.fail_with(stop::INTERRUPTED, error);
        }
        // Its reader may go at any time, and knows that it is not whole.
        Err(error) if error.errno() == Some(libc::EPIPE) => session.fail_with_silently(TROUBLE),
        Err(error) => session.fail_with(TROUBLE, error),
    }
    session.end()
}
