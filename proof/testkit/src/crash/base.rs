//! Images to start from. Every sector that mkfs leaves alone holds a poison pattern, so that what
//! nobody wrote, and shows all the same, is known for what it is.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use finefs_block::BlockDevice;
use finefs_namespace::{CommitThreads, Namespace, Options, Store};
use finefs_nbd::{NbdDevice, NbdUri};
use finefs_sim::nbd::{FLUSH, FUA, MULTI, NbdServer, Setup, ZEROES};
use finefs_sim::{Image, ImageDevice, RecordingDevice};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::format::Format;
use super::step::Step;
use super::tree::Tree;
use crate::model::Model;

/// How an image is made.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name in reports.
    pub name: &'static str,
    /// Its format.
    pub format: Format,
    /// Arguments of mke2fs or mkreiserfs.
    pub mkfs: &'static [&'static str],
    /// Size of a block in units of 512 bytes.
    pub block_sectors: u64,
    /// In MiB, with the journal's disk.
    pub size_mib: usize,
    /// Recovery needs no fsck.
    pub is_journaled: bool,
    /// Metadata and the journal have checksums.
    pub has_checksums: bool,
}

/// The images that crashes are tried on.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "ext4-1k",
        format: Format::Ext,
        mkfs: &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        block_sectors: 2,
        size_mib: 8,
        is_journaled: true,
        has_checksums: true,
    },
    Profile {
        name: "ext4-4k",
        format: Format::Ext,
        mkfs: &["-t", "ext4", "-b", "4096", "-J", "size=4"],
        block_sectors: 8,
        size_mib: 12,
        is_journaled: true,
        has_checksums: true,
    },
    Profile {
        name: "ext4-upstream",
        format: Format::Ext,
        mkfs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "metadata_csum_seed,orphan_file,quota",
        ],
        block_sectors: 2,
        size_mib: 8,
        is_journaled: true,
        has_checksums: true,
    },
    Profile {
        name: "ext4-clusters",
        format: Format::Ext,
        mkfs: &[
            "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "4096",
        ],
        block_sectors: 2,
        size_mib: 12,
        is_journaled: true,
        has_checksums: true,
    },
    Profile {
        name: "ext3",
        format: Format::Ext,
        mkfs: &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        block_sectors: 2,
        size_mib: 8,
        is_journaled: true,
        has_checksums: false,
    },
    Profile {
        name: "ext4-nojournal",
        format: Format::Ext,
        mkfs: &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        block_sectors: 2,
        size_mib: 6,
        is_journaled: false,
        has_checksums: true,
    },
    Profile {
        name: "ext2",
        format: Format::Ext,
        mkfs: &["-t", "ext2", "-b", "1024"],
        block_sectors: 2,
        size_mib: 6,
        is_journaled: false,
        has_checksums: false,
    },
    // The journal is the smallest that mkreiserfs makes.
    Profile {
        name: "reiserfs-1k",
        format: Format::Reiser,
        mkfs: &["-b", "1024", "-s", "513", "--hash", "tea"],
        block_sectors: 2,
        size_mib: 8,
        is_journaled: true,
        has_checksums: false,
    },
    Profile {
        name: "reiserfs-4k",
        format: Format::Reiser,
        mkfs: &["-b", "4096", "-s", "513"],
        block_sectors: 8,
        size_mib: 12,
        is_journaled: true,
        has_checksums: false,
    },
    Profile {
        name: "reiserfs-3.5",
        format: Format::Reiser,
        mkfs: &["-b", "1024", "-s", "513", "--format", "3.5"],
        block_sectors: 2,
        size_mib: 8,
        is_journaled: true,
        has_checksums: false,
    },
    Profile {
        name: "reiserfs-external",
        format: Format::ReiserWithJournalAt(8 << 20),
        mkfs: &["-b", "1024", "-s", "513"],
        block_sectors: 2,
        size_mib: 9,
        is_journaled: true,
        has_checksums: false,
    },
];

/// The profile of a name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// An image with a tree on it, cleanly closed.
pub struct Base {
    /// How it was made.
    pub profile: Profile,
    /// Its bytes.
    pub image: Image,
    /// What is on it.
    pub model: Model,
    /// Facts about the store.
    pub limits: finefs_namespace::Geometry,
    /// What all recovered images must have in common with it, where the format has such sums.
    pub totals: Option<Totals>,
    /// How workloads reach the device.
    pub reach: Reach,
}

/// How a workload reaches a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// By calls.
    Direct,
    /// Through an NBD server, which serves what comes together in any order.
    Nbd,
}

/// Sums that no operation changes: what is free and what is used, of inodes and of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Inodes.
    pub inodes: u64,
    /// Space, in units of 512 bytes.
    pub sectors: u64,
}

/// Who commits what a workload does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committing {
    /// How many threads work on a commit. Which block of metadata is taken where depends on them.
    pub threads: CommitThreads,
    /// How often a thread commits, beside what is asked for; only that without one.
    pub interval: Option<Duration>,
}

impl Committing {
    /// What a seed says.
    pub fn of_seed(seed: u64) -> Committing {
        let mut random = StdRng::seed_from_u64(seed);
        let threads = NonZeroUsize::new(random.random_range(1..=3));
        let interval = Duration::from_millis(random.random_range(1..=8));
        Committing {
            threads: threads.map_or(CommitThreads::ONE, CommitThreads::Always),
            interval: random.random_bool(0.5).then_some(interval),
        }
    }
}

