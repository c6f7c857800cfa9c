//! FileDevice: what it refuses, and that it reads and writes what it says.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use finefs_block::file::OpenErrorKind;
use finefs_block::{Access, BlockDevice, FileDevice, Patience};
use finefs_sim::LoopDevice;

fn kind(path: &Path, access: Access) -> OpenErrorKind {
    let error = FileDevice::open(path, access).expect_err("must be refused");
    let line = error.to_string();
    assert!(
        !line.contains('\n') && line.contains(&*path.to_string_lossy()),
        "{line}"
    );
    error.kind
}

fn image(directory: &Path, length_bytes: u64) -> std::path::PathBuf {
    let path = directory.join("image");
    File::create(&path).unwrap().set_len(length_bytes).unwrap();
    path
}

#[test]
fn refuses_what_is_no_image() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(
        kind(&missing, Access::ReadOnly),
        OpenErrorKind::Missing
    ));
    assert!(matches!(
        kind(directory.path(), Access::ReadWrite),
        OpenErrorKind::Directory
    ));
    assert!(matches!(
        kind(Path::new("/dev/null"), Access::ReadOnly),
        OpenErrorKind::NotAnImage
    ));
}

#[test]
fn a_writer_is_alone_and_readers_share() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 8192);
    {
        let _writer = FileDevice::open(&path, Access::ReadWrite).unwrap();
        assert!(matches!(
            kind(&path, Access::ReadWrite),
            OpenErrorKind::InUse { .. }
        ));
        assert!(matches!(
            kind(&path, Access::ReadOnly),
            OpenErrorKind::InUse { .. }
        ));
        FileDevice::open(&path, Access::Inspect).unwrap();
    }
    let _one = FileDevice::open(&path, Access::ReadOnly).unwrap();
    let _two = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(matches!(
        kind(&path, Access::ReadWrite),
        OpenErrorKind::InUse { .. }
    ));
}

#[test]
fn what_is_discarded_reads_as_zeros() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 1 << 20);
    let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
    device.write_at(0, &vec![5; 1 << 20]).unwrap();
    let is_zero = device.discard_at(4096, 512 << 10).unwrap();
    let mut bytes = vec![0; 1 << 20];
    device.read_at(0, &mut bytes).unwrap();
    let expected = if is_zero { 0 } else { 5 };
    let (from, to) = (4096, 4096 + (512 << 10));
    assert!(bytes[from..to].iter().all(|byte| *byte == expected));
    let mut rest = bytes[..from].iter().chain(&bytes[to..]);
    assert!(rest.all(|byte| *byte == 5));
    assert!(device.discard_at(1, 1 << 20).is_err());
    drop(device);
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(device.discard_at(0, 4096).is_err());
}

#[test]
fn reads_and_writes_within_its_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 1 << 20);
    {
        let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
        assert_eq!(device.len_bytes(), 1 << 20);
        device.write_at(0, &vec![5; 1 << 20]).unwrap();
        device.write_zeros_at(100, 50).unwrap();
        device.write_zeros_at(4097, 200_000).unwrap();
        assert!(device.write_at((1 << 20) - 1, &[1, 2]).is_err());
        assert!(device.write_zeros_at(1, 1 << 20).is_err());
        device.flush().unwrap();
    }
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 1 << 20);
    for (position, &byte) in bytes.iter().enumerate() {
        let is_zero = (100..150).contains(&position) || (4097..204_097).contains(&position);
        assert_eq!(byte, if is_zero { 0 } else { 5 }, "at {position}");
    }
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(device.write_at(0, &[1]).is_err());
    assert!(device.write_zeros_at(0, 1).is_err());
    let mut buffer = [0; 3];
    device.read_at(99, &mut buffer).unwrap();
    assert_eq!(buffer, [5, 0, 0]);
    assert!(device.read_at((1 << 20) - 2, &mut buffer).is_err());
}

#[test]
fn parts_are_written_one_behind_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 1 << 20);
    let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
    // More than one system call takes, some of them empty.
    let parts: Vec<Vec<u8>> = (0..2500_usize)
        .map(|number| vec![number as u8; number % 7])
        .collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    device.write_parts_at(77, &slices).unwrap();
    let whole = parts.concat();
    let mut read = vec![9; whole.len() + 2];
    device.read_at(76, &mut read).unwrap();
    assert_eq!(read[1..=whole.len()], whole);
    assert_eq!((read[0], read[whole.len() + 1]), (0, 0));
    device.write_parts_at(0, &[]).unwrap();
    assert!(device.write_parts_at((1 << 20) - 1, &[&[1], &[2]]).is_err());
    drop(device);
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(device.write_parts_at(0, &slices).is_err());
}

#[test]
fn storage_around_is_taken_too() {
    let directory = tempfile::tempdir().unwrap();
    // The end is no multiple of what is taken at once.
    let length = (1 << 20) + 4096;
    let path = image(directory.path(), length);
    let taken = || fs::metadata(&path).unwrap().blocks() * 512;
    let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
    device.reserve_at(300 << 10, 4096).unwrap();
    let exact = taken();
    device.reserve_around_at(304 << 10, 4096).unwrap();
    device.reserve_around_at(1 << 20, 4096).unwrap();
    let around = taken();
    if exact == 0 {
        // Nothing can be taken beforehand here.
        return;
    }
    assert!(around >= (256 << 10) + 4096, "{around} bytes");
    // All of that is known now.
    device.reserve_around_at(400 << 10, 100 << 10).unwrap();
    assert_eq!(taken(), around);
    assert!(device.reserve_around_at(length - 1, 2).is_err());
}

