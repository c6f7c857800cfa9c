//! Sizes and blocks that stat(2) shows, now and after the next mount. These tests need root and
//! FUSE.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

/// Size and blocks of 512 bytes.
fn size(path: &Path) -> (u64, u64) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.size(), found.blocks())
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn make_names(directory: &Path, names: std::ops::Range<u32>) {
    for number in names {
        File::create(directory.join(format!("name {number}"))).unwrap();
    }
}

/// An image with small blocks, so that all grows soon.
fn image(place: &Place, kind: &str) -> PathBuf {
    let image = place.image(kind);
    let made = run(Command::new("mke2fs")
        .args(["-q", "-F", "-t", kind, "-b", "1024", "-N", "8192"])
        .arg(&image));
    assert!(made.status.success(), "{made:?}");
    image
}

/// Everything that stat shows of sizes stays what it is when the image is mounted again.
#[test]
fn sizes_are_those_after_the_next_mount() {
    if !can_mount() {
        return;
    }
    for kind in ["ext2", "ext4"] {
        let place = Place::new();
        let (image, root) = (image(&place, kind), place.mount_point());
        // No commit comes of its own accord.
        mount(&image, &root, &["-o", "commit=3600"]);

        let (empty, names) = (root.join("empty"), root.join("names"));
        for directory in [&empty, &names] {
            fs::create_dir(directory).unwrap();
            assert_eq!(size(directory), (1024, 2), "{kind}");
        }
        let (short, long) = (root.join("short"), root.join("long"));
        symlink("x".repeat(59), &short).unwrap();
        symlink("x".repeat(60), &long).unwrap();
        assert_eq!((size(&short), size(&long)), ((59, 0), (60, 2)), "{kind}");
        make_names(&names, 0..2000);

        // Files that have more than their data: a map of many pieces, and attributes beside the
        // inode.
        let (pieces, labelled) = (root.join("pieces"), root.join("labelled"));
        let file = File::create(&pieces).unwrap();
        let write_pieces = |pieces: std::ops::Range<u64>| {
            for piece in pieces {
                file.write_all_at(b"piece", piece * 4096).unwrap();
            }
        };
        write_pieces(0..200);
        fs::write(&labelled, b"data").unwrap();
        let value = "v".repeat(500);
        succeed(
            Command::new("setfattr")
                .args(["-n", "user.label", "-v", &value])
                .arg(&labelled),
        );
        let all = [&root, &empty, &names, &short, &long, &pieces, &labelled];
        // What was changed last: all before it is committed, too.
        sync(&labelled);
        let sizes = || all.map(|path| size(path));
        let shown = sizes();
        // Its map has more blocks than fit the inode.
        assert!(shown[5].1 > 400, "{kind}: {shown:?}");
        assert_eq!(shown[6], (4, 4), "{kind}");
        assert!(shown[2].0 >= 40 << 10, "{kind}: {shown:?}");
        // Blocks of a map may come on top.
        assert_eq!(shown[1], (1024, 2), "{kind}");
        for (size, blocks) in [shown[0], shown[2]] {
            assert!(
                (size..size + 8192).contains(&(blocks * 512)),
                "{kind}: {shown:?}"
            );
        }
        let used = run(Command::new("du").args(["-s", "-B", "512"]).arg(&names)).stdout;
        let used = String::from_utf8(used).unwrap();
        assert!(used.starts_with(&format!("{}\t", shown[2].1)), "{used}");

        // What was shown before a commit is not what the kernel goes by for ever.
        make_names(&names, 2000..4000);
        assert_eq!(size(&names), shown[2]);
        write_pieces(200..400);
        let before = size(&pieces);
        file.sync_all().unwrap();
        wait_until("the directory and the file are asked about again", || {
            size(&names).0 >= 80 << 10 && size(&pieces).1 > before.1
        });
        let shown = sizes();
        drop(file);
        unmount(&place);
        check(&image);
        mount(&image, &root, &[]);
        assert_eq!(sizes(), shown, "{kind}");
        unmount(&place);
    }
}
