//! `finefs resize`: files, partitions, qcow2, exports; its words and statuses.

use std::fs;
use std::process::Command;

use crate::support::{Place, assert_clean};

fn filled(place: &Place, mebibytes: u64) -> std::path::PathBuf {
    let image = place.image_with("disk.img", mebibytes, &["-t", "ext4", "-b", "4096"]);
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..50 {
        fs::write(place.path(&format!("tree/{number}")), vec![number; 50_000]).unwrap();
    }
    place.ok(&["cp", "-r", "tree", "disk.img:/"]);
    image
}

fn is_kept(place: &Place, image: &str) {
    for number in [0, 17, 49] {
        let name = format!("{image}:/tree/{number}");
        let output = place.finefs(&["cat", &name]).output().unwrap();
        assert!(output.stdout == vec![number; 50_000], "{name}");
    }
}

#[test]
fn a_file_grows_and_is_cut_off() {
    let place = Place::new();
    let image = filled(&place, 64);
    let length = || fs::metadata(&image).unwrap().len();
    let said = place.ok(&["resize", "disk.img", "1g"]);
    assert!(said.contains("262144 blocks of 4096 bytes now"), "{said}");
    assert_eq!(length(), 1 << 30);
    assert_clean(&image);
    let said = place.ok(&["resize", "disk.img"]);
    assert!(said.contains("nothing to do"), "{said}");

    let said = place.ok(&["resize", "-P", "--json", "disk.img"]);
    let least: serde_json::Value = serde_json::from_str(&said).unwrap();
    let least = least["minimum_blocks"].as_u64().unwrap();
    assert_eq!(length(), 1 << 30);
    let reason = place.fails(1, &["resize", "disk.img", "1m"]);
    assert!(reason.contains(&format!("it needs {least}")), "{reason}");
    let said = place.ok(&[
        "resize",
        "--json",
        "--undo",
        "back",
        "disk.img",
        "minimum+10%",
    ]);
    let now: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        now["blocks"].as_u64(),
        Some(least + least.div_ceil(10)),
        "{now}"
    );
    assert_eq!(length(), now["blocks"].as_u64().unwrap() * 4096);
    assert_clean(&image);
    is_kept(&place, "disk.img");
    place.ok(&["undo", "back", "disk.img"]);
    assert_eq!(length(), 1 << 30);
    assert_clean(&image);
    is_kept(&place, "disk.img");

    assert_eq!(place.ok(&["resize", "-q", "disk.img", "100m"]), "");
    let said = place.ok(&["resize", "-M", "-p", "disk.img"]);
    assert!(said.starts_with("checking\n"), "{said}");
    is_kept(&place, "disk.img");
    assert_clean(&image);
    place.fails(1, &["resize", "missing", "1g"]);
    place.fails(1, &["resize", "disk.img", "much"]);
    place.fails(1, &["resize", "--offset", "1m", "disk.img"]);
}

#[test]
fn a_partition_takes_what_it_has_and_no_more() {
    let place = Place::new();
    filled(&place, 64);
    place.ok(&["convert", "--gpt", "disk.img", "whole.img"]);
    place.ok(&["resize", "whole.img@p1", "40m"]);
    is_kept(&place, "whole.img@p1");
    let check = place.finefs(&["check", "whole.img@p1"]).status().unwrap();
    assert!(check.success());
    let length = fs::metadata(place.path("whole.img")).unwrap().len();
    let reason = place.fails(1, &["resize", "whole.img@p1", "1g"]);
    assert!(reason.contains("cannot be made larger"), "{reason}");
    let said = place.ok(&["resize", "whole.img@p1"]);
    assert!(said.contains("16384 blocks"), "{said}");
    assert_eq!(fs::metadata(place.path("whole.img")).unwrap().len(), length);
    is_kept(&place, "whole.img@p1");
}

#[test]
fn a_qcow2_image_changes_its_size() {
    let place = Place::new();
    filled(&place, 64);
    place.ok(&["convert", "disk.img", "disk.qcow2"]);
    let size = || {
        let output = Command::new("qemu-img")
            .args(["info", "--output=json"])
            .arg(place.path("disk.qcow2"))
            .output()
            .unwrap();
        let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        info["virtual-size"].as_u64().unwrap()
    };
    for wanted in [200_u64 << 20, 40 << 20] {
        place.ok(&["resize", "disk.qcow2", &wanted.to_string()]);
        assert_eq!(size(), wanted);
        is_kept(&place, "disk.qcow2");
        let check = place.finefs(&["check", "disk.qcow2"]).status().unwrap();
        assert!(check.success());
    }
}

#[test]
fn what_is_in_use_is_left_alone() {
    let place = Place::new();
    filled(&place, 64);
    let file = fs::File::open(place.path("disk.img")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
    let reason = place.fails(1, &["resize", "disk.img", "100m"]);
    assert!(reason.contains("in use"), "{reason}");
}
