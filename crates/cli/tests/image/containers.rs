//! Images that are built of container images have what the layers make together.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Place, assert_clean};

/// The digits of a digest.
pub fn digest(bytes: &[u8]) -> String {
    let mut command = Command::new("sha256sum");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    String::from_utf8(output[..64].to_vec()).unwrap()
}

/// Writes a blob of a layout; gives its digest.
pub fn blob(layout: &Path, bytes: &[u8]) -> String {
    let hex = digest(bytes);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(&hex), bytes).unwrap();
    format!("sha256:{hex}")
}

/// What an image of these layers says of itself.
pub fn config_of(architecture: &str, layers: &[Vec<u8>]) -> String {
    let ids = layers
        .iter()
        .map(|layer| format!("sha256:{}", digest(layer)));
    let rootfs = serde_json::json!({"type": "layers", "diff_ids": ids.collect::<Vec<_>>()});
    let config = serde_json::json!({
        "os": "linux", "architecture": architecture, "rootfs": rootfs,
    });
    config.to_string()
}

/// A layer of files with their contents, packed.
pub fn layer(files: &[(&str, &str)], packer: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_uid(1);
        header.set_gid(2);
        header.set_mtime(3);
        let content = content.as_bytes();
        builder.append_data(&mut header, path, content).unwrap();
    }
    let tar = builder.into_inner().unwrap();
    if packer.is_empty() {
        return tar;
    }
    let mut command = Command::new(packer);
    let mut child = command
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&tar).unwrap();
    child.wait_with_output().unwrap().stdout
}

/// A layout with one image of these layers, which are not packed.
pub fn layout_of(path: &Path, layers: &[Vec<u8>]) {
    let described = layers.iter().map(|layer| {
        let kind = "application/vnd.oci.image.layer.v1.tar";
        serde_json::json!({"mediaType": kind, "digest": blob(path, layer), "size": layer.len()})
    });
    let described: Vec<_> = described.collect();
    let config = config_of("amd64", layers);
    let config = serde_json::json!({
        "digest": blob(path, config.as_bytes()), "size": config.len(),
    });
    let text = serde_json::json!({"schemaVersion": 2, "config": config, "layers": described});
    let text = text.to_string();
    let manifest = blob(path, text.as_bytes());
    let manifests = [serde_json::json!({"digest": manifest, "size": text.len()})];
    let index = serde_json::json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(path.join("index.json"), index.to_string()).unwrap();
    let version = r#"{"imageLayoutVersion": "1.0.0"}"#;
    fs::write(path.join("oci-layout"), version).unwrap();
}

/// A layout with an image for amd64 and arm64 each, whose layers are these.
fn layout(place: &Place) {
    let path = place.path("layout");
    let base = [
        ("etc/a", "a"),
        ("etc/b", "b"),
        ("var/log/one", "1"),
        ("var/log/two", "2"),
        ("usr/keep", "kept"),
    ];
    // A whiteout is for what is below, wherever it stands in its layer.
    let upper = [
        ("etc/.wh.a", ""),
        ("etc/b", "new"),
        ("var/log/three", "3"),
        ("var/log/.wh..wh..opq", ""),
        ("usr/.wh.missing", ""),
    ];
    type Files<'a> = &'a [(&'a str, &'a str)];
    let manifest = |architecture: &str, all: &[(Files<'_>, &str)]| {
        let plain: Vec<_> = all.iter().map(|(files, _)| layer(files, "")).collect();
        let config = config_of(architecture, &plain);
        let layers: Vec<_> = all
            .iter()
            .map(|(files, packer)| {
                let layer = layer(files, packer);
                let digest = blob(&path, &layer);
                let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
                serde_json::json!({"mediaType": kind, "digest": digest, "size": layer.len()})
            })
            .collect();
        let config = serde_json::json!({
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": blob(&path, config.as_bytes()), "size": config.len(),
        });
        let text = serde_json::json!({"schemaVersion": 2, "config": config, "layers": layers});
        let text = text.to_string();
        (blob(&path, text.as_bytes()), text.len())
    };
    let both = manifest("amd64", &[(&base, "gzip"), (&upper, "zstd")]);
    let other = manifest("arm64", &[(&[("arm", "64")], "")]);
    let platform = |architecture: &str, (digest, size): &(String, usize)| {
        serde_json::json!({
            "digest": digest, "size": size,
            "platform": {"os": "linux", "architecture": architecture},
        })
    };
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [platform("arm64", &other), platform("amd64", &both)],
    });
    let text = index.to_string();
    let index = blob(&path, text.as_bytes());
    let top = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [{
            "digest": index, "size": text.len(),
            "annotations": {"org.opencontainers.image.ref.name": "latest"},
        }],
    });
    fs::write(path.join("index.json"), top.to_string()).unwrap();
    let version = r#"{"imageLayoutVersion": "1.0.0"}"#;
    fs::write(path.join("oci-layout"), version).unwrap();
}

