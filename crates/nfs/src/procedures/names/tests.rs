//! What CREATE does while others change the same file, and in a file system that is frozen
//! meanwhile.

use std::sync::Arc;

use finefs_namespace::{Caller, Ino, MemoryStore, Namespace, Options};

use super::*;
use crate::export::{Export, ExportOptions, Served};
use crate::procedures::Waits;

fn serve() -> Export {
    let store = MemoryStore::new(16 << 20, 0o755, 0, 0).unwrap();
    let options = Options {
        waits_for_thaw: false,
        ..Options::default()
    };
    Export::new(Served {
        name: "/".into(),
        namespace: store.into_namespace(options).unwrap(),
        options: ExportOptions::default(),
    })
}

/// Thaws when a thread waits.
struct Thaws(Arc<Namespace>);

impl Waits for Thaws {
    fn begin_wait(&self) {
        let _ = self.0.thaw();
    }

    fn end_wait(&self) {}
}

fn context<'e>(export: &'e Export, waits: &'e Thaws) -> Context<'e> {
    Context {
        export,
        caller: Caller::root(),
        waits,
    }
}

fn root(export: &Export) -> Held<'_> {
    let namespace = &export.namespace;
    let root = namespace.reference(namespace.root());
    Held::new(namespace, root.unwrap())
}

#[test]
fn a_file_that_is_cut_by_a_create_is_changed() {
    let export = serve();
    let waits = Thaws(Arc::clone(&export.namespace));
    let context = context(&export, &waits);
    let directory = root(&export);
    let create = |size_bytes| {
        let wanted = SetAttributes {
            size_bytes,
            ..SetAttributes::default()
        };
        let made = context.create(&directory, b"file", &How::Unchecked(wanted));
        made.unwrap().ino()
    };
    let ino: Ino = create(None);
    let other = export.changes.begin(ino);
    create(None);
    assert!(other.is_alone());
    create(Some(0));
    assert!(!other.is_alone());
}
