//! SIGINT, SIGTERM and SIGHUP end a run early, cleaning up; a second one ends the program at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use finefs_cli::{CliResult, Failure};

/// What shells show for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// A flag that becomes true when one of them has come.
pub(crate) fn catch() -> CliResult<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the flag is not set yet when the first one comes.
        flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::new(format!("cannot catch signals: {error}")))?;
    }
    Ok(stop)
}

pub(crate) fn has_come(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

pub(crate) fn exit_code() -> ExitCode {
    ExitCode::from(INTERRUPTED)
}
