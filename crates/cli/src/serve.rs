//! The life of a mounted file system, from the mount to its end.
//!
//! # The end
//! Whatever ends a mount, the last step is the same: the namespace is shut down, which writes
//! everything out, and the image's lock goes with the process, which is what `finefs umount` waits
//! for. The exit status tells whether all of it is on the image, and so does the channel to its
//! clients. Meanwhile a mark on the image tells the next `finefs mount` that it is worth waiting.
//!
//! Of a block device that the kernel mounted as `fuseblk` the kernel asks for the shut-down, and
//! the unmount waits for it.
//!
//! A frozen mount thaws first, so that the unmount does not wait for calls that wait for it.
//!
//! A confined server has its attendant unmount it.
//!
//! - Unmounted by anybody (`finefs umount`, fusermount3 -u, umount(8)): the session ends by itself.
//! - SIGTERM, SIGINT, SIGHUP: unmounts. If it is busy: the kernel's dirty pages are fetched, the
//!   mount is detached (no new user can come), processes that still have files open may go on for
//!   [`GRACE`], or until a second signal; then the write-out happens and the process ends. Calls of
//!   processes that are left then fail with ENOTCONN.
//! - A server thread that panics outside of an operation: as a signal, but the exit status is 1.
//! - The session fails while the mount is there (a thread cannot be started): the same, but nobody
//!   can go on for a while.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use finefs::front_end::namespace::{Error, Namespace, guard};
use finefs_block::Claim;
use finefs_fuse::{DetachError, Mount, SERVER_THREAD_PREFIX, Unmounter};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::attendant::{self, Attendant};
use crate::background::Readiness;
use crate::channel::Answering;
use crate::confine::Pending;
use crate::{CliResult, Failure, progress};

/// How long the users of a busy mount may go on after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// What can happen to a mount.
enum Event {
    /// The kernel ended the session.
    Ended(std::io::Result<()>),
    /// SIGTERM or the like.
    Signal,
    /// A server thread is gone.
    Crashed,
}

/// The signals that end a mount. To be made before the mount, so that none comes too early.
pub(crate) struct EndSignals(Signals);

impl EndSignals {
    /// Waits for the first.
    pub(crate) fn wait(mut self) {
        self.0.forever().next();
    }
}

impl EndSignals {
    pub(crate) fn catch() -> CliResult<EndSignals> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
        signals
            .map(EndSignals)
            .map_err(|error| Failure::new(format!("cannot catch signals: {error}")))
    }
}

/// Where a mount's beginning and end are told, and which users may ask meanwhile.
pub(crate) struct Ends {
    /// Waits until it is usable.
    pub readiness: Option<Readiness>,
    /// Answers until it has ended.
    pub channel: Option<Answering>,
    /// Is marked when only the end is left.
    pub claim: Option<Claim>,
    /// What confines the server when all is set up.
    pub confinement: Option<Pending>,
    /// What unmounts then.
    pub attendant: Option<Attendant>,
}

impl Ends {
    /// Confines the server and lets the launcher end. From here on nothing new is opened. The error
    /// is told when the mount, which is there, has been taken away.
    fn begin(&mut self) -> CliResult<()> {
        if let Some(readiness) = &mut self.readiness {
            readiness.leave()?;
        }
        if let Some(attendant) = &mut self.attendant {
            let socket = self.channel.as_mut().and_then(Answering::take_socket);
            attendant.begin(socket).map_err(Failure::new)?;
            attendant.connect_from_now_on();
        }
        let confined = match self.confinement.take() {
            Some(confinement) => confinement.apply(),
            None => Ok(()),
        };
        match (self.readiness.take(), &confined) {
            (Some(readiness), Ok(())) => readiness.report(),
            (Some(readiness), Err(reason)) => readiness.refuse(reason),
            (None, _) => {}
        }
        confined
    }

    fn unmount(&self, unmounter: &Unmounter, is_lazy: bool) -> Result<(), DetachError> {
        match &self.attendant {
            Some(attendant) => attendant.unmount(is_lazy),
            None => attendant::unmount(unmounter, is_lazy),
        }
    }
}

