//! What clients are told when the device fails.

use std::process::Command;
use std::sync::Arc;

use crate::client::*;
use finefs_block::{Access, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Namespace, Options};
use finefs_sim::{FaultDevice, FaultOn};
use nfs3_types::nfs3::*;

/// A client must not take what it wrote for durable: the COMMIT fails, and later writes fail too,
/// or have another verifier, so that clients write again what they had not committed (RFC 1813,
/// 3.3.7).
#[test]
fn after_a_commit_that_fails_nothing_is_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let mut mke2fs = Command::new("mke2fs");
    let made = mke2fs
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&image)
        .arg("16M");
    assert!(made.status().unwrap().success());
    let device = FileDevice::open(&image, Access::ReadWrite).unwrap();
    let never = u64::MAX;
    let device = FaultDevice::new(Arc::new(device), FaultOn::Flush, never, 1_000_000);
    let device = Arc::new(device);
    let store = ExtStore::open(device.clone(), &ExtOptions::default()).unwrap();
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let server = serve(&Arc::new(namespace), trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let written = client.write(&file, 0, b"some", stable_how::UNSTABLE);
    let before = written.unwrap().verf;
    let commit = COMMIT3args {
        file: file.clone(),
        offset: 0,
        count: 0,
    };
    let committed: COMMIT3res = client.call(procedure::COMMIT, &commit);
    assert_eq!(committed.unwrap().verf, before);

    let written = client.write(&file, 4, b"more", stable_how::UNSTABLE);
    assert_eq!(written.unwrap().verf, before);
    device.arm(0);
    let committed: COMMIT3res = client.call(procedure::COMMIT, &commit);
    match committed {
        COMMIT3res::Ok(_) => panic!("the device has failed"),
        COMMIT3res::Err((status, _)) => assert_eq!(status, nfsstat3::NFS3ERR_IO),
    }
    // Another client has uncommitted data as well.
    let mut other = Client::new(&server);
    match other.write(&file, 0, b"again", stable_how::UNSTABLE) {
        Ok(written) => assert_ne!(written.verf, before),
        Err(status) => assert!(
            matches!(status, nfsstat3::NFS3ERR_IO | nfsstat3::NFS3ERR_ROFS),
            "{status:?}"
        ),
    }
    server.stop();
}
