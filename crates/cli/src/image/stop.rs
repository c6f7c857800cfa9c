//! Signals that end a command where it can be ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::{CliResult, Failure};

/// Status of a command that a signal has ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// A signal that is watched has come.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// True once a signal that is watched has asked for an end.
pub(super) fn is_stopped() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// The first SIGINT, SIGTERM or SIGHUP asks for an end, the second ends. The flag is the same each
/// time.
pub(crate) fn watch_signals() -> CliResult<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    if let Some(stop) = STOP.get() {
        return Ok(Arc::clone(stop));
    }
    let stop = Arc::clone(STOP.get_or_init(Arc::default));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            INTERRUPTED.into(),
            Arc::clone(&stop),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
        .map_err(|error| Failure::new(format!("signals: {error}")))?;
    }
    Ok(stop)
}
