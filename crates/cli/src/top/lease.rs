//! What `finefs top` has on in the server: asked for a few seconds at a time, so that it goes by
//! itself when nobody asks any more, and side by side with what others ask for.

use std::time::{Duration, Instant};

use finefs_lockmeter::Wanted;
use finefs_lockmeter::control::{Reply, Request};

use crate::channel::{Channel, NoAnswer};

/// For so long it stays on without being asked for again.
const TIME: Duration = Duration::from_secs(5);
/// So often it is asked for again.
const RENEWAL: Duration = Duration::from_millis(1500);

/// For so long an answer is waited for, before the user may do something else: as long as it stays
/// on.
pub(super) const PATIENCE: Duration = TIME;

/// What is on in the server for this program, until dropped.
pub(super) struct Lease<'a> {
    channel: &'a Channel,
    wanted: Wanted,
    /// The number that the server knows it by; none where nothing is wanted.
    id: Option<u64>,
    renewed: Instant,
}

impl<'a> Lease<'a> {
    pub(super) fn take(channel: &'a Channel, wanted: Wanted) -> Result<Lease<'a>, NoAnswer> {
        let mut lease = Lease {
            channel,
            wanted,
            id: None,
            renewed: Instant::now(),
        };
        lease.renew()?;
        Ok(lease)
    }

    /// What is wanted now.
    pub(super) fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Wants something else from now on.
    pub(super) fn change(&mut self, wanted: Wanted) -> Result<(), NoAnswer> {
        self.wanted = wanted;
        self.renew().map(drop)
    }

    /// When it is to be renewed.
    pub(super) fn due(&self) -> Instant {
        self.renewed + RENEWAL
    }

    /// Asks for it again; true if it was on all the time.
    pub(super) fn renew(&mut self) -> Result<bool, NoAnswer> {
        let renewed = self.try_renew();
        self.renewed = Instant::now();
        renewed
    }

    fn try_renew(&mut self) -> Result<bool, NoAnswer> {
        if self.wanted == Wanted::default() {
            self.end();
            return Ok(true);
        }
        let asked = Request::Lease {
            id: self.id,
            time_ms: u64::try_from(TIME.as_millis()).unwrap_or(u64::MAX),
            wanted: self.wanted,
        };
        match self.channel.meter_within(asked, PATIENCE)? {
            Reply::Leased { id, has_lasted } => {
                let is_first = self.id.replace(id).is_none();
                Ok(is_first || has_lasted)
            }
            Reply::Refused(reason) => Err(NoAnswer::Gone(reason)),
            _ => Err(NoAnswer::Gone("its server is of another version".into())),
        }
    }

    /// Asks for the reports that cross what is wanted.
    pub(super) fn reports(&self) -> Request {
        self.id.map_or(Request::Reports, Request::ReportsOf)
    }

    fn end(&mut self) {
        if let Some(id) = self.id.take() {
            // A server that has gone has nothing on.
            let _ = self.channel.meter_within(Request::EndLease(id), PATIENCE);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
