//! Container images as sources: their layers, one over the other.
//!
//! A layer is an archive that may also take away what is below it: `.wh.NAME` takes NAME away, and
//! `.wh..wh..opq` all that lower layers have in its directory. Entries count in their order, but
//! what the layer itself has is not taken away by it. Other names that begin with `.wh..wh.` are
//! AUFS's own, and left out.
//!
//! # References
//! OCI Image Format Specification 1.1, "image-layout.md", "image-index.md", "manifest.md" and
//! "layer.md"; containers-transports(5).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::archive::Entries;
use super::manifest::{Kind, Manifest, Missing, Node, ROOT};
use super::tar_headers::Headers;
use super::unpacked;
use super::{Progress, Rules};
use crate::error::{Error, Result};
use crate::programs::is_in_path;

/// Where a container image is, by the names of containers-transports(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// `oci:PATH[:TAG]`: a directory.
    Layout {
        /// The directory.
        path: PathBuf,
        /// Its image; the only one without it.
        tag: Option<String>,
    },
    /// `oci-archive:PATH[:TAG]`: the same in a tar archive.
    OciArchive {
        /// The archive.
        path: PathBuf,
        /// Its image; the only one without it.
        tag: Option<String>,
    },
    /// `docker-archive:PATH[:NAME:TAG]`: what `docker save` writes.
    DockerArchive {
        /// The archive.
        path: PathBuf,
        /// Its image, by name and tag; the only one without it.
        tag: Option<String>,
    },
    /// `docker://REFERENCE`: one that skopeo fetches.
    Registry(String),
}

impl Container {
    /// Why a name of an image of another transport is refused; `None` for what is none, and where
    /// the host has a file of that name.
    pub(super) fn refusal(text: &str) -> Option<String> {
        const OTHERS: [&str; 6] = [
            "containers-storage",
            "dir",
            "docker-daemon",
            "ostree",
            "sif",
            "tarball",
        ];
        let (transport, rest) = text.split_once(':')?;
        if rest.is_empty() && ["oci", "oci-archive", "docker-archive"].contains(&transport) {
            return Some("names nothing; the path comes behind the colon".to_owned());
        }
        let is_there = Path::new(text).exists() || Path::new(transport).exists();
        (OTHERS.contains(&transport) && !is_there).then(|| {
            format!(
                "images of the transport {transport}: are not read; skopeo copy {text} oci:DIR \
                 makes oci:DIR of it"
            )
        })
    }

    /// What these names mean; `None` for others.
    pub(super) fn parse(text: &str) -> Option<Container> {
        if text.starts_with("docker://") {
            return Some(Container::Registry(text.to_owned()));
        }
        let (transport, rest) = text.split_once(':')?;
        let (path, tag) = rest.split_once(':').unwrap_or((rest, ""));
        let path = PathBuf::from(path);
        let tag = Some(tag.to_owned()).filter(|tag| !tag.is_empty());
        match transport {
            "oci" => Some(Container::Layout { path, tag }),
            "oci-archive" => Some(Container::OciArchive { path, tag }),
            "docker-archive" => Some(Container::DockerArchive { path, tag }),
            _ => None,
        }
    }
}

/// What a container image is for, in the words of Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    os: String,
    architecture: String,
    /// Any without it.
    variant: Option<String>,
}

impl Default for Platform {
    /// This machine's.
    fn default() -> Platform {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Platform {
            os: "linux".into(),
            architecture: architecture.into(),
            variant: None,
        }
    }
}

impl FromStr for Platform {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Platform, &'static str> {
        let mut parts = text.split('/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), variant, None) => Ok(Platform {
                os,
                architecture,
                variant,
            }),
            _ => Err("give OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, as linux/arm64"),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// Longest description that is read, in bytes.
const JSON_BYTES_MAX: u64 = 16 << 20;

/// Images in images, one in the other.
const DEPTH_MAX: usize = 4;

/// What is said of an image without one.
const NO_CONFIG: &str = "the image has no config";

/// What is said of JSON that was changed.
const OTHER_DIGEST: &str = "is damaged: it has another digest";

