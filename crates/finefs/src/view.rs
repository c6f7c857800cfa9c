//! What handles share: the file system, and the caller in whose name they act.
//!
//! # Data model
//! A [`View`] is a file system as one caller sees it. An open file keeps it alive, and a count that
//! every open and close in the process changed would be one line that all CPUs write. So a view has
//! an [`Anchor`] for each CPU, made on first use, and an open file counts on the anchor of the CPU
//! that opened it. The anchors keep [`Mounted`] alive, and that keeps everything.

use std::sync::{Arc, OnceLock};

use finefs_block::Claim;
use finefs_locks::cpu;
use finefs_namespace::{Caller, Namespace};

/// Anchors that a view has at most: more CPUs share them.
const ANCHORS_MAX: usize = 64;

/// An open file system. The last handle that goes ends it.
pub(crate) struct Mounted {
    pub namespace: Arc<Namespace>,
    pub notes: Vec<String>,
    /// What keeps others from the image, if it is one, and from the device of its journal.
    pub claims: Vec<Claim>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.namespace.is_inherited() {
            // A forked process has a copy of this, and none of the threads that its end waits for.
            std::mem::forget(Arc::clone(&self.namespace));
            return;
        }
        // After `FileSystem::close` there is nothing left to do, and no error is told twice.
        if let Err(error) = self.namespace.shut_down() {
            log::error!("a file system that nobody closed could not be written out: {error}");
        }
    }
}

/// A file system as one caller sees it.
pub(crate) struct View {
    anchors: Box<[OnceLock<Arc<Anchor>>]>,
    pub mounted: Arc<Mounted>,
    pub caller: Caller,
}

/// What open files of one CPU count on.
#[repr(align(128))]
pub(crate) struct Anchor {
    pub mounted: Arc<Mounted>,
    pub caller: Caller,
}

impl View {
    pub fn new(mounted: Arc<Mounted>, caller: Caller) -> Arc<View> {
        let count = cpu::count().min(ANCHORS_MAX);
        Arc::new(View {
            anchors: (0..count).map(|_| OnceLock::new()).collect(),
            mounted,
            caller,
        })
    }

    pub fn namespace(&self) -> &Namespace {
        &self.mounted.namespace
    }

    /// The anchor of this CPU.
    pub fn anchor(&self) -> Arc<Anchor> {
        let anchor = self.anchors[cpu::current() % self.anchors.len()].get_or_init(|| {
            Arc::new(Anchor {
                mounted: Arc::clone(&self.mounted),
                caller: self.caller.clone(),
            })
        });
        Arc::clone(anchor)
    }
}

impl Anchor {
    pub fn namespace(&self) -> &Namespace {
        &self.mounted.namespace
    }
}
