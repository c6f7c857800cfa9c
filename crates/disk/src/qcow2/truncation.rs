//! Tells a qcow2 image whose file was cut short: what lies past the end of a file would be read as
//! zeros, and be zeros for good once something was written there.
//!
//! The highest cluster that has a reference count lies in the file, in an image that is whole: that
//! is one table and one block to read. Only where it does not, all tables of the disk are read: a
//! count alone may be of a cluster that was allocated and never written.
//!
//! A last cluster that is not whole is as good as a whole one; QEMU's block layer takes it so.
//!
//! # References
//! QEMU, `docs/interop/qcow2.rst`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const HEADER_BYTES: usize = 104;
/// Where a cluster or a table lies, in an entry of a table.
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros, whatever lies there.
const ZERO: u64 = 1;
/// Incompatible features: counts may be too low; entries of a table have two words.
const DIRTY: u64 = 1;
const EXTENDED: u64 = 1 << 4;
/// Tables are read in pieces of so many bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// What lies past the end of an image's file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Missing {
    /// Clusters of the disk, and of its tables.
    pub clusters: u64,
    /// Where the first of them belongs on the disk.
    pub first_bytes: u64,
    /// How long the file has to be.
    pub needed_bytes: u64,
}

/// An image's file and what its header says.
struct Layout<'a> {
    file: &'a File,
    file_bytes: u64,
    cluster_bits: u32,
    l1_entries: u64,
    l1_bytes: u64,
    counts_at: u64,
    counts_clusters: u64,
    /// Bits of a reference count, as a power of two.
    count_order: u32,
    features: u64,
}

fn u32_be(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_be(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_be(bytes, at)) << 32 | u64::from(u32_be(bytes, at + 4))
}

/// What the file of an image with a sound header does not have of it. Of one without, nothing is
/// known here.
pub(super) fn missing(file: &File, file_bytes: u64) -> io::Result<Option<Missing>> {
    let mut header = [0; HEADER_BYTES];
    let length = file_bytes.min(HEADER_BYTES as u64) as usize;
    file.read_exact_at(&mut header[..length], 0)?;
    let Some(layout) = Layout::of(file, file_bytes, &header) else {
        return Ok(None);
    };
    let counted = layout.counted()?;
    match counted {
        Some(end) if end < file_bytes + layout.cluster_bytes() && layout.features & DIRTY == 0 => {
            Ok(None)
        }
        _ => layout.scan(counted.unwrap_or(0)),
    }
}