/// Who writes one piece after the other has more taken at once; who writes here and there has not.
#[test]
fn storage_ahead_is_taken_for_who_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 64 << 20);
    let taken = || fs::metadata(&path).unwrap().blocks() * 512;
    let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
    for place in [0, 8 << 20, 16 << 20] {
        device.reserve_around_at(place, 4096).unwrap();
    }
    let scattered = taken();
    if scattered == 0 {
        // Nothing can be taken beforehand here.
        return;
    }
    assert!(scattered < 1 << 20, "{scattered} bytes");
    device.reserve_around_at(256 << 10, 4096).unwrap();
    let ahead = taken();
    assert!(ahead >= scattered + (4 << 20), "{ahead} bytes");
    device.reserve_around_at(4 << 20, 4096).unwrap();
    assert_eq!(taken(), ahead);
}

/// Needs the right to mount; says so and passes without it.
#[test]
fn no_storage_is_taken_ahead_where_little_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=32m", "finefs-test"])
        .arg(directory.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: nothing can be mounted here");
        return;
    }
    let path = image(directory.path(), 64 << 20);
    let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
    for piece in 0..3 {
        device.reserve_around_at(piece * (256 << 10), 4096).unwrap();
    }
    let taken = fs::metadata(&path).unwrap().blocks() * 512;
    drop(device);
    finefs_sim::unmount(directory.path()).unwrap();
    assert!(taken < 1 << 20, "{taken} bytes");
}

/// A loop device of a file; says so where none can be set up.
fn attach(path: &Path, arguments: &[&str]) -> Option<LoopDevice> {
    let device = LoopDevice::over_with(path, arguments);
    if let Err(error) = &device {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: loop devices cannot be set up here: {error}"
        );
    }
    device.ok()
}

/// Needs the right to set up loop devices; passes without it.
#[test]
fn what_was_just_written_to_a_block_device_is_given_back_and_zeroed() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 1 << 20);
    let Some(attached) = attach(&path, &[]) else {
        return;
    };
    let outcomes = {
        let device = FileDevice::open(attached.path(), Access::ReadWrite).unwrap();
        let data = vec![7; 256 << 10];
        [0, 256 << 10].map(|at| {
            device.write_at(at, &data).unwrap();
            match at {
                0 => device.discard_at(at, data.len() as u64).map(drop),
                _ => device.write_zeros_at(at, data.len() as u64),
            }
        })
    };
    drop(attached);
    for outcome in outcomes {
        outcome.unwrap();
    }
    let written = fs::read(&path).unwrap();
    assert!(written[..512 << 10].iter().all(|byte| *byte == 0));
}

/// Giving back syncs a block device; what that sync loses the kernel tells nobody again. Needs the
/// right to mount and to set up loop devices; passes without it.
#[test]
fn what_giving_back_finds_lost_the_next_flush_tells() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "finefs-test"])
        .arg(directory.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: nothing can be mounted here");
        return;
    }
    let path = image(directory.path(), 16 << 20);
    let outcomes = attach(&path, &[]).map(|attached| {
        let device = FileDevice::open(attached.path(), Access::ReadWrite).unwrap();
        // More than the file system below has room for, as only a sync finds.
        device.write_at(0, &vec![7; 8 << 20]).unwrap();
        let given_back = device.discard_at(0, 256 << 10);
        [given_back.map(drop), device.flush(), device.flush()]
    });
    finefs_sim::unmount(directory.path()).unwrap();
    for outcome in outcomes.into_iter().flatten() {
        outcome.expect_err("data were lost");
    }
}

/// Needs the right to set up loop devices; passes without it.
#[test]
fn an_image_on_a_loop_device_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 1 << 20);
    let Some(device) = attach(&path, &[]) else {
        return;
    };
    let open_and_detach = |device: LoopDevice| {
        let for_writing = FileDevice::open(&path, Access::ReadWrite);
        let for_reading = FileDevice::open(&path, Access::ReadOnly);
        drop(device);
        (for_writing, for_reading)
    };
    let (for_writing, for_reading) = open_and_detach(device);
    assert!(matches!(
        for_writing.unwrap_err().kind,
        OpenErrorKind::InUse { .. }
    ));
    assert!(matches!(
        for_reading.unwrap_err().kind,
        OpenErrorKind::InUse { .. }
    ));
    if let Some(device) = attach(&path, &["-r"]) {
        let (for_writing, for_reading) = open_and_detach(device);
        assert!(matches!(
            for_writing.unwrap_err().kind,
            OpenErrorKind::InUse { may_read: true, .. }
        ));
        for_reading.unwrap();
    }
}

/// As after umount(8) of what `mount -o loop` has mounted, while udev still looks at the device.
/// Needs the right to set up loop devices; passes without it.
#[test]
fn a_loop_device_that_goes_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), 1 << 20);
    let Some(device) = attach(&path, &[]) else {
        return;
    };
    let looking = fs::File::open(device.path()).unwrap();
    drop(device);
    let patience = Patience {
        limit: Duration::from_secs(60),
        tell: |_| {},
    };
    let waiting = std::thread::spawn(move || patience.open(&path, Access::ReadWrite).map(drop));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    drop(looking);
    waiting.join().unwrap().unwrap();
}
