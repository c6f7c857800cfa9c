//! What keeps a namespace from changing anything after an error.
//!
//! # States
//! ```text
//! sound --damage, where the store stops on damage--> stopped
//! sound --a commit finds no storage--> out of storage --a commit succeeds--> sound
//! sound --a commit fails--> failed
//! ```
//! - *stopped*: changes fail with EROFS; what was logged is committed.
//! - *out of storage*: changes and syncs fail with ENOSPC; each of them tries a commit before.
//! - *failed*: changes fail with EROFS; syncs report the error for good.
//!
//! Reading goes on in all of them. Each way into a state is told once: to the log, and to whoever
//! asked for it ([`Health::listen`]).

use std::sync::OnceLock;

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, Result};
use crate::base::store::Store;

type Listener = Box<dyn Fn(&Error, &dyn Store) + Send + Sync>;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<Error>,
    damage: OnceLock<Error>,
    is_out_of_storage: AtomicBool,
    listener: OnceLock<Listener>,
}

impl Health {
    /// Why there can be no commits any more.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// The last commit found no storage. There may be some again: only a commit tells.
    pub fn is_out_of_storage(&self) -> bool {
        self.is_out_of_storage.load(Ordering::Relaxed)
    }

    /// Refuses changes where there can be none.
    pub fn may_change(&self) -> Result<()> {
        if self.failure.get().is_some() || self.damage.get().is_some() {
            return Err(Error::ReadOnly);
        }
        if self.is_out_of_storage() {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn tell(&self, store: &dyn Store, consequence: &str, error: &Error) {
        log::error!(
            "{}: {error}; {consequence}; unmount it and run {}",
            store.describe(),
            store.checker()
        );
        if let Some(listener) = self.listener.get() {
            listener(error, store);
        }
    }

    /// Only the first listener is taken.
    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// Takes note of how a commit ended.
    pub fn note_commit(&self, store: &dyn Store, outcome: Result<()>) -> Result<()> {
        let is_full = matches!(outcome, Err(Error::NoSpace));
        // One commit at a time: nobody else changes it.
        if self.is_out_of_storage.swap(is_full, Ordering::Relaxed) != is_full {
            let what = store.describe();
            if is_full {
                log::error!(
                    "no space on the file system of {what}, or below the device that it is; until \
                     there is some again nothing can be changed, and the newest changes are not on \
                     the image"
                );
            } else if outcome.is_ok() {
                log::warn!("{what}: there is storage again; everything is on the image");
            }
        }
        if let Err(error) = &outcome
            && !is_full
            && self.failure.set(error.clone()).is_ok()
        {
            let consequence = "what was not synced is lost, and nothing can be changed any more";
            self.tell(store, consequence, error);
        }
        outcome
    }

    /// Takes note of damage where the store stops on it; other errors are none.
    pub fn note_damage(&self, store: &dyn Store, error: &Error) {
        if matches!(error, Error::Corrupt(_)) && self.damage.set(error.clone()).is_ok() {
            let consequence = "nothing can be changed any more (errors=)";
            self.tell(store, consequence, error);
        }
    }
}
