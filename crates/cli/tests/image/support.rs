//! Images, the command, and what a tree of files is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory with an image in it.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Place { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new image of so many MiB.
    pub fn image(&self, name: &str, kind: &str, mebibytes: u64) -> PathBuf {
        self.image_with(name, mebibytes, &["-t", kind])
    }

    pub fn image_with(&self, name: &str, mebibytes: u64, arguments: &[&str]) -> PathBuf {
        let image = self.path(name);
        let file = fs::File::create(&image).unwrap();
        file.set_len(mebibytes << 20).unwrap();
        let mut mke2fs = Command::new("mke2fs");
        mke2fs
            .args(["-q", "-F", "-E", "root_owner=0:0"])
            .args(arguments);
        let made = mke2fs.arg(&image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        image
    }

    /// The command, which runs in this directory.
    pub fn finefs(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
        command.args(arguments).current_dir(self.directory.path());
        command.stdin(Stdio::null()).env("TZ", "UTC");
        command
    }

    /// Runs the command; it must succeed and say nothing. Gives what it prints.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.finefs(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{arguments:?}: {said}"
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs the command; it must fail with this status. Gives what it says.
    pub fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.finefs(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        said
    }

    /// Runs the command with standard input.
    pub fn with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.finefs(arguments);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        // It may end before it has read all.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }
}

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped in part: needs root");
    }
    is_root
}

/// e2fsck finds nothing.
pub fn assert_clean(image: &Path) {
    let output = Command::new("e2fsck")
        .args(["-fn"])
        .arg(image)
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{found}");
}

/// What debugfs prints.
pub fn debugfs(image: &Path, request: &str) -> String {
    let mut command = Command::new("debugfs");
    let output = command.args(["-R", request]).arg(image).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn run(program: &str, arguments: &[&OsStr]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    output
}

/// Runs a shell script in a directory; it must succeed.
pub fn run_in(dir: &Path, script: &str) {
    let mut command = Command::new("sh");
    let done = command
        .args(["-ec", script])
        .current_dir(dir)
        .env("TZ", "UTC");
    assert!(done.status().unwrap().success(), "{script}");
}

/// The kernel's mount of an image, read-only unless options say else; gone when it is dropped.
pub struct KernelMount {
    pub dir: PathBuf,
}

impl KernelMount {
    pub fn new(place: &Place, image: &Path, options: &str) -> KernelMount {
        let dir = place.path("kernel");
        fs::create_dir_all(&dir).unwrap();
        let options = OsString::from(format!("loop,{options}"));
        let arguments = [
            OsStr::new("-o"),
            &options,
            image.as_os_str(),
            dir.as_os_str(),
        ];
        run("mount", &arguments);
        KernelMount { dir }
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _ = finefs_sim::unmount(&self.dir);
    }
}

/// All that there is to know of a file, but for what a copy cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    mode: u32,
    owner: (u32, u32),
    size: u64,
    links: u64,
    /// The first path of the same inode.
    first: PathBuf,
    rdev: u64,
    modified: (i64, i64),
    target: Option<PathBuf>,
    xattrs: Vec<(OsString, Vec<u8>)>,
    contents: Option<Vec<u8>>,
    /// Where data is, in blocks of 4 KiB.
    data: Vec<(u64, u64)>,
}

/// All files below a directory of the host by their paths, the directory itself as "".
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let mut firsts = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        let whole = root.join(&path);
        let metadata = fs::symlink_metadata(&whole).unwrap();
        let kind = metadata.file_type();
        if kind.is_dir() {
            let mut names: Vec<_> = fs::read_dir(&whole)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .filter(|name| name != "lost+found")
                .collect();
            names.sort();
            todo.extend(names.iter().rev().map(|name| path.join(name)));
        }
        let is_device = kind.is_block_device() || kind.is_char_device();
        let first = firsts.entry(metadata.ino()).or_insert(path.clone()).clone();
        let facts = Facts {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            size: if kind.is_dir() { 0 } else { metadata.len() },
            links: if kind.is_dir() { 0 } else { metadata.nlink() },
            first,
            rdev: if is_device { metadata.rdev() } else { 0 },
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            target: fs::read_link(&whole).ok(),
            xattrs: xattrs(&whole),
            contents: kind.is_file().then(|| fs::read(&whole).unwrap()),
            data: if kind.is_file() {
                data(&whole)
            } else {
                Vec::new()
            },
        };
        found.insert(path, facts);
    }
    found
}

fn xattrs(path: &Path) -> Vec<(OsString, Vec<u8>)> {
    let mut buffer = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut buffer[..]).unwrap_or(0);
    let names = buffer[..length].to_vec();
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let mut found: Vec<_> = names
        .map(|name| {
            let name = OsStr::from_bytes(name);
            let length = rustix::fs::lgetxattr(path, name, &mut buffer[..]).unwrap();
            (name.to_owned(), buffer[..length].to_vec())
        })
        .collect();
    found.sort();
    found
}

fn data(path: &Path) -> Vec<(u64, u64)> {
    const BLOCK: u64 = 4096;
    let file = fs::File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        let (start, end) = (start / BLOCK, at.div_ceil(BLOCK));
        match found.last_mut() {
            Some((_, last)) if *last >= start => *last = end,
            _ => found.push((start, end)),
        }
    }
    found
}

/// The trees are equal, or this says where not.
pub fn assert_same(left: &BTreeMap<PathBuf, Facts>, right: &BTreeMap<PathBuf, Facts>) {
    let paths = left.keys().chain(right.keys());
    for path in paths {
        let short = |facts: Option<&Facts>| {
            facts.map(|facts| Facts {
                contents: facts
                    .contents
                    .as_ref()
                    .map(|all| all[..all.len().min(20)].to_vec()),
                ..facts.clone()
            })
        };
        let (one, other) = (left.get(path), right.get(path));
        assert!(
            one == other,
            "{path:?}\n{:?}\n{:?}",
            short(one),
            short(other)
        );
    }
}

/// A checksum that tells a change of a file.
pub fn bytes_of(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