/// Paths of all files.
fn all_files(place: &Place, image: &str) -> String {
    let found = place.ok(&["find", &format!("{image}:/"), "-type", "f"]);
    let mut lines: Vec<_> = found.lines().collect();
    lines.sort_unstable();
    lines.join("\n").replace(&format!("{image}:"), "")
}

#[test]
fn layers_are_laid_over_each_other() {
    let place = Place::new();
    layout(&place);
    let wanted = "/etc/b\n/usr/keep\n/var/log/three";
    let amd64 = ["--platform", "linux/amd64"];
    for (source, image) in [("oci:layout", "one"), ("oci:layout:latest", "two")] {
        place.ok(&[&["build", "-q", image, source], &amd64[..]].concat());
        assert_clean(&place.path(image));
        assert_eq!(all_files(&place, image), wanted);
        let file = format!("{image}:/etc/b");
        assert_eq!(place.ok(&["cat", &file]), "new");
        assert_eq!(place.ok(&["stat", "-c", "%u %g %Y", &file]), "1 2 3\n");
    }
    place.ok(&[
        "build",
        "-q",
        "--platform",
        "linux/arm64",
        "three",
        "oci:layout",
    ]);
    assert_eq!(all_files(&place, "three"), "/arm");
    // The same in an archive, with something over it.
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(place.path("layout")).arg("-cf");
    let made = tar.arg(place.path("archive")).arg(".").status().unwrap();
    assert!(made.success());
    fs::create_dir_all(place.path("more/etc")).unwrap();
    fs::write(place.path("more/etc/b"), "newer").unwrap();
    let build = ["build", "-q", "four", "oci-archive:archive", "more"];
    place.ok(&[&build, &amd64[..]].concat());
    assert_eq!(place.ok(&["cat", "four:/etc/b"]), "newer");
}

#[test]
fn what_docker_saves_is_read() {
    let place = Place::new();
    fs::create_dir_all(place.path("saved/one")).unwrap();
    fs::create_dir_all(place.path("saved/two")).unwrap();
    let write =
        |name: &str, bytes: &[u8]| fs::write(place.path("saved").join(name), bytes).unwrap();
    write("one/layer.tar", &layer(&[("a", "a"), ("b", "b")], ""));
    write("two/layer.tar", &layer(&[(".wh.a", ""), ("c", "c")], ""));
    let images = serde_json::json!([
        {"RepoTags": ["x:1"], "Layers": ["one/layer.tar", "two/layer.tar"]},
        {"RepoTags": ["x:2"], "Config": "config.json", "Layers": ["one/layer.tar"]},
        {"RepoTags": ["x:3"], "Layers": ["../one/layer.tar"]},
    ]);
    let one = fs::read(place.path("saved/one/layer.tar")).unwrap();
    write("config.json", config_of("arm64", &[one]).as_bytes());
    saved(&place, "archive", &images);
    place.ok(&["build", "-q", "image", "docker-archive:archive:x:1"]);
    assert_eq!(all_files(&place, "image"), "/b\n/c");
    let arm64 = [
        "build",
        "-q",
        "two",
        "docker-archive:archive:x:2",
        "--platform",
    ];
    place.ok(&[&arm64[..], &["linux/arm64/v8"]].concat());
    let said = place.fails(1, &[&arm64[..], &["linux/amd64", "-F"]].concat());
    assert!(
        said.contains("is for linux/arm64, not linux/amd64"),
        "{said}"
    );
    let fails = |source: &str| place.fails(1, &["build", "-q", "none", source]);
    assert!(fails("docker-archive:archive").contains("several images"));
    assert!(fails("docker-archive:archive:y:1").contains("no such image"));
    assert!(fails("docker-archive:archive:x:3").contains("outside"));
    assert!(fails("docker-archive:saved/one/layer.tar").contains("manifest.json"));
}

