//! Layers of container images count as the specification of OCI says, and are those that the image
//! names.

use std::fs;

use tar::EntryType;

use crate::build::{Odd, odd_archive};
use crate::containers::{blob, config_of, digest, layer, layout_of, saved};
use crate::support::{Place, assert_clean, bytes_of};

const DIRECTORY: EntryType = EntryType::Directory;
const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Link;
const SYMLINK: EntryType = EntryType::Symlink;

/// Builds `image` of layers with these entries; gives kinds, link counts and paths of all files.
fn laid(place: &Place, layers: &[&[Odd<'_>]]) -> Vec<String> {
    let bytes = layers.iter().map(|entries| {
        odd_archive(&place.path("layer"), entries);
        bytes_of(&place.path("layer"))
    });
    layout_of(&place.path("layout"), &bytes.collect::<Vec<_>>());
    place.ok(&["build", "-q", "-F", "image", "oci:layout"]);
    assert_clean(&place.path("image"));
    let found = place.ok(&["find", "image:/", "-mindepth", "1", "-printf", "%y %n %P\n"]);
    let mut lines: Vec<String> = found.lines().map(str::to_owned).collect();
    lines.retain(|line| !line.ends_with("lost+found"));
    lines.sort();
    lines
}

/// As umoci and containerd do it.
#[test]
fn what_a_layer_has_replaces_directories_below() {
    let place = Place::new();
    let lower: &[Odd<'_>] = &[
        ("becomes-file/full", FILE, ""),
        ("becomes-link/full/deep", FILE, ""),
        ("becomes-hard-link/full", FILE, ""),
        ("usr", DIRECTORY, ""),
        ("way", SYMLINK, "usr"),
        ("becomes-directory", SYMLINK, "usr"),
    ];
    let upper: &[Odd<'_>] = &[
        ("becomes-file", FILE, ""),
        ("becomes-link", SYMLINK, "usr"),
        ("becomes-hard-link", LINK, "becomes-file"),
        ("becomes-directory", DIRECTORY, ""),
        ("becomes-directory/inside", FILE, ""),
        ("way/inside", FILE, ""),
    ];
    let wanted = [
        "d 2 becomes-directory",
        "d 2 usr",
        "f 1 becomes-directory/inside",
        "f 1 usr/inside",
        "f 2 becomes-file",
        "f 2 becomes-hard-link",
        "l 1 becomes-link",
        "l 1 way",
    ];
    assert_eq!(laid(&place, &[lower, upper]), wanted);
    // What is over a container image is no layer.
    fs::write(place.path("usr"), "").unwrap();
    odd_archive(&place.path("more"), &[("usr", FILE, "")]);
    let said = place.fails(1, &["build", "-q", "-F", "image", "oci:layout", "more"]);
    let reason = "more: usr: would replace a directory that has files in it";
    assert_eq!(said, format!("finefs: {reason}\n"));
}

#[test]
fn entries_of_a_layer_count_in_their_order() {
    let place = Place::new();
    let lower: &[Odd<'_>] = &[
        ("old", FILE, ""),
        ("joined/lower", FILE, ""),
        ("joined/deep/lower", FILE, ""),
        ("opaque/lower", FILE, ""),
        ("gone/lower", FILE, ""),
    ];
    // A name of the file below, before that is taken away; and what the layer has stays.
    let upper: &[Odd<'_>] = &[
        ("new", LINK, "old"),
        (".wh.old", FILE, ""),
        ("joined/deep/upper", FILE, ""),
        (".wh.joined", FILE, ""),
        ("opaque/upper", FILE, ""),
        ("opaque/.wh..wh..opq", FILE, ""),
        ("own", FILE, ""),
        (".wh.own", FILE, ""),
        (".wh.gone", FILE, ""),
    ];
    let wanted = [
        "d 2 joined/deep",
        "d 2 opaque",
        "d 3 joined",
        "f 1 joined/deep/upper",
        "f 1 new",
        "f 1 opaque/upper",
        "f 1 own",
    ];
    assert_eq!(laid(&place, &[lower, upper]), wanted);
    // What is taken away can be linked to no more.
    let late: &[Odd<'_>] = &[(".wh.old", FILE, ""), ("new", LINK, "old")];
    odd_archive(&place.path("late"), late);
    odd_archive(&place.path("lower"), lower);
    let layers = ["lower", "late"].map(|name| bytes_of(&place.path(name)));
    layout_of(&place.path("layout"), &layers);
    let said = place.fails(1, &["build", "-q", "-F", "image", "oci:layout"]);
    assert!(
        said.contains("new: a link to old, which is not there"),
        "{said}"
    );
}

/// As docker and containerd do it: files in `.wh..wh.plnk` are there for hard links alone.
#[test]
fn what_aufs_keeps_for_itself_is_left_out() {
    let place = Place::new();
    let entries: &[Odd<'_>] = &[
        (".wh..wh.aufs", FILE, ""),
        (".wh..wh.orph", DIRECTORY, ""),
        (".wh..wh.plnk", DIRECTORY, ""),
        (".wh..wh.plnk/7.8", FILE, ""),
        ("a", LINK, ".wh..wh.plnk/7.8"),
        ("b", LINK, ".wh..wh.plnk/7.8"),
        ("c", FILE, ""),
    ];
    assert_eq!(laid(&place, &[entries]), ["f 1 c", "f 2 a", "f 2 b"]);
    let build = ["build", "-q", "-F", "--whiteouts", "overlayfs", "image"];
    for source in ["oci:layout", "layer"] {
        place.ok(&[&build[..], &[source]].concat());
        let listed = place.ok(&["find", "image:/", "-mindepth", "1", "-printf", "%P "]);
        assert_eq!(listed, "a b c lost+found ", "{source}");
    }
}

/// A layout whose config is `config`, of one layer with this packing.
fn layout(place: &Place, config: Option<&str>, packed: &[u8]) {
    let path = place.path("layout");
    let described =
        |bytes: &[u8]| serde_json::json!({"digest": blob(&path, bytes), "size": bytes.len()});
    let mut manifest = serde_json::json!({"schemaVersion": 2, "layers": [described(packed)]});
    if let Some(config) = config {
        manifest["config"] = described(config.as_bytes());
    }
    // With it nobody would have to look into the config.
    let mut manifest = described(manifest.to_string().as_bytes());
    manifest["platform"] = serde_json::json!({"os": "linux", "architecture": "amd64"});
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(path.join("index.json"), index.to_string()).unwrap();
}

#[test]
fn configs_of_layouts_are_verified_and_layers_by_them() {
    let place = Place::new();
    let plain = layer(&[("a", "a")], "");
    let other = layer(&[("a", "b")], "");
    let good = config_of("amd64", std::slice::from_ref(&plain));
    let build = [
        "build",
        "-q",
        "-F",
        "image",
        "oci:layout",
        "--platform",
        "linux/amd64",
    ];
    for packer in ["", "gzip", "zstd"] {
        layout(&place, Some(&good), &layer(&[("a", "a")], packer));
        place.ok(&build);
        fs::remove_file(place.path("image")).unwrap();
    }
    let refused = |part: &str| {
        let said = place.fails(1, &build);
        assert!(
            said.contains(part) && said.lines().count() == 1,
            "{part}: {said}"
        );
        assert!(!place.path("image").exists());
    };
    let hex = digest(good.as_bytes());
    let path = place.path("layout/blobs/sha256").join(&hex);
    fs::write(&path, good.replace("amd64", "amd46")).unwrap();
    refused(&format!("{hex}: is damaged: it has another digest"));
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    refused(&format!("{hex}: is damaged: it has"));
    fs::remove_file(&path).unwrap();
    refused(&format!("{hex}: No such file or directory"));
    layout(&place, None, &plain);
    refused("the image has no config");
    layout(&place, Some("{}"), &plain);
    refused(&format!("{}: has 0 diff_ids for 1 layers", digest(b"{}")));
    layout(&place, Some("[]"), &plain);
    refused(&digest(b"[]"));
    let wrong = config_of("amd64", &[other]);
    for packer in ["", "gzip"] {
        let packed = layer(&[("a", "a")], packer);
        layout(&place, Some(&wrong), &packed);
        let unpacked = digest(&plain);
        refused(&format!(
            "{}: is another layer than the config says: unpacked, its digest is sha256:{unpacked}",
            digest(&packed)
        ));
    }
    layout(&place, Some(&good.replace("sha256", "sha512")), &plain);
    refused("is not known");
}

#[test]
fn configs_of_docker_archives_are_verified_and_layers_by_them() {
    let place = Place::new();
    fs::create_dir_all(place.path("saved/blobs/sha256")).unwrap();
    let plain = layer(&[("a", "a")], "");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(place.path("saved").join(name), bytes).unwrap();
    };
    let config = config_of("amd64", std::slice::from_ref(&plain));
    let hex = digest(config.as_bytes());
    let build = ["build", "-q", "-F", "image", "docker-archive:archive"];
    // As docker, newer docker and skopeo, and others name it; and what is no digest.
    for name in [
        format!("{hex}.json"),
        format!("blobs/sha256/{hex}"),
        format!("sha256:{hex}"),
        "config.json".to_owned(),
    ] {
        write("layer", &layer(&[("a", "a")], "gzip"));
        write(&name, config.as_bytes());
        let images = serde_json::json!([{"Config": name, "Layers": ["layer"]}]);
        saved(&place, "archive", &images);
        place.ok(&build);
        fs::remove_file(place.path("image")).unwrap();
        let refused = |part: &str| {
            let said = place.fails(1, &build);
            assert!(
                said.contains(part) && said.lines().count() == 1,
                "{part}: {said}"
            );
            assert!(!place.path("image").exists());
        };
        write("layer", &layer(&[("a", "b")], ""));
        saved(&place, "archive", &images);
        refused("archive/layer: is another layer than the config says");
        write("layer", &plain);
        write(&name, format!("{config} ").as_bytes());
        saved(&place, "archive", &images);
        match name.contains(&hex) {
            true => refused(&format!(
                "archive/{name}: is damaged: it has another digest"
            )),
            false => drop(place.ok(&build)),
        }
        let _ = fs::remove_file(place.path("image"));
        fs::remove_file(place.path("saved").join(&name)).unwrap();
        saved(&place, "archive", &images);
        refused(&format!("archive/{name}: No such file or directory"));
    }
    let images = serde_json::json!([{"Config": null, "Layers": ["layer"]}]);
    saved(&place, "archive", &images);
    let said = place.fails(1, &build);
    assert_eq!(said, "finefs: archive: the image has no config\n");
}