/// Serves `mount` to its end. `what` names it in messages.
pub(crate) fn serve(
    mount: Mount,
    namespace: &Arc<Namespace>,
    what: &str,
    signals: EndSignals,
    mut ends: Ends,
) -> CliResult<ExitCode> {
    let unmounter = mount.unmounter();
    let (sender, events) = channel();
    watch_for_panics(sender.clone());
    let begun = ends.begin();
    if begun.is_err() {
        let _ = sender.send(Event::Crashed);
    }
    if let Err(error) = start_threads(mount, signals, &sender) {
        let _ = sender.send(Event::Ended(Err(error)));
    }

    let mut is_sound = true;
    match events.recv() {
        Ok(Event::Ended(result)) => {
            let is_mounted = result.is_err();
            is_sound &= report_end(what, result);
            if is_mounted {
                thaw(namespace);
                detach(what, &unmounter, &ends);
            }
        }
        Ok(Event::Signal) => {
            thaw(namespace);
            end_by_force(what, &unmounter, &ends, &events, &mut is_sound);
        }
        Ok(Event::Crashed) | Err(_) => {
            is_sound = false;
            thaw(namespace);
            end_by_force(what, &unmounter, &ends, &events, &mut is_sound);
        }
    }
    if let Some(claim) = &ends.claim {
        claim.mark_ending();
    }
    let result = finish(what, namespace);
    if let Err(line) = &result {
        log::error!("{line}");
    }
    if let Some(attendant) = &ends.attendant {
        attendant.remove_socket();
    }
    if let Some(channel) = ends.channel {
        channel.finish(&result);
    }
    begun?;
    is_sound &= result.is_ok();
    Ok(if is_sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Lets calls go on that wait for a thaw: an unmount waits for them.
fn thaw(namespace: &Namespace) {
    match namespace.thaw() {
        // Not frozen.
        Ok(()) | Err(Error::Invalid) => {}
        Err(error) => log::error!("thawing: {error}"),
    }
}

/// The last step; the error is a line for the user.
pub(crate) fn finish(what: &str, namespace: &Namespace) -> Result<(), String> {
    progress::during(&format!("writing out {what}"), || namespace.shut_down()).map_err(
        |error| {
            format!(
                "{what}: not everything is on the image: {error}; check it with {}",
                namespace.checker()
            )
        },
    )?;
    let lost = finefs_fuse::lost_writes();
    if lost > 0 {
        return Err(format!(
            "{what}: {lost} delayed writes failed: what they held is not in their files"
        ));
    }
    match guard::failed_operations() {
        0 => Ok(()),
        failed => Err(format!(
            "{what}: {failed} operations failed by a bug in finefs; check it with {}",
            namespace.checker()
        )),
    }
}

fn start_threads(mount: Mount, signals: EndSignals, sender: &Sender<Event>) -> std::io::Result<()> {
    let EndSignals(mut signals) = signals;
    let for_signals = sender.clone();
    let for_session = sender.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if for_signals.send(Event::Signal).is_err() {
                    return;
                }
            }
        })?;
    std::thread::Builder::new()
        .name("session".into())
        .spawn(move || {
            let _ = for_session.send(Event::Ended(mount.serve()));
        })?;
    Ok(())
}

/// Logs panics, and tells of those that cost a server thread.
fn watch_for_panics(sender: Sender<Event>) {
    std::panic::set_hook(Box::new(move |panic| {
        log::error!("bug in finefs: {panic}");
        if is_lost(std::thread::current().name(), guard::is_in_operation()) {
            let _ = sender.send(Event::Crashed);
        }
    }));
}

/// Whether a panic of the thread costs the mount a server thread.
fn is_lost(name: Option<&str>, is_in_operation: bool) -> bool {
    !is_in_operation && name.is_some_and(|name| name.starts_with(SERVER_THREAD_PREFIX))
}

fn report_end(what: &str, result: std::io::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            log::error!("{what}: the session with the kernel failed: {error}");
            false
        }
    }
}

/// Unmounts it; where it is busy its users keep it.
fn detach(what: &str, unmounter: &Unmounter, ends: &Ends) {
    let patience_s = GRACE.as_secs();
    match ends.unmount(unmounter, false) {
        Ok(()) => {}
        Err(DetachError::Busy) => {
            log::warn!("{what}: busy; detached, its users have {patience_s} s at most");
            if let Err(error) = ends.unmount(unmounter, true) {
                log::error!("{what}: cannot detach it: {error}");
            }
        }
        // Somebody detached it already; its users hold it.
        Err(DetachError::NotMounted) => {}
        Err(error) => log::error!("{what}: cannot unmount it: {error}"),
    }
}

/// Ends a mount from our side; see the module's head.
fn end_by_force(
    what: &str,
    unmounter: &Unmounter,
    ends: &Ends,
    events: &Receiver<Event>,
    is_sound: &mut bool,
) {
    detach(what, unmounter, ends);
    let deadline = Instant::now() + GRACE;
    loop {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended(result)) => {
                *is_sound &= report_end(what, result);
                return;
            }
            Ok(Event::Crashed) => *is_sound = false,
            Ok(Event::Signal) => return,
            Err(RecvTimeoutError::Timeout) => {
                log::warn!("{what}: still in use; its users will get errors");
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_thread_outside_of_an_operation_is_lost() {
        assert!(is_lost(Some("fuse-0.1"), false));
        assert!(!is_lost(Some("fuse-0.1"), true));
        assert!(!is_lost(Some("finefs-commit"), false));
        assert!(!is_lost(None, false));
    }
}