/// What is said of names and links that lead out of an archive.
const OUTSIDE: &str = "leads outside of the archive";

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// How the names begin that AUFS has for itself, but for `OPAQUE`.
const OF_AUFS: &[u8] = b".wh..wh.";

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default, rename = "mediaType")]
    media_type: String,
    digest: String,
    /// Of the blob, in bytes. The specification wants it.
    size: Option<u64>,
    platform: Option<Described>,
    #[serde(default)]
    annotations: std::collections::HashMap<String, String>,
}

#[derive(Deserialize)]
struct Described {
    os: String,
    architecture: String,
    variant: Option<String>,
}

/// An index has `manifests`, a manifest `config` and `layers`.
#[derive(Deserialize)]
struct Document {
    config: Option<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// What an image says of itself.
#[derive(Deserialize)]
struct Config {
    os: Option<String>,
    architecture: Option<String>,
    #[serde(default)]
    rootfs: RootFs,
}

#[derive(Default, Deserialize)]
struct RootFs {
    /// Digests of the layers, unpacked.
    #[serde(default)]
    diff_ids: Vec<String>,
}

/// `manifest.json` of `docker save`.
#[derive(Deserialize)]
struct Saved {
    #[serde(default, rename = "RepoTags")]
    tags: Option<Vec<String>>,
    #[serde(rename = "Config")]
    config: Option<String>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// Lists a container image; what is packed is unpacked in `directory`.
pub(super) fn add(
    manifest: &mut Manifest,
    container: &Container,
    rules: &Rules,
    directory: &Path,
    progress: &Progress,
) -> Result<()> {
    let mut lister = Lister {
        manifest,
        platform: rules.platform.clone().unwrap_or_default(),
        is_platform_asked: rules.platform.is_some(),
        keeps_whiteouts: rules.keeps_whiteouts,
        directory,
        progress,
    };
    match container {
        Container::Layout { path, tag } => lister.layout(path, tag.as_deref()),
        Container::OciArchive { path, tag } => lister.unpacked(path, &mut |lister, layout| {
            lister.layout(layout, tag.as_deref())
        }),
        Container::DockerArchive { path, tag } => lister.unpacked(path, &mut |lister, unpacked| {
            lister.saved(unpacked, path, tag.as_deref())
        }),
        Container::Registry(reference) => {
            let fetched = lister.fetch(reference)?;
            lister.layout(fetched.path(), None)
        }
    }
}

/// The transport of a container image in an archive whose files are listed as they are; `None` for
/// none.
pub(super) fn transport_of(manifest: &Manifest) -> Option<&'static str> {
    let names = manifest.names(ROOT);
    let has = |name: &str| names.contains_key(OsStr::new(name));
    let is_digest = |name: &OsStr| name.to_str().is_some_and(|it| named_digest(it).is_some());
    if has("oci-layout") && has("index.json") {
        Some("oci-archive")
    } else if has("manifest.json") && names.keys().any(|name| is_digest(name)) {
        Some("docker-archive")
    } else {
        None
    }
}

struct Lister<'a> {
    manifest: &'a mut Manifest,
    platform: Platform,
    /// Somebody has named it: then an image for another one is an error, too.
    is_platform_asked: bool,
    keeps_whiteouts: bool,
    directory: &'a Path,
    progress: &'a Progress,
}

