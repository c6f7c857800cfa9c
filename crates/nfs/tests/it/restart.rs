//! What a client still has when the server of an image was started again.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::client::*;
use finefs::ImageOptions;
use finefs::front_end::namespace::Namespace;
use nfs3_types::nfs3::*;

fn open(image: &Path) -> Arc<Namespace> {
    let opened = finefs::front_end::open_image(image, ImageOptions::new());
    opened.expect("it is sound").namespace
}

#[test]
fn handles_cookies_and_creates_stay_and_the_verifier_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&image)
        .arg("16m")
        .status();
    assert!(made.expect("mke2fs runs").success());

    let namespace = open(&image);
    let server = serve(&namespace, trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let dir = client.make_directory(&root, "dir").unwrap();
    for number in 0..200 {
        client.make_file(&dir, &format!("file{number}"));
    }
    let gone = client.make_file(&dir, "gone");
    client.remove(&dir, "gone").unwrap();
    let exclusive = || createhow3::EXCLUSIVE(createverf3([0x9c; 8]));
    let file = client.create(&root, "file", exclusive()).unwrap();
    let written = client.make_file(&root, "written");
    let before = client.write(&written, 0, b"committed", stable_how::UNSTABLE);
    let before = before.unwrap().verf;
    let listed = client.list(&dir, 1 << 20);
    server.stop();
    namespace.shut_down().unwrap();
    // It still has the image.
    drop(namespace);

    let namespace = open(&image);
    let server = serve(&namespace, trusting());
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    assert_eq!(client.lookup(&root, "dir").unwrap(), dir);
    assert_eq!(client.read(&written, 0, 100).unwrap().0, b"committed");
    let stale = client.attributes(&gone).unwrap_err();
    assert_eq!(stale, nfsstat3::NFS3ERR_STALE);
    // The reply was lost, and the server with it.
    assert_eq!(client.create(&root, "file", exclusive()).unwrap(), file);
    assert_eq!(client.list(&dir, 1 << 20), listed);
    let arguments = READDIR3args {
        dir: dir.clone(),
        cookie: listed[99].1,
        cookieverf: cookieverf3([0; 8]),
        count: 1 << 20,
    };
    let rest: READDIR3res<'static> = client.call(procedure::READDIR, &arguments);
    assert_eq!(rest.unwrap().reply.entries.0.len(), listed.len() - 100);
    let after = client.write(&written, 0, b"x", stable_how::FILE_SYNC);
    assert_ne!(after.unwrap().verf, before);
    server.stop();
    namespace.shut_down().unwrap();
    let checked = Command::new("e2fsck").arg("-fn").arg(&image).output();
    let checked = checked.expect("e2fsck runs");
    assert!(checked.status.success(), "{checked:?}");
}
