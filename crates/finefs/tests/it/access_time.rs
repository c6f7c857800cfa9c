//! Reads through the embedding API, and the access time.

use std::io::Read;
use std::time::{Duration, SystemTime};

use finefs::{
    AtimePolicy, Caller, Error, FileSystem, FileTimes, LastLink, MemoryOptions, OpenOptions,
    Permissions,
};

fn past() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

#[test]
fn what_is_opened_without_noting_is_not_noted() {
    let options = MemoryOptions::new().atime(AtimePolicy::Strict);
    let fs = options.open(1 << 20).unwrap();
    fs.write("file", "content").unwrap();
    fs.set_permissions("file", Permissions::from_mode(0o666))
        .unwrap();
    let quiet = |fs: &FileSystem| {
        OpenOptions::new()
            .read(true)
            .note_access(false)
            .open(fs, "file")
    };
    let accessed = || fs.metadata("file").unwrap().accessed();
    let age = || {
        let times = FileTimes::new().accessed(past());
        fs.set_times("file", times, LastLink::Follow).unwrap();
    };
    let mut text = String::new();
    age();
    let mut file = quiet(&fs).unwrap();
    file.read_to_string(&mut text).unwrap();
    file.read_at(&mut [0; 3], 2).unwrap();
    assert_eq!((text.as_str(), accessed()), ("content", past()));
    fs.open("file").unwrap().read_at(&mut [0; 3], 2).unwrap();
    assert!(accessed() > past());

    let other = fs.as_caller(Caller {
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
        umask: 0o022,
        checks: finefs::AccessChecks::Needed,
    });
    let refused: Error = quiet(&other).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(other.open("file").is_ok());
}
