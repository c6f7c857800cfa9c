//! Directories that find names whatever their case (`casefold`), judged by e2fsck, which hashes
//! names as the kernel does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{image, trial};
use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, OnError};
use finefs_namespace::{Caller, Error, FileFlags, Ino, Namespace, Options, RenameMode, Result};

fn make(directory: &Path, arguments: &str) -> PathBuf {
    image::make_ext4(directory, &format!("-O casefold {arguments}"))
}

struct World {
    namespace: Namespace,
    dir: Ino,
}

impl World {
    /// With a directory that folds case.
    fn new(image: &Path) -> World {
        let namespace = trial::open_with(image, OnError::Continue);
        let caller = Caller::root();
        let made = namespace.make_directory(&caller, namespace.root(), b"Folder", 0o755);
        let dir = made.unwrap().ino;
        let fold = |flags| flags | FileFlags::CASEFOLD;
        namespace.set_flags(&caller, dir, fold).unwrap();
        World { namespace, dir }
    }

    fn make(&self, name: impl AsRef<[u8]>) -> Result<Ino> {
        let made = (self.namespace).create_file(&Caller::root(), self.dir, name.as_ref(), 0o644)?;
        self.namespace.forget(made.ino, 1);
        Ok(made.ino)
    }

    fn find(&self, name: impl AsRef<[u8]>) -> Result<Ino> {
        let found = self
            .namespace
            .lookup(&Caller::root(), self.dir, name.as_ref())?;
        self.namespace.forget(found.ino, 1);
        Ok(found.ino)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.namespace
            .remove_file(&Caller::root(), self.dir, name.as_bytes())
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let listed = self.namespace.read_directory(self.dir, 2, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        });
        listed.unwrap();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }

    fn end(self, image: &Path) -> World {
        self.namespace.shut_down().unwrap();
        drop(self.namespace);
        image::assert_clean(image);
        let namespace = trial::open_with(image, OnError::Continue);
        let root = namespace.root();
        let dir = namespace
            .lookup(&Caller::root(), root, b"Folder")
            .unwrap()
            .ino;
        World { namespace, dir }
    }
}

#[test]
fn names_whatever_their_case() {
    for arguments in ["", "-b 1024 -O inline_data", "-O ^metadata_csum,^dir_index"] {
        let directory = tempfile::tempdir().unwrap();
        let image = make(directory.path(), arguments);
        let world = World::new(&image);
        let street = world.make("Straße").unwrap();
        assert_eq!(world.find("STRASSE"), Ok(street));
        assert_eq!(world.make("strasse"), Err(Error::Exists));
        let caller = Caller::root();
        let link = world
            .namespace
            .make_link(&caller, street, world.dir, b"Second Name");
        world.namespace.forget(link.unwrap().ino, 1);
        assert_eq!(world.find("second name"), Ok(street));
        let world = world.end(&image);
        assert_eq!(world.names(), ["Second Name", "Straße"]);
        // The name that is there stays as it is written.
        let other = world.make("other").unwrap();
        let (from, to) = (
            (world.dir, &b"OTHER"[..]),
            (world.dir, "STRASSE".as_bytes()),
        );
        world
            .namespace
            .rename(&caller, from, to, RenameMode::Replace)
            .unwrap();
        world.remove("SECOND NAME").unwrap();
        let world = world.end(&image);
        assert_eq!(world.names(), ["Straße"]);
        assert_eq!(world.find("straSSe"), Ok(other));
        // Removed and made in other case within one commit.
        world.remove("STRASSE").unwrap();
        world.make("STRASSE").unwrap();
        let world = world.end(&image);
        assert_eq!(world.names(), ["STRASSE"]);
        world.end(&image);
    }
}

#[test]
fn an_index_over_folded_names() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "-b 1024 -N 4000");
    let mut world = World::new(&image);
    let name = |number: usize| format!("Näme Nümber {number}");
    for number in 0..3000 {
        world.make(name(number)).unwrap();
        if number % 700 == 0 {
            world = world.end(&image);
        }
    }
    world = world.end(&image);
    for number in (0..3000).step_by(7) {
        world.find(name(number).to_uppercase()).unwrap();
        world.remove(&name(number).to_uppercase()).unwrap();
    }
    world = world.end(&image);
    assert_eq!(world.names().len(), 3000 - 3000_usize.div_ceil(7));
    world.end(&image);
}

#[test]
fn flags_and_strictness() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, is_strict) in [("", false), ("-E encoding_flags=strict", true)] {
        let image = make(directory.path(), arguments);
        let world = World::new(&image);
        let (namespace, caller) = (&world.namespace, Caller::root());
        let made = world.make(b"\xffno text");
        assert_eq!(made.is_ok(), !is_strict, "{made:?}");
        if is_strict {
            assert_eq!(made, Err(Error::Invalid));
            assert_eq!(world.find(b"\xff"), Err(Error::Invalid));
        } else {
            assert_eq!(world.find(b"\xffNO TEXT"), Err(Error::NotFound));
        }
        world.make("file").unwrap();
        let clear = |flags| flags - FileFlags::CASEFOLD;
        let cleared = namespace.set_flags(&caller, world.dir, clear);
        assert_eq!(cleared, Err(Error::NotEmpty));
        let inner = namespace
            .make_directory(&caller, world.dir, b"inner", 0o755)
            .unwrap();
        assert!(inner.flags.contains(FileFlags::CASEFOLD));
        namespace.set_flags(&caller, inner.ino, clear).unwrap();
        namespace.forget(inner.ino, 1);
        let world = world.end(&image);
        let inner = world.find("INNER").unwrap();
        let attributes = world.namespace.attributes(inner).unwrap();
        assert!(!attributes.flags.contains(FileFlags::CASEFOLD));
        world.end(&image);
    }
}

/// A directory that was read in parts, and has no names any more, can come to fold case.
#[test]
fn a_large_directory_that_was_emptied_folds_case() {
    let directory = tempfile::tempdir().unwrap();
    let image = make(directory.path(), "-b 1024 -N 8192");
    let open = || {
        let device = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
        let store = ExtStore::open(device, &ExtOptions::default()).unwrap();
        let options = Options {
            cache_bytes: 512 << 10,
            ..Options::default()
        };
        Namespace::new(Arc::new(store), options).unwrap()
    };
    let caller = Caller::root();
    let names = || (0..3000).map(|number| format!("name {number}"));
    let namespace = open();
    let made = namespace.make_directory(&caller, namespace.root(), b"dir", 0o755);
    let dir = made.unwrap().ino;
    for name in names() {
        let made = namespace.create_file(&caller, dir, name.as_bytes(), 0o644);
        namespace.forget(made.unwrap().ino, 1);
    }
    namespace.shut_down().unwrap();
    drop(namespace);
    let namespace = open();
    for name in names() {
        namespace
            .remove_file(&caller, dir, name.as_bytes())
            .unwrap();
    }
    let fold = |flags| flags | FileFlags::CASEFOLD;
    namespace.set_flags(&caller, dir, fold).unwrap();
    let create = |name: &[u8]| {
        let made = namespace.create_file(&caller, dir, name, 0o644);
        made.map(|made| namespace.forget(made.ino, 1))
    };
    // The name of before is not what this one is removed as.
    create(b"NAME 7").unwrap();
    assert_eq!(create(b"name 7"), Err(Error::Exists));
    namespace.remove_file(&caller, dir, b"name 7").unwrap();
    create(b"a").unwrap();
    assert_eq!(create(b"A"), Err(Error::Exists));
    namespace.shut_down().unwrap();
    drop(namespace);
    image::assert_clean(&image);
}
