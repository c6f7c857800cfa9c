//! A namespace over a damaged image: changes it, and compares afterwards what was answered with
//! what is there.
// Each test program uses a part of this.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Once};

use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore, OnError};
use finefs_namespace::{
    AllocateMode, Caller, Error, FileKind, Ino, Namespace, Options, RenameMode, Result,
    SetAttributes, Store, XattrMode,
};

/// What a path must be.
#[derive(Clone, PartialEq, Eq)]
enum Expected {
    Nothing,
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
    /// Something is there; its content was not looked at.
    Something,
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Nothing => f.write_str("nothing"),
            Expected::Directory => f.write_str("a directory"),
            Expected::File(content) => write!(f, "a file of {} bytes", content.len()),
            Expected::Link(target) => write!(f, "a link of {} bytes", target.len()),
            Expected::Something => f.write_str("something"),
        }
    }
}

/// What became of a trial.
pub struct Outcome {
    /// Operations that succeeded, and the errors of the others with how often each came.
    pub succeeded: usize,
    pub errors: BTreeMap<String, usize>,
    /// Why commits failed, if they did.
    pub failure: Option<Error>,
    /// What was answered with success and is not on the image.
    pub lost: Vec<String>,
    /// The same after e2fsck has repaired it.
    pub lost_to_repair: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} succeeded, {:?}; failure {:?}; lost {:#?}, by e2fsck {:#?}",
            self.succeeded, self.errors, self.failure, self.lost, self.lost_to_repair
        )
    }
}

/// See the module's head.
pub struct Trial {
    pub namespace: Arc<Namespace>,
    path: PathBuf,
    expected: BTreeMap<Vec<u8>, Expected>,
    succeeded: usize,
    errors: BTreeMap<String, usize>,
    failure: Option<Error>,
}

/// Messages of all tests of the process.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Messages;

impl log::Log for Messages {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let message = format!("{}: {}", record.level(), record.args());
            if std::env::var_os("FINEFS_SAY").is_some() {
                println!("    {message}");
            }
            MESSAGES.lock().unwrap().push(message);
        }
    }

    fn flush(&self) {}
}

/// Keeps what is logged from now on.
pub fn keep_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Messages).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
}

/// What was logged about an image that contains `part`.
pub fn messages_about(image: &Path, part: &str) -> Vec<String> {
    let all = MESSAGES.lock().unwrap();
    let image = image.to_string_lossy();
    let found = all
        .iter()
        .filter(|message| message.contains(part) && message.contains(&*image));
    found.cloned().collect()
}

/// What was logged that contains `part`.
pub fn messages_with(part: &str) -> Vec<String> {
    keep_messages();
    let all = MESSAGES.lock().unwrap();
    all.iter()
        .filter(|message| message.contains(part))
        .cloned()
        .collect()
}

/// A namespace over an image, which must be mounted for writing.
pub fn open_with(path: &Path, on_error: OnError) -> Namespace {
    keep_messages();
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let options = ExtOptions {
        on_error: Some(on_error),
        ..ExtOptions::default()
    };
    let store = ExtStore::open(device, &options).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    Namespace::without_thread(Arc::new(store), Options::default()).unwrap()
}

fn open(path: &Path, is_read_only: bool) -> Option<Arc<Namespace>> {
    let access = if is_read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let device = Arc::new(FileDevice::open(path, access).unwrap());
    let options = ExtOptions {
        is_read_only,
        ..ExtOptions::default()
    };
    let store = ExtStore::open(device, &options).ok()?;
    if store.geometry().is_read_only != is_read_only {
        return None;
    }
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    Some(Arc::new(namespace.unwrap()))
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, b"/", name].concat()
}

fn find(namespace: &Namespace, path: &[u8]) -> Result<(Ino, FileKind)> {
    let root = namespace.root();
    let mut at = (root, FileKind::Directory);
    for name in path.split(|byte| *byte == b'/').filter(|n| !n.is_empty()) {
        let found = namespace.lookup(&Caller::root(), at.0, name)?;
        namespace.forget(found.ino, 1);
        at = (found.ino, found.kind);
    }
    Ok(at)
}

fn content(namespace: &Namespace, ino: Ino) -> Result<Vec<u8>> {
    let size = namespace.attributes(ino)?.size_bytes.min(1 << 20);
    let mut bytes = vec![0; size as usize];
    let length = namespace.read(ino, 0, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn names(namespace: &Namespace, ino: Ino) -> Result<Vec<(Vec<u8>, Ino)>> {
    let mut names = Vec::new();
    namespace.read_directory(ino, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push((entry.name.to_vec(), entry.ino));
        }
        true
    })?;
    names.sort();
    Ok(names)
}

impl Trial {
    /// Mounts an image; `None` where that gives no file system that can be changed.
    pub fn open(path: &Path) -> Option<Trial> {
        keep_messages();
        Some(Trial {
            namespace: open(path, false)?,
            path: path.to_owned(),
            expected: BTreeMap::new(),
            succeeded: 0,
            errors: BTreeMap::new(),
            failure: None,
        })
    }

