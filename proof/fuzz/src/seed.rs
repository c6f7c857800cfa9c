//! Small good images, of which inputs say what to change.
//!
//! They are made by `xtask fuzz --make-seeds` and kept, so that an input means the same everywhere.
//! Numbers in inputs choose from this list: it is only added to at its end.

use std::io::Read;
use std::sync::OnceLock;

use crate::layout::Layout;

/// A good image.
pub struct Seed {
    /// Its name.
    pub name: &'static str,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// What is where.
    pub layout: Layout,
}

const PACKED: &[(&str, &[u8])] = &[
    ("ext2", include_bytes!("../seeds/ext2.img.gz")),
    ("ext4-plain", include_bytes!("../seeds/ext4-plain.img.gz")),
    ("ext4", include_bytes!("../seeds/ext4.img.gz")),
    (
        "ext4-upstream",
        include_bytes!("../seeds/ext4-upstream.img.gz"),
    ),
    ("ext3-log", include_bytes!("../seeds/ext3-log.img.gz")),
    ("ext4-log", include_bytes!("../seeds/ext4-log.img.gz")),
    (
        "ext4-log-64bit",
        include_bytes!("../seeds/ext4-log-64bit.img.gz"),
    ),
];

/// The seeds, unpacked at first use.
pub fn all() -> &'static [Seed] {
    static SEEDS: OnceLock<Vec<Seed>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let unpacked = PACKED.iter().map(|(name, packed)| {
            let mut bytes = Vec::new();
            let mut unpacker = flate2::read::GzDecoder::new(*packed);
            unpacker
                .read_to_end(&mut bytes)
                .expect("the seeds are whole");
            let layout = Layout::of(&bytes).expect("the seeds are good");
            Seed {
                name,
                bytes,
                layout,
            }
        });
        unpacked.collect()
    })
}

/// The seeds whose journals hold transactions.
pub fn with_log() -> impl Iterator<Item = &'static Seed> {
    all().iter().filter(|seed| seed.name.contains("log"))
}