/// An open namespace and the store below it.
pub struct Opened {
    /// The namespace; commits only when it is asked to, unless [`Committing`] says more.
    pub ns: Arc<Namespace>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// What the device is reached through.
    _server: Option<NbdServer>,
}

/// Opens a device for writing, which recovers what is on it.
pub fn open(format: Format, device: Arc<dyn BlockDevice>) -> Result<Opened, String> {
    opened(format.open(device)?, Committing::default())
}

/// The same, of a device that keeps a record.
pub fn open_recorded(format: Format, device: &Arc<RecordingDevice>) -> Result<Opened, String> {
    opened(format.open_recorded(device)?, Committing::default())
}

fn opened(store: Arc<dyn Store>, committing: Committing) -> Result<Opened, String> {
    let mut options = Options {
        commit_threads: committing.threads,
        ..Options::default()
    };
    let ns = match committing.interval {
        Some(interval) => {
            options.commit_interval = interval;
            Namespace::new(store.clone(), options)
        }
        None => Namespace::without_thread(store.clone(), options).map(Arc::new),
    };
    let ns = ns.map_err(|error| error.to_string())?;
    Ok(Opened {
        ns,
        store,
        _server: None,
    })
}

impl Base {
    /// Makes an image and does `steps` on it.
    pub fn new(profile: &Profile, steps: &[Step]) -> Result<Base, String> {
        let image = make_image(profile)?;
        let device = Arc::new(ImageDevice::new(image));
        let opened = open(profile.format, device.clone())?;
        let limits = opened.ns.geometry().clone();
        let root = opened.ns.attributes(opened.ns.root());
        let root = root.map_err(|error| error.to_string())?;
        let mut model = Model::new(&limits, root.permissions, root.uid, root.gid);
        if profile.format.has_lost_and_found() {
            model.add_directory(b"lost+found", 0o700);
        }
        model.set_root_links(root.link_count);
        let has_xattrs = limits.new_form.has_xattrs;
        for step in steps.iter().filter(|step| has_xattrs || !step.sets_xattr()) {
            step.on_model(&mut model)
                .map_err(|errors| format!("{step:?}: {errors:?}"))?;
            step.on_namespace(&opened.ns)
                .map_err(|error| format!("{step:?}: {error}"))?;
        }
        let text = |error: finefs_namespace::Error| error.to_string();
        opened.ns.shut_down().map_err(text)?;
        drop(opened);
        // What is on it, as it is after a commit.
        let copy = open(profile.format, Arc::new(ImageDevice::new(device.image())))?;
        let tree = Tree::read(&copy)?;
        Ok(Base {
            profile: *profile,
            // The copies come from this one: fingerprints begin with it.
            image: device.image(),
            totals: (profile.format.has_constant_totals()).then_some(tree.totals),
            model,
            limits,
            reach: Reach::Direct,
        })
    }

    /// Opens a device as workloads reach it.
    pub fn open(
        &self,
        device: &Arc<RecordingDevice>,
        committing: Committing,
    ) -> Result<Opened, String> {
        if self.reach == Reach::Direct {
            return opened(self.profile.format.open_recorded(device)?, committing);
        }
        let text = |error: std::io::Error| error.to_string();
        let setup = Setup {
            flags: 1 | FLUSH | FUA | ZEROES | MULTI,
            reorders: true,
            ..Setup::default()
        };
        let server = NbdServer::start(device.clone(), setup).map_err(text)?;
        let url = NbdUri::parse(&server.url(60))?;
        let client = NbdDevice::open(&url, false).map_err(text)?;
        let opened = opened(self.profile.format.open(Arc::new(client))?, committing)?;
        Ok(Opened {
            _server: Some(server),
            ..opened
        })
    }
}

/// Sectors that say that nobody wrote them.
fn poison(bytes: usize) -> Vec<u8> {
    let mut poison = vec![0xa7; bytes];
    for (number, sector) in poison.chunks_exact_mut(512).enumerate() {
        sector[..8].copy_from_slice(b"POISON! ");
        sector[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    }
    poison
}

/// True when these bytes are of a sector that nobody wrote.
pub fn is_poison(bytes: &[u8]) -> bool {
    bytes.starts_with(b"POISON!") || bytes.len() > 64 && bytes[32..64] == [0xa7; 32]
}

fn make_image(profile: &Profile) -> Result<Image, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = directory.path().join("image");
    let journal = directory.path().join("journal");
    let text = |error: std::io::Error| error.to_string();
    let mut bytes = poison(profile.size_mib << 20);
    let at = profile.format.journal_at();
    let tail = bytes.split_off(at.map_or(bytes.len(), |at| at as usize));
    std::fs::write(&path, bytes).map_err(text)?;
    std::fs::write(&journal, tail).map_err(text)?;
    profile.format.make(&path, &journal, profile.mkfs)?;
    let mut bytes = std::fs::read(&path).map_err(text)?;
    bytes.extend(std::fs::read(&journal).map_err(text)?);
    Ok(Image::from_bytes(&bytes))
}