    fn take<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.succeeded += 1;
                Some(value)
            }
            Err(error) => {
                *self.errors.entry(format!("{what}: {error}")).or_default() += 1;
                None
            }
        }
    }

    fn expect(&mut self, path: Vec<u8>, expected: Expected) {
        self.expected.insert(path, expected);
    }

    /// The first directories of a walk from the root.
    pub fn directories(&mut self, most: usize) -> Vec<Vec<u8>> {
        let mut found: Vec<Vec<u8>> = vec![Vec::new()];
        let mut seen = vec![self.namespace.root()];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            let listed =
                find(&self.namespace, &path).and_then(|(ino, _)| names(&self.namespace, ino));
            for (name, ino) in listed.unwrap_or_default() {
                let path = join(&path, &name);
                let is_directory =
                    matches!(find(&self.namespace, &path), Ok((_, FileKind::Directory)));
                if is_directory && found.len() < most && !seen.contains(&ino) {
                    seen.push(ino);
                    found.push(path);
                }
            }
        }
        found
    }

    /// Makes a directory.
    pub fn make_directory(&mut self, directory: &[u8], name: &[u8]) -> bool {
        let made = find(&self.namespace, directory).and_then(|(dir, _)| {
            let made = self
                .namespace
                .make_directory(&Caller::root(), dir, name, 0o755)?;
            self.namespace.forget(made.ino, 1);
            Ok(())
        });
        let made = self.take("mkdir", made).is_some();
        if made {
            self.expect(join(directory, name), Expected::Directory);
        }
        made
    }

    /// Makes a file and writes it.
    pub fn make_file(&mut self, directory: &[u8], name: &[u8], content: &[u8]) -> bool {
        let namespace = self.namespace.clone();
        let made = find(&namespace, directory)
            .and_then(|(dir, _)| namespace.create_file(&Caller::root(), dir, name, 0o644));
        let Some(made) = self.take("create", made) else {
            return false;
        };
        self.expect(join(directory, name), Expected::File(Vec::new()));
        let written = namespace.write(made.ino, 0, content);
        let is_written = self.take("write", written).is_some();
        if is_written {
            self.expect(join(directory, name), Expected::File(content.to_vec()));
        }
        let value = vec![7; 300];
        let set = namespace.set_xattr(
            &Caller::root(),
            made.ino,
            b"user.big",
            &value,
            XattrMode::Set,
        );
        self.take("setxattr", set);
        namespace.forget(made.ino, 1);
        is_written
    }

    /// Makes a symbolic link that needs a block.
    pub fn make_link(&mut self, directory: &[u8], name: &[u8]) {
        let target = vec![b'x'; 100];
        let made = find(&self.namespace, directory).and_then(|(dir, _)| {
            let made = self
                .namespace
                .make_symlink(&Caller::root(), dir, name, &target)?;
            self.namespace.forget(made.ino, 1);
            Ok(())
        });
        if self.take("symlink", made).is_some() {
            self.expect(join(directory, name), Expected::Link(target));
        }
    }

    /// The names of a directory.
    pub fn names(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let listed =
            find(&self.namespace, directory).and_then(|(ino, _)| names(&self.namespace, ino));
        listed.unwrap().into_iter().map(|(name, _)| name).collect()
    }

    /// Writes at the end of a file.
    pub fn append(&mut self, path: &[u8], data: &[u8]) -> Result<u64> {
        let (ino, _) = find(&self.namespace, path)?;
        self.namespace.append(ino, data)
    }

    /// Removes a name.
    pub fn remove(&mut self, directory: &[u8], name: &[u8]) {
        let namespace = self.namespace.clone();
        let path = join(directory, name);
        let removed =
            find(&namespace, directory).and_then(|(dir, _)| match find(&namespace, &path)? {
                (_, FileKind::Directory) => namespace.remove_directory(&Caller::root(), dir, name),
                _ => namespace.remove_file(&Caller::root(), dir, name),
            });
        if self.take("remove", removed).is_some() {
            self.expect(path, Expected::Nothing);
        }
    }

    fn change_file(
        &mut self,
        path: &[u8],
        what: &str,
        change: impl FnOnce(&Namespace, Ino, &mut Vec<u8>) -> Result<()>,
    ) {
        let namespace = self.namespace.clone();
        let Ok((ino, _)) = find(&namespace, path) else {
            return;
        };
        let Ok(mut bytes) = content(&namespace, ino) else {
            return;
        };
        if namespace
            .attributes(ino)
            .is_ok_and(|a| a.size_bytes > 1 << 20)
        {
            return;
        }
        let changed = change(&namespace, ino, &mut bytes);
        if self.take(what, changed).is_some() {
            self.expect(path.to_vec(), Expected::File(bytes));
        }
    }

    /// Changes a bit of everything in a directory, and makes new things there.
    pub fn work_in(&mut self, directory: &[u8]) {
        let namespace = self.namespace.clone();
        let listed = find(&namespace, directory).and_then(|(ino, _)| names(&namespace, ino));
        let listed = self.take("readdir", listed).unwrap_or_default();
        let mut files = listed.iter().filter(|(name, ino)| {
            let kind = find(&namespace, &join(directory, name)).map(|(_, kind)| kind);
            let links = namespace.attributes(*ino).map_or(0, |a| a.link_count);
            kind == Ok(FileKind::Regular) && links == 1
        });
        let mut file = || files.next().map(|(name, _)| name.clone());
        if let Some(name) = file() {
            let path = join(directory, &name);
            self.change_file(&path, "write at the end", |ns, ino, bytes| {
                ns.write(ino, bytes.len() as u64, &[9; 5000])?;
                bytes.extend([9; 5000]);
                Ok(())
            });
        }
        if let Some(name) = file() {
            self.change_file(&join(directory, &name), "truncate", |ns, ino, bytes| {
                let change = SetAttributes {
                    size_bytes: Some(bytes.len() as u64 / 2),
                    ..SetAttributes::default()
                };
                ns.set_attributes(&Caller::root(), ino, &change)?;
                bytes.truncate(bytes.len() / 2);
                Ok(())
            });
        }
        if let Some(name) = file() {
            self.change_file(&join(directory, &name), "punch", |ns, ino, bytes| {
                ns.allocate(ino, AllocateMode::PunchHole, 0, 4096)?;
                let end = bytes.len().min(4096);
                bytes[..end].fill(0);
                Ok(())
            });
        }
        if let Some(name) = file() {
            let new = b"renamed by the trial".to_vec();
            let moved = find(&namespace, directory).and_then(|(dir, _)| {
                let (from, to) = ((dir, &name[..]), (dir, &new[..]));
                namespace.rename(&Caller::root(), from, to, RenameMode::Replace)
            });
            if self.take("rename", moved).is_some() {
                self.expect(join(directory, &name), Expected::Nothing);
                self.expect(join(directory, &new), Expected::Something);
            }
        }
        for _ in 0..3 {
            if let Some(name) = file() {
                self.remove(directory, &name);
            }
        }
        let is_special = |name: &[u8]| match find(&namespace, &join(directory, name)) {
            Ok((_, kind)) => !matches!(kind, FileKind::Directory | FileKind::Regular),
            Err(_) => false,
        };
        if let Some((name, _)) = listed.iter().find(|(name, _)| is_special(name)) {
            self.remove(directory, name);
        }
        for number in 0..3 {
            let name = |what: &str| format!("{what} {number}").into_bytes();
            if self.make_directory(directory, &name("made directory")) {
                let inner = join(directory, &name("made directory"));
                self.make_file(&inner, b"inner file", &[3; 2000]);
            }
            self.make_file(directory, &name("made file"), &vec![number + 1; 3000]);
            self.make_link(directory, &name("made link"));
        }
        self.remove(directory, b"made file 1");
        self.remove(directory, b"made link 1");
    }

    /// Commits.
    pub fn sync(&mut self) {
        if let Err(error) = self.namespace.sync() {
            self.failure.get_or_insert(error);
        }
    }

    /// Unmounts, and looks at what is there.
    pub fn end(mut self) -> Outcome {
        if let Err(error) = self.namespace.shut_down() {
            self.failure.get_or_insert(error);
        }
        let Trial {
            namespace,
            path,
            expected,
            succeeded,
            errors,
            failure,
        } = self;
        drop(namespace);
        let lost = compare(&path, &expected);
        let lost_to_repair = match repair(&path) {
            true => compare(&path, &expected),
            false => vec!["e2fsck cannot repair it".to_owned()],
        };
        Outcome {
            succeeded,
            errors,
            failure,
            lost,
            lost_to_repair,
        }
    }
}