impl Lister<'_> {
    fn layout(&mut self, layout: &Path, tag: Option<&str>) -> Result<()> {
        let index = layout.join("index.json");
        if !index.exists() {
            return Err(no_layout(layout));
        }
        let mut document = parse::<Document>(&index, &read_json(&index)?)?;
        if let Some(tag) = tag {
            const NAME: &str = "org.opencontainers.image.ref.name";
            let is_it = |it: &Descriptor| it.annotations.get(NAME).is_some_and(|name| name == tag);
            document.manifests.retain(is_it);
            if document.manifests.is_empty() {
                return Err(refused(&index, &format!("there is no image '{tag}'")));
            }
        }
        for _ in 0..DEPTH_MAX {
            if !document.layers.is_empty() || document.manifests.is_empty() {
                break;
            }
            let blob = blob(layout, self.choose(&index, &document.manifests)?)?;
            document = parse(&blob.path, &blob.json()?)?;
        }
        if document.layers.is_empty() {
            return Err(refused(&index, "the image has no layers"));
        }
        let config = document.config.as_ref();
        let config = config.ok_or_else(|| refused(&index, NO_CONFIG))?;
        let config = blob(layout, config)?;
        let shown = (&*index, &*config.path);
        let diff_ids = self.diff_ids(shown, &config.json()?, document.layers.len())?;
        for (layer, diff_id) in document.layers.iter().zip(&diff_ids) {
            if !layer.media_type.is_empty() && !layer.media_type.contains("tar") {
                let reason = format!("layers of type {} are not known", layer.media_type);
                return Err(refused(&index, &reason));
            }
            let blob = blob(layout, layer)?;
            self.layer(&blob.path, Some(&blob.hex), diff_id)?;
        }
        Ok(())
    }

    /// The manifest for the platform; one that names none is for all.
    fn choose<'d>(&self, index: &Path, all: &'d [Descriptor]) -> Result<&'d Descriptor> {
        let fits = |it: &&Descriptor| match &it.platform {
            None => true,
            Some(described) => self.platform.is(described),
        };
        let mut fitting = all.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Ok(one),
            (Some(one), Some(_)) if one.platform.is_some() => Ok(one),
            (Some(_), Some(_)) => Err(refused(index, "several images; add :TAG")),
            (None, _) => {
                let reason = format!("no image for {}; see --platform", self.platform);
                Err(refused(index, &reason))
            }
        }
    }

    /// The digests of the unpacked layers that a config says, as many as there are. Refuses an
    /// image that is for another platform. Told of are the image and the config.
    fn diff_ids(
        &self,
        (image, shown): (&Path, &Path),
        config: &[u8],
        layers: usize,
    ) -> Result<Vec<String>> {
        let config: Config = parse(shown, config)?;
        if let (true, Some(os), Some(architecture)) =
            (self.is_platform_asked, &config.os, &config.architecture)
            && (*os != self.platform.os || *architecture != self.platform.architecture)
        {
            let wanted = &self.platform;
            let reason = format!("the image is for {os}/{architecture}, not {wanted}");
            return Err(refused(image, &reason));
        }
        let all = config.rootfs.diff_ids;
        if all.len() != layers {
            let reason = format!("has {} diff_ids for {layers} layers", all.len());
            return Err(refused(shown, &reason));
        }
        let bare = |id: &String| {
            let unknown = || refused(shown, &format!("digest {id} is not known"));
            digits(id).map(str::to_owned).ok_or_else(unknown)
        };
        all.iter().map(bare).collect()
    }

    /// What `docker save` writes: layers by their paths, a config that is named by its digest.
    fn saved(&mut self, unpacked: &Path, shown: &Path, tag: Option<&str>) -> Result<()> {
        let index = unpacked.join("manifest.json");
        let text = read_json(&index).map_err(|_| refused(shown, "has no manifest.json"))?;
        let mut images = parse::<Vec<Saved>>(shown, &text)?;
        if let Some(tag) = tag {
            let tag = full_name(tag);
            images.retain(|it| it.tags.iter().flatten().any(|name| full_name(name) == tag));
        }
        let [image] = images.as_slice() else {
            let reason = match images.len() {
                0 => "there is no such image",
                _ => "several images; add :NAME:TAG",
            };
            return Err(refused(shown, reason));
        };
        let inside = |name: &str| {
            let mut parts = Path::new(name).components();
            match parts.all(|part| matches!(part, std::path::Component::Normal(_))) {
                true => Ok(unpacked.join(name)),
                false => Err(refused(shown, OUTSIDE)),
            }
        };
        let name = image.config.as_ref();
        let name = name.ok_or_else(|| refused(shown, NO_CONFIG))?;
        let path = inside(name)?;
        let config = read_json(&path)?;
        if let Some(digest) = named_digest(name)
            && digest != hex(&Sha256::digest(&config))
        {
            return Err(refused(&path, OTHER_DIGEST));
        }
        let diff_ids = self.diff_ids((shown, &path), &config, image.layers.len())?;
        for (layer, diff_id) in image.layers.iter().zip(&diff_ids) {
            self.layer(&inside(layer)?, None, diff_id)?;
        }
        Ok(())
    }

    /// Lays one layer over the others. It has this digest, and unpacked that of the config.
    fn layer(&mut self, path: &Path, digest: Option<&str>, diff_id: &str) -> Result<()> {
        let shown = path.display().to_string();
        let failed = |error| Error::host(shown.clone(), error);
        let mut hashed = Hashed {
            file: File::open(path).map_err(failed)?,
            hasher: digest.map(|_| Sha256::new()),
        };
        let mut whole = Sha256::new();
        let file = unpacked::unpack_noting(
            &mut hashed,
            &shown,
            self.directory,
            self.progress,
            &mut |part| whole.update(part),
        )?;
        // Padding behind the archive counts too.
        std::io::copy(&mut hashed, &mut std::io::sink()).map_err(failed)?;
        let found = hashed.hasher.map(|hasher| hex(&hasher.finalize()));
        if let (Some(digest), Some(found)) = (digest, found)
            && digest != found
        {
            let reason = format!("is damaged: its digest is sha256:{found}");
            return Err(Error::new(shown, reason));
        }
        let found = hex(&whole.finalize());
        if found != diff_id {
            let reason = format!(
                "is another layer than the config says: unpacked, its digest is sha256:{found}"
            );
            return Err(Error::new(shown, reason));
        }
        let entries = Entries::new(&file, &shown, self.progress);
        lay(self.manifest, &entries, self.keeps_whiteouts)
    }

    /// Unpacks an archive, and lists what is in it; messages name the archive.
    fn unpacked(
        &mut self,
        archive: &Path,
        list: &mut dyn FnMut(&mut Self, &Path) -> Result<()>,
    ) -> Result<()> {
        // As libraries name it.
        let failed = |error| Error::host(self.directory.display().to_string(), error);
        let directory = self.directory.canonicalize().map_err(failed)?;
        let unpacked = tempfile::tempdir_in(&directory).map_err(failed)?;
        let (from, to) = (unpacked.path().display().to_string(), archive.display());
        let named = |text: &str| text.replace(&from, &to.to_string());
        let before = self.manifest.left_out.len();
        let listed = self
            .unpack(archive, unpacked.path())
            .and_then(|()| stays_inside(unpacked.path()))
            .and_then(|()| list(self, unpacked.path()));
        for line in &mut self.manifest.left_out[before..] {
            *line = named(line);
        }
        listed.map_err(|error| {
            let (place, reason) = (named(error.place()), named(error.reason()));
            error.with_place(place).with_reason(reason)
        })
    }

    /// Unpacks an archive of a few large files.
    fn unpack(&self, path: &Path, into: &Path) -> Result<()> {
        let failed = |error| Error::host(path.display().to_string(), error);
        let shown = path.display().to_string();
        let mut packed = File::open(path).map_err(failed)?;
        let file = unpacked::unpack(&mut packed, &shown, self.directory, self.progress)?;
        let reader = Watched {
            from: Headers::of(&file),
            progress: self.progress,
        };
        let unpacked = unpack_all(reader, into);
        self.progress.check()?;
        unpacked.map_err(|error| Error::new(shown, format!("cannot be unpacked: {error}")))
    }

    /// Lets skopeo fetch an image.
    fn fetch(&self, reference: &str) -> Result<tempfile::TempDir> {
        let into = tempfile::tempdir_in(self.directory)
            .map_err(|error| Error::host(self.directory.display().to_string(), error))?;
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--quiet", "--override-os", &self.platform.os]);
        skopeo.args(["--override-arch", &self.platform.architecture]);
        if let Some(variant) = &self.platform.variant {
            skopeo.args(["--override-variant", variant]);
        }
        let mut to = std::ffi::OsString::from("oci:");
        to.push(into.path());
        let fetched = skopeo.arg(reference).arg(to).output();
        let fetched = fetched.map_err(|error| {
            let line = match is_in_path("skopeo".as_ref()) {
                true => format!("cannot be fetched: skopeo: {error}"),
                false => "cannot be fetched: there is no skopeo; install skopeo".to_owned(),
            };
            Error::new(reference, line)
        })?;
        if !fetched.status.success() {
            let said = String::from_utf8_lossy(&fetched.stderr);
            let line = said.lines().last().unwrap_or("it says nothing").to_owned();
            return Err(Error::new(reference, format!("skopeo: {line}")));
        }
        Ok(into)
    }
}

