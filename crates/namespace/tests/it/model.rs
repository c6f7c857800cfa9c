//! Random operations on the namespace against the reference model, one thread.
//!
//! `FINEFS_SEEDS=first..end` and `FINEFS_STEPS=n` run others than the default.

use std::num::NonZeroUsize;
use std::sync::Arc;

use finefs_namespace::{CommitThreads, MemoryStore, Namespace, Options, Store};
use finefs_testkit::{CheckedStore, Subject, check_seeds};

/// A namespace over a memory store, which is gone when it is shut down.
struct Memory(Arc<Namespace>);

impl Memory {
    fn boxed() -> Box<dyn Subject> {
        let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
        Box::new(Memory(store.into_namespace(Options::default()).unwrap()))
    }
}

impl Subject for Memory {
    fn namespace(&self) -> &Namespace {
        &self.0
    }

    fn reopen(&mut self) -> Result<bool, String> {
        Ok(false)
    }
}

/// A namespace over a checked store, with or without a life after the namespace's.
struct Checked {
    store: Arc<CheckedStore>,
    namespace: Namespace,
    reloads: bool,
}

impl Checked {
    fn boxed(store: CheckedStore) -> Box<dyn Subject> {
        let reloads = store.can_reload();
        let store = Arc::new(store);
        let namespace = Checked::open(&store);
        Box::new(Checked {
            store,
            namespace,
            reloads,
        })
    }

    fn open(store: &Arc<CheckedStore>) -> Namespace {
        let options = Options {
            // So little that whatever may be evicted is, all the time.
            cache_bytes: 0,
            // However little there is.
            commit_threads: CommitThreads::Always(const { NonZeroUsize::new(2).unwrap() }),
            ..Options::default()
        };
        Namespace::without_thread(Arc::<CheckedStore>::clone(store), options).unwrap()
    }
}

impl Subject for Checked {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn reopen(&mut self) -> Result<bool, String> {
        if self.reloads {
            let result = self.namespace.shut_down();
            result.map_err(|error| error.to_string())?;
            self.store.assert_at_rest();
            self.store.assert_no_orphans();
            self.namespace = Checked::open(&self.store);
        }
        Ok(self.reloads)
    }
}

fn check(seeds: std::ops::Range<u64>, make: &dyn Fn() -> Box<dyn Subject>) {
    check_seeds(seeds, 500, make);
}

#[test]
fn memory_does_what_the_model_does() {
    check(0..100, &Memory::boxed);
}

#[test]
fn every_commit_is_a_file_system() {
    check(1000..1060, &|| Checked::boxed(CheckedStore::new(64 << 20)));
}

#[test]
fn evicted_and_reopened_objects_are_the_same() {
    check(2000..2080, &|| {
        Checked::boxed(CheckedStore::reloading(64 << 20))
    });
}

#[test]
fn what_was_folded_is_a_file_system() {
    check(3000..3060, &|| {
        Checked::boxed(CheckedStore::reloading(64 << 20).with_batches_of(200))
    });
}