/// An archive with this manifest of `docker save` at `name`. Images that name no config get one.
pub fn saved(place: &Place, name: &str, images: &serde_json::Value) {
    let mut images = images.clone();
    let bytes = |layer: &serde_json::Value| {
        let path = place.path("saved").join(layer.as_str().unwrap());
        fs::read(path).unwrap_or_default()
    };
    for image in images.as_array_mut().unwrap() {
        if image.get("Config").is_none() {
            let layers = image["Layers"].as_array().unwrap();
            let config = config_of("amd64", &layers.iter().map(bytes).collect::<Vec<_>>());
            let file = format!("{}.json", digest(config.as_bytes()));
            fs::write(place.path("saved").join(&file), config).unwrap();
            image["Config"] = file.into();
        }
    }
    let text = images.to_string();
    fs::write(place.path("saved/manifest.json"), text).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(place.path("saved")).arg("-cf");
    let made = tar.arg(place.path(name)).arg(".").status().unwrap();
    assert!(made.success());
}

/// docker writes the familiar names, skopeo the full ones.
#[test]
fn images_of_docker_archives_have_short_and_full_names() {
    let place = Place::new();
    fs::create_dir_all(place.path("saved")).unwrap();
    for name in ["a", "b", "c"] {
        let layer = layer(&[(name, name)], "");
        fs::write(place.path("saved").join(name), layer).unwrap();
    }
    let images = serde_json::json!([
        {"RepoTags": ["docker.io/foo/bar:1"], "Layers": ["a"]},
        {"RepoTags": ["box:latest"], "Layers": ["b"]},
        {"RepoTags": ["localhost/box:latest", "host:5000/x:2"], "Layers": ["c"]},
    ]);
    saved(&place, "archive", &images);
    for (name, file) in [
        ("foo/bar:1", "/a"),
        ("docker.io/foo/bar:1", "/a"),
        ("box", "/b"),
        ("docker.io/library/box:latest", "/b"),
        ("docker.io/box", "/b"),
        ("localhost/box", "/c"),
        ("host:5000/x:2", "/c"),
    ] {
        let source = format!("docker-archive:archive:{name}");
        place.ok(&["build", "-q", "-F", "image", &source]);
        assert_eq!(all_files(&place, "image"), file, "{name}");
    }
    for name in ["bar:1", "foo/bar", "foo/box", "x:2"] {
        let source = format!("docker-archive:archive:{name}");
        let said = place.fails(1, &["build", "-q", "-F", "image", &source]);
        assert!(said.contains("no such image"), "{name}: {said}");
    }
}

#[test]
fn archives_of_containers_bring_in_no_files_of_the_host() {
    let place = Place::new();
    fs::create_dir_all(place.path("saved/d")).unwrap();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, place.path("saved").join(name)).unwrap();
    };
    let secret = place.path("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("layer"), layer(&[("key", "k")], "")).unwrap();
    fs::write(place.path("saved/d/inner"), layer(&[("a", "a")], "")).unwrap();
    link("d/inner", "within");
    saved(&place, "good", &serde_json::json!([{"Layers": ["within"]}]));
    place.ok(&["build", "-q", "image", "docker-archive:good"]);
    assert_eq!(all_files(&place, "image"), "/a");

    let secret = secret.to_str().unwrap();
    for (to, name, layer) in [
        (format!("{secret}/layer"), "file", "file"),
        (secret.to_owned(), "way", "way/layer"),
        ("within-not".to_owned(), "nowhere", "nowhere"),
    ] {
        link(&to, name);
        saved(&place, "bad", &serde_json::json!([{"Layers": [layer]}]));
        let said = place.fails(1, &["build", "-q", "none", "docker-archive:bad"]);
        let wanted = format!("finefs: bad/{name}: leads outside of the archive\n");
        assert_eq!(said, wanted);
        fs::remove_file(place.path("saved").join(name)).unwrap();
    }
    // Messages name the archive, not where it was unpacked: here a file behind a link.
    let mut builder = tar::Builder::new(fs::File::create(place.path("bad")).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "way", secret).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    builder
        .append_data(&mut header, "way/layer", &b""[..])
        .unwrap();
    builder.finish().unwrap();
    let said = place.fails(1, &["build", "-q", "none", "docker-archive:bad"]);
    assert!(
        said.starts_with("finefs: bad: cannot be unpacked: "),
        "{said}"
    );
    assert!(!said.contains(".tmp"), "{said}");
    fs::write(place.path("saved/d/inner"), "no archive at all").unwrap();
    saved(&place, "bad", &serde_json::json!([{"Layers": ["d/inner"]}]));
    let said = place.fails(1, &["build", "-q", "none", "docker-archive:bad"]);
    assert!(said.starts_with("finefs: bad/d/inner: "), "{said}");
    let said = place.fails(1, &["build", "-q", "none", "oci-archive:bad"]);
    assert_eq!(
        said,
        "finefs: bad: is no OCI layout: it has no index.json\n"
    );
}