/// An archive that is read until somebody wants it to stop.
struct Watched<'a> {
    from: Headers<'a>,
    progress: &'a Progress,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.progress.check() {
            Ok(()) => self.from.read(buffer),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        }
    }
}

/// Unpacks files with the directories that they are in. Names that lead out of `into` are skipped
/// by the library.
fn unpack_all(from: impl Read, into: &Path) -> std::io::Result<()> {
    for entry in tar::Archive::new(from).entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_dir() {
            entry.unpack_in(into)?;
        }
    }
    Ok(())
}

/// Lays a layer over what is listed; its whiteouts take that away, and are kept as those of
/// overlayfs if `keeps_whiteouts` says so: a character device 0:0, and an attribute of directories.
pub(super) fn lay(
    manifest: &mut Manifest,
    entries: &Entries<'_>,
    keeps_whiteouts: bool,
) -> Result<()> {
    let is_whiteout = |name: &OsStr| name.as_encoded_bytes().starts_with(WHITEOUT);
    let is_of_aufs = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(OF_AUFS) && name != OPAQUE
    };
    let (mut taken, mut of_aufs) = (Vec::new(), BTreeSet::new());
    manifest.joins_whiteouts = keeps_whiteouts;
    manifest.begin_layer();
    entries.add_to(manifest, &mut |manifest, path| {
        if path.file_name().is_some_and(is_of_aufs) {
            return Ok(true);
        }
        let mut above = path.ancestors();
        if let Some(own) = above.find(|it| it.file_name().is_some_and(is_of_aufs)) {
            // Hard links to what is in such a directory count.
            of_aufs.insert(own.to_owned());
            return Ok(false);
        }
        if !path.file_name().is_some_and(is_whiteout) {
            return Ok(false);
        }
        let (parent, name) = split(path);
        if let Some(directory) = manifest.directory(parent, Missing::Keep)? {
            manifest.take_away(directory, name);
        }
        if keeps_whiteouts {
            taken.push(path.to_owned());
        }
        Ok(true)
    })?;
    manifest.end_layer();
    for path in &of_aufs {
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some(directory) = manifest.directory(parent, Missing::Keep)? {
            manifest.take_away(directory, path.file_name());
        }
    }
    taken.iter().try_for_each(|path| keep(manifest, path))
}

