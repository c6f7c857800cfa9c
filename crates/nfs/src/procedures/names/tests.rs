//! What CREATE does while others change the same file, in a file system that is frozen meanwhile,
//! and when a commit comes in between.

use std::process::Command;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Ino, MemoryStore, Namespace, Options};
use finefs_sim::{ImageDevice, RecordingDevice};

use super::*;
use crate::export::{Export, ExportOptions, Served};
use crate::procedures::Waits;

fn serve() -> Export {
    let store = MemoryStore::new(16 << 20, 0o755, 0, 0).unwrap();
    let options = Options {
        waits_for_thaw: false,
        ..Options::default()
    };
    export(store.into_namespace(options).unwrap())
}

fn export(namespace: Arc<Namespace>) -> Export {
    Export::new(Served {
        name: "/".into(),
        namespace,
        options: ExportOptions::default(),
    })
}

/// Thaws when a thread waits.
struct Thaws {
    namespace: Arc<Namespace>,
    is_stopping: bool,
}

impl Thaws {
    fn new(export: &Export) -> Thaws {
        Thaws {
            namespace: Arc::clone(&export.namespace),
            is_stopping: false,
        }
    }
}

impl Waits for Thaws {
    fn begin_wait(&self) {
        let _ = self.namespace.thaw();
    }

    fn end_wait(&self) {}

    fn is_stopping(&self) -> bool {
        self.is_stopping
    }
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
    let waits = Thaws::new(&export);
    let context = context(&export, &waits);
    let directory = root(&export);
    let create = |size_bytes| {
        let wanted = SetAttributes {
            size_bytes,
            ..SetAttributes::default()
        };
        let made = context.create(&directory, b"file", &How::Unchecked(wanted));
        made.unwrap().held.ino()
    };
    let ino: Ino = create(None);
    let other = export.changes.begin(ino);
    create(None);
    assert!(other.is_alone());
    create(Some(0));
    assert!(!other.is_alone());
}

#[test]
fn a_create_that_has_begun_waits_for_the_thaw() {
    let export = serve();
    let waits = Thaws::new(&export);
    let context = context(&export, &waits);
    let (namespace, directory) = (&export.namespace, root(&export));
    let made = namespace.create_file(&context.caller, directory.ino(), b"file", 0);
    let verifier = Verifier::new([0x9c; 8]);
    namespace.freeze().unwrap();
    let wanted = SetAttributes {
        accessed: Some(SetTime::To(verifier.accessed)),
        modified: Some(SetTime::To(verifier.modified)),
        ..SetAttributes::default()
    };
    let dressed = context.dress((&directory, b"file"), made.unwrap(), &wanted);
    assert!(verifier.is_of(&dressed.unwrap().held.now()));
    assert!(!namespace.is_frozen());
}

/// It would keep the server from its end.
#[test]
fn a_create_that_has_begun_does_not_wait_when_the_server_stops() {
    let export = serve();
    let waits = Thaws {
        is_stopping: true,
        ..Thaws::new(&export)
    };
    let context = context(&export, &waits);
    let (namespace, directory) = (&export.namespace, root(&export));
    let made = namespace.create_file(&context.caller, directory.ino(), b"file", 0);
    namespace.freeze().unwrap();
    let wanted = SetAttributes {
        modified: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    let dressed = context.dress((&directory, b"file"), made.unwrap(), &wanted);
    assert_eq!(dressed.err(), Some(Failed::Error(Error::Frozen)));
    namespace.thaw().unwrap();
}

fn open(device: Arc<dyn BlockDevice>) -> Arc<Namespace> {
    let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    Arc::new(namespace.unwrap())
}

#[test]
fn what_is_set_behind_the_commit_of_the_name_is_durable_when_it_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(&image);
    assert!(mke2fs.arg("16M").status().unwrap().success());
    let device = Arc::new(RecordingDevice::new(std::fs::read(image).unwrap()));
    let export = export(open(device.clone()));
    let waits = Thaws::new(&export);
    let context = context(&export, &waits);
    let handle = {
        let root = root(&export);
        export.handle(root.ino(), root.attributes.generation)
    };
    let mut out = Writer::default();
    context.make(&handle, &mut out, |directory| {
        let (namespace, caller) = (&export.namespace, &context.caller);
        let made = namespace.create_file(caller, directory.ino(), b"file", 0o644)?;
        namespace.sync()?;
        let owner = SetAttributes {
            uid: Some(1000),
            ..SetAttributes::default()
        };
        context.dress((directory, b"file"), made, &owner)
    });
    assert_eq!(out.bytes()[..4], [0; 4]);
    // A crash at this moment leaves what was flushed.
    let epochs = device.recorded().epochs();
    let after = open(Arc::new(ImageDevice::new(
        epochs.last().unwrap().base.clone(),
    )));
    let found = after.lookup(&Caller::root(), after.root(), b"file");
    assert_eq!(found.unwrap().uid, 1000);
}