/// True when e2fsck finds nothing any more after it has repaired the image.
fn repair(path: &Path) -> bool {
    let run = || {
        let output = Command::new("e2fsck")
            .arg("-fy")
            .arg(path)
            .output()
            .unwrap();
        output.status.code()
    };
    // The second run repairs what the first could not while it moved things.
    (0..3).any(|_| run() == Some(0))
}

/// What is not as it must be.
fn compare(path: &Path, expected: &BTreeMap<Vec<u8>, Expected>) -> Vec<String> {
    let Some(namespace) = open(path, true) else {
        return vec!["it cannot be mounted any more".to_owned()];
    };
    let mut lost = Vec::new();
    for (path, expected) in expected {
        let found = find(&namespace, path);
        let is_as_expected = match (expected, &found) {
            (Expected::Nothing, Err(Error::NotFound)) => true,
            (Expected::Directory, Ok((ino, FileKind::Directory))) => {
                names(&namespace, *ino).is_ok()
            }
            (Expected::File(bytes), Ok((ino, FileKind::Regular))) => {
                content(&namespace, *ino).as_ref() == Ok(bytes)
            }
            (Expected::Link(target), Ok((ino, FileKind::Symlink))) => {
                namespace.read_symlink(*ino).as_ref() == Ok(target)
            }
            (Expected::Something, Ok(_)) => true,
            _ => false,
        };
        if !is_as_expected {
            let path = String::from_utf8_lossy(path);
            lost.push(format!("{path}: must be {expected:?}, found {found:?}"));
        }
    }
    lost
}