/// The directory that a whiteout is in, and the name that it takes away; `None` for all names.
fn split(path: &Path) -> (&Path, Option<&OsStr>) {
    let parent = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default();
    match name.as_bytes() {
        OPAQUE => (parent, None),
        name => (parent, name.get(WHITEOUT.len()..).map(OsStr::from_bytes)),
    }
}

/// Puts overlayfs's whiteout where a layer has one, beside what the layer itself has.
fn keep(manifest: &mut Manifest, path: &Path) -> Result<()> {
    let (parent, name) = split(path);
    let directory = manifest.directory(parent, Missing::Make)?.unwrap_or(ROOT);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        manifest.nodes[directory].attributes.be_opaque();
        return Ok(());
    };
    match manifest.names(directory).get(name).copied() {
        // The layer has a directory of that name, which joins nothing below.
        Some(there) if matches!(manifest.nodes[there].kind, Kind::Directory(_)) => {
            manifest.nodes[there].attributes.be_opaque();
            Ok(())
        }
        Some(_) => Ok(()),
        None => {
            let modified = manifest.nodes[directory].attributes.modified;
            let shown = || path.display().to_string();
            let whiteout = Node::whiteout(modified);
            manifest.put(directory, name, whiteout, &shown).map(|_| ())
        }
    }
}

impl Platform {
    fn is(&self, described: &Described) -> bool {
        let is_variant = match (&self.variant, &described.variant) {
            (Some(wanted), Some(variant)) => wanted == variant,
            (Some(_), None) => false,
            (None, _) => true,
        };
        self.os == described.os && self.architecture == described.architecture && is_variant
    }
}