#[test]
fn damaged_container_images_are_refused() {
    let place = Place::new();
    layout(&place);
    let fails = |words: &[&str]| {
        let said = place.fails(1, &[&["build", "-q", "image"], words].concat());
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!place.path("image").exists());
        said
    };
    let amd64 = ["--platform", "linux/amd64", "oci:layout"];
    assert!(fails(&["--platform", "linux/riscv64", "oci:layout"]).contains("linux/riscv64"));
    assert!(fails(&["oci:layout:other"]).contains("no image 'other'"));
    let said = fails(&["oci:missing"]);
    assert_eq!(said, "finefs: missing: No such file or directory\n");
    // The largest blob is the layer below; then all that is JSON is changed, one by one.
    let blobs = place.path("layout/blobs/sha256");
    let mut paths: Vec<_> = fs::read_dir(&blobs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut damaged = 0;
    for path in paths {
        let before = fs::read(&path).unwrap();
        fs::write(&path, [&before[..], b" "].concat()).unwrap();
        // Those of the other platform are not looked at.
        let output = place.finefs(&[&["build", "-q", "-F", "image"], &amd64[..]].concat());
        let output = { output }.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            assert!(
                said.contains("is damaged") || said.contains("cannot be unpacked"),
                "{said}"
            );
            damaged += 1;
        }
        fs::write(&path, before).unwrap();
    }
    assert_eq!(damaged, 5);
}

/// A digest does not tell how much there is to read.
#[test]
fn sizes_of_descriptors_are_compared() {
    let place = Place::new();
    let path = place.path("layout");
    let layer = layer(&[("a", "a")], "");
    let config = config_of("amd64", std::slice::from_ref(&layer));
    let config = config.as_bytes();
    let build = [
        "build",
        "-q",
        "image",
        "--platform",
        "linux/amd64",
        "oci:layout",
    ];
    // What has a wrong size: nothing first.
    for wrong in ["", "manifest", "config", "layer"] {
        let descriptor = |name: &str, bytes: &[u8]| {
            let size = bytes.len() + usize::from(name == wrong);
            serde_json::json!({"digest": blob(&path, bytes), "size": size})
        };
        let text = serde_json::json!({
            "schemaVersion": 2,
            "config": descriptor("config", config),
            "layers": [descriptor("layer", &layer)],
        });
        let manifest = text.to_string();
        let manifests = [descriptor("manifest", manifest.as_bytes())];
        let index = serde_json::json!({"schemaVersion": 2, "manifests": manifests});
        fs::write(path.join("index.json"), index.to_string()).unwrap();
        let bytes = match wrong {
            "" => {
                place.ok(&build);
                fs::remove_file(place.path("image")).unwrap();
                continue;
            }
            "manifest" => manifest.as_bytes(),
            "config" => config,
            _ => &layer[..],
        };
        let digest = blob(&path, bytes).replace("sha256:", "");
        let (there, said) = (bytes.len(), bytes.len() + 1);
        let line = format!(
            "finefs: layout/blobs/sha256/{digest}: is damaged: it has {there} bytes, its \
             descriptor says {said}\n"
        );
        assert_eq!(place.fails(1, &build), line, "{wrong}");
        assert!(!place.path("image").exists());
    }
}

/// The library reads an extended header into memory whole.
#[test]
fn archives_of_containers_have_no_endless_headers() {
    let place = Place::new();
    for kind in [tar::EntryType::XHeader, tar::EntryType::GNULongName] {
        let mut builder = tar::Builder::new(fs::File::create(place.path("bad")).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(3 << 30);
        builder.append_data(&mut header, "x", &b""[..]).unwrap();
        builder.finish().unwrap();
        for source in ["oci-archive:bad", "docker-archive:bad"] {
            let said = place.fails(1, &["build", "-q", "image", source]);
            let wanted = "finefs: bad: cannot be unpacked: an extended header of 3221225472 bytes";
            assert!(said.starts_with(wanted), "{said}");
        }
    }
}