impl Layout<'_> {
    fn of<'a>(file: &'a File, file_bytes: u64, header: &[u8; HEADER_BYTES]) -> Option<Layout<'a>> {
        let is_third = u32_be(header, 4) == 3;
        let layout = Layout {
            file,
            file_bytes,
            cluster_bits: u32_be(header, 20),
            l1_entries: u64::from(u32_be(header, 36)),
            l1_bytes: u64_be(header, 40),
            counts_at: u64_be(header, 48),
            counts_clusters: u64::from(u32_be(header, 56)),
            count_order: if is_third { u32_be(header, 96) } else { 4 },
            features: if is_third { u64_be(header, 72) } else { 0 },
        };
        let is_sound = (9..=21).contains(&layout.cluster_bits)
            && layout.count_order <= 6
            && layout.l1_bytes < i64::MAX as u64
            && layout.counts_at < i64::MAX as u64;
        is_sound.then_some(layout)
    }

    fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// What of a table lies in the file, piece by piece, with the index of its first word.
    fn words(
        &self,
        at: u64,
        length_bytes: u64,
        mut each: impl FnMut(u64, &[u64]) -> io::Result<()>,
    ) -> io::Result<()> {
        let length = length_bytes.min(self.file_bytes.saturating_sub(at)) / 8 * 8;
        let mut done = 0;
        while done < length {
            let mut bytes = vec![0; PIECE_BYTES.min(length - done) as usize];
            self.file.read_exact_at(&mut bytes, at + done)?;
            let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64_be(word, 0)).collect();
            each(done / 8, &words)?;
            done += bytes.len() as u64;
        }
        Ok(())
    }

    /// Where the highest cluster with a reference count ends, or a little behind it; `None` where
    /// the counts themselves are not in the file.
    fn counted(&self) -> io::Result<Option<u64>> {
        let length = self.counts_clusters << self.cluster_bits;
        if self.counts_at.saturating_add(length) > self.file_bytes {
            return Ok(None);
        }
        let mut last = None;
        self.words(self.counts_at, length, |index, words| {
            if let Some(place) = words.iter().rposition(|word| word & OFFSET_MASK != 0) {
                last = Some((index + place as u64, words[place] & OFFSET_MASK));
            }
            Ok(())
        })?;
        let Some((index, block)) = last else {
            return Ok(None);
        };
        if block.saturating_add(self.cluster_bytes()) > self.file_bytes {
            return Ok(None);
        }
        let mut used_bits = 0;
        self.words(block, self.cluster_bytes(), |index, words| {
            if let Some(place) = words.iter().rposition(|word| *word != 0) {
                let bytes = 8 - u64::from(words[place].trailing_zeros() / 8);
                used_bits = ((index + place as u64) * 8 + bytes) * 8;
            }
            Ok(())
        })?;
        let per_block = (self.cluster_bytes() * 8) >> self.count_order;
        let cluster = index.saturating_mul(per_block) + used_bits.div_ceil(1 << self.count_order);
        Ok(Some(cluster.saturating_mul(self.cluster_bytes())))
    }

    /// Looks at all tables of the disk.
    fn scan(&self, counted: u64) -> io::Result<Option<Missing>> {
        let entry_bytes = if self.features & EXTENDED == 0 { 8 } else { 16 };
        let table_reach = (self.cluster_bytes() / entry_bytes) << self.cluster_bits;
        let mut found = Missing::default();
        // Of a sound image each table is named once.
        let mut tables_left = self.file_bytes >> self.cluster_bits;
        let l1_length = self.l1_entries * 8;
        if self.l1_bytes.saturating_add(l1_length) > self.file_bytes {
            self.note(&mut found, self.l1_bytes + l1_length - 1, 0);
        }
        self.words(self.l1_bytes, l1_length, |index, tables| {
            for (table, place) in tables.iter().zip(index..) {
                let table = table & OFFSET_MASK;
                let disk_bytes = place.saturating_mul(table_reach);
                if table == 0 {
                    continue;
                }
                if table >= self.file_bytes {
                    self.note(&mut found, table, disk_bytes);
                    continue;
                }
                if tables_left > 0 {
                    tables_left -= 1;
                    self.scan_table(table, disk_bytes, &mut found)?;
                }
            }
            Ok(())
        })?;
        found.needed_bytes = found.needed_bytes.max(counted);
        Ok(Some(found).filter(|found| found.clusters > 0))
    }

    fn scan_table(&self, table: u64, disk_bytes: u64, found: &mut Missing) -> io::Result<()> {
        let step = if self.features & EXTENDED == 0 { 1 } else { 2 };
        self.words(table, self.cluster_bytes(), |index, words| {
            for (entry, place) in words.chunks_exact(step).zip(index / step as u64..) {
                let at = self.data_of(entry);
                if at >= self.file_bytes {
                    let disk = disk_bytes.saturating_add(place << self.cluster_bits);
                    self.note(found, at, disk);
                }
            }
            Ok(())
        })
    }

    /// Where the data of an entry begins; 0 where it has none.
    fn data_of(&self, entry: &[u64]) -> u64 {
        let word = entry[0];
        if word & COMPRESSED != 0 {
            return word & ((1 << (70 - self.cluster_bits)) - 1);
        }
        let has_data = match entry.get(1) {
            // Of each part of the cluster: is it allocated?
            Some(parts) => parts & u64::from(u32::MAX) != 0,
            None => word & ZERO == 0,
        };
        if has_data { word & OFFSET_MASK } else { 0 }
    }

    fn note(&self, found: &mut Missing, at: u64, disk_bytes: u64) {
        if found.clusters == 0 {
            found.first_bytes = disk_bytes;
        }
        found.clusters += 1;
        let end = (at | (self.cluster_bytes() - 1)).saturating_add(1);
        found.needed_bytes = found.needed_bytes.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use finefs_block::{Access, BlockDevice, FileDevice};

    const CLUSTER: u64 = 64 << 10;

    /// An image of 64 MiB with data in it here and there.
    fn image(directory: &std::path::Path) -> (File, u64) {
        let path = directory.join("image");
        File::create(&path).unwrap();
        let device = FileDevice::open(&path, Access::ReadWrite).unwrap();
        let disk = super::super::create(Arc::new(device), 64 << 20).unwrap();
        for at in [0, 20 << 20, 40 << 20] {
            disk.write_at(at, &[7; 3 * CLUSTER as usize]).unwrap();
        }
        disk.flush().unwrap();
        drop(disk);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let length = file.metadata().unwrap().len();
        (file, length)
    }

    #[test]
    fn what_a_shorter_file_misses_is_found() {
        let place = tempfile::tempdir().unwrap();
        let (file, whole) = image(place.path());
        assert_eq!(missing(&file, whole).unwrap(), None);
        // A last cluster that is not whole.
        assert_eq!(missing(&file, whole - CLUSTER + 512).unwrap(), None);
        let cut = missing(&file, whole - 2 * CLUSTER).unwrap().unwrap();
        assert_eq!(cut.clusters, 2);
        assert_eq!(cut.first_bytes, (40 << 20) + CLUSTER);
        assert_eq!(
            cut.needed_bytes.next_multiple_of(CLUSTER),
            whole.next_multiple_of(CLUSTER)
        );
        // Without its tables, too.
        for length in [CLUSTER, 2 * CLUSTER, 3 * CLUSTER, 4 * CLUSTER] {
            assert!(missing(&file, length).unwrap().is_some(), "{length}");
        }
        file.set_len(whole + 10 * CLUSTER).unwrap();
        assert_eq!(missing(&file, whole + 10 * CLUSTER).unwrap(), None);
    }

    #[test]
    fn a_counted_cluster_that_nothing_names_is_not_missed() {
        let place = tempfile::tempdir().unwrap();
        let (file, whole) = image(place.path());
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).unwrap();
        let mut table = [0; 8];
        file.read_exact_at(&mut table, u64_be(&header, 48)).unwrap();
        // The count of a cluster far behind the others.
        file.write_all_at(&[0, 1], u64_be(&table, 0) + 2 * 5000)
            .unwrap();
        assert_eq!(missing(&file, whole).unwrap(), None);
    }

    #[test]
    fn whatever_the_tables_say_it_ends() {
        let place = tempfile::tempdir().unwrap();
        let (file, whole) = image(place.path());
        let mut random = 1_u64;
        for _ in 0..2000 {
            random = random
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            let at = (random >> 33) % HEADER_BYTES as u64;
            file.write_all_at(&[(random >> 25) as u8], at).unwrap();
            let _ = missing(&file, whole);
        }
    }
}