/// A name of an image as registries have it: `x` is `docker.io/library/x:latest`.
fn full_name(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let is_host = first.contains(['.', ':']) || first == "localhost";
    let mut full = match (is_host, first) {
        (true, _) => name.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{name}"),
    };
    if let Some(official) = full
        .strip_prefix("docker.io/")
        .filter(|it| !it.contains('/'))
    {
        full = format!("docker.io/library/{official}");
    }
    let last = full.rsplit('/').next().unwrap_or_default();
    match last.contains([':', '@']) {
        true => full,
        false => full + ":latest",
    }
}

/// Refuses symbolic links that lead out of what was unpacked: files of the host would come into the
/// image. Older versions of `docker save` write links within.
fn stays_inside(unpacked: &Path) -> Result<()> {
    let failed = |path: &Path, error| Error::host(path.display().to_string(), error);
    let top = unpacked
        .canonicalize()
        .map_err(|error| failed(unpacked, error))?;
    let mut todo = vec![unpacked.to_owned()];
    while let Some(directory) = todo.pop() {
        let names = directory
            .read_dir()
            .map_err(|error| failed(&directory, error))?;
        for entry in names {
            let entry = entry.map_err(|error| failed(&directory, error))?;
            let kind = entry
                .file_type()
                .map_err(|error| failed(&directory, error))?;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_symlink() {
                let leads_inside = entry
                    .path()
                    .canonicalize()
                    .is_ok_and(|it| it.starts_with(&top));
                if !leads_inside {
                    return Err(refused(&entry.path(), OUTSIDE));
                }
            }
        }
    }
    Ok(())
}

/// A file that is named by its digest.
struct Blob {
    path: PathBuf,
    hex: String,
}

impl Blob {
    fn json(&self) -> Result<Vec<u8>> {
        let text = read_json(&self.path)?;
        match hex(&Sha256::digest(&text)) == self.hex {
            true => Ok(text),
            false => Err(refused(&self.path, OTHER_DIGEST)),
        }
    }
}

/// The digits of a digest; `None` for one of another kind.
fn digits(digest: &str) -> Option<&str> {
    digest.strip_prefix("sha256:").filter(|hex| is_digest(hex))
}

fn is_digest(hex: &str) -> bool {
    let is_digit = |digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    hex.len() == 64 && hex.bytes().all(is_digit)
}

/// The digest by which an archive of docker names a config: `blobs/sha256/DIGEST`, `DIGEST.json`,
/// or `sha256:DIGEST`.
fn named_digest(name: &str) -> Option<&str> {
    let last = name.rsplit(['/', ':']).next()?;
    let digest = last.strip_suffix(".json").unwrap_or(last);
    Some(digest).filter(|digest| is_digest(digest))
}

/// Why a path is no layout.
fn no_layout(path: &Path) -> Error {
    match path.metadata() {
        Err(error) => Error::host(path.display().to_string(), error),
        Ok(found) if found.is_dir() => refused(path, "is no OCI layout: it has no index.json"),
        Ok(_) => refused(
            path,
            "is no OCI layout, which is a directory; see oci-archive:",
        ),
    }
}

/// Finds a blob, which must have the size that is said of it.
fn blob(layout: &Path, descriptor: &Descriptor) -> Result<Blob> {
    let digest = &descriptor.digest;
    let hex = digits(digest);
    let hex = hex.ok_or_else(|| refused(layout, &format!("digest {digest} is not known")))?;
    let path = layout.join("blobs/sha256").join(hex);
    let found = path.metadata();
    let found = found.map_err(|error| Error::host(path.display().to_string(), error))?;
    if let Some(size) = descriptor.size.filter(|size| *size != found.len()) {
        let reason = format!(
            "is damaged: it has {} bytes, its descriptor says {size}",
            found.len()
        );
        return Err(refused(&path, &reason));
    }
    Ok(Blob {
        path,
        hex: hex.to_owned(),
    })
}

fn read_json(path: &Path) -> Result<Vec<u8>> {
    let failed = |error| Error::host(path.display().to_string(), error);
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(JSON_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(failed)?;
    Ok(text)
}

fn parse<T: for<'d> Deserialize<'d>>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| refused(path, &error.to_string()))
}

fn refused(path: &Path, reason: &str) -> Error {
    Error::new(path.display().to_string(), reason)
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a file and its digest, if that is wanted.
struct Hashed {
    file: File,
    hasher: Option<Sha256>,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..count]);
        }
        Ok(count)
    }
}
