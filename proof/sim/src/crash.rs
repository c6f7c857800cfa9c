//! The states that a crash can leave on a device, built from a record.
//!
//! # Model of the disk
//! Between two flushes lies an *epoch*. What was written before the flush that began it is durable.
//! Of what was written since, a crash leaves any part, in any order: any subset of the writes, and
//! of a write any subset of its sectors of 512 bytes. A sector is written whole or not at all; one
//! of which a write covers a part has the rest as it was at the time of the write, for it is
//! written from a cache that had it so. Of two writes to one sector the later one wins, or is not
//! there.
//!
//! Several disks may have one record; then a flush ends the epoch, and what was written to others
//! than the flushed one is among the writes of the next.
//!
//! A disk may write more sectors at once than one ([`Limits::unit_sectors`]). Some formats trust a
//! disk to write a certain place as one, ext4 its superblock of two sectors:
//! [`Limits::whole_sectors`] grants that, or not.
//!
//! # Which are tried
//! All subsets while an epoch has few writes. Otherwise, up to a bound: nothing, everything, every
//! prefix, all but one, one alone, and subsets by chance. In both cases also writes torn at
//! sectors: after the first, in the middle, before the last, and by chance, with nothing after them
//! or with all else there. Where these are too many, chance picks; the seed repeats it.
//!
//! # Invariants
//! 1. One choice of an epoch is judged by all that had happened by the end of the epoch: a crash at
//!    its very end can have left any of them.

use std::collections::HashSet;
use std::ops::Range;

use super::image::{Image, SECTOR_BYTES};
use super::record::{Recorded, Request};

/// How many states of an epoch are tried.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Epochs of up to so many writes are tried with all subsets.
    pub exhaustive_writes: usize,
    /// Most states of an epoch with more writes, or of torn writes in one with fewer.
    pub states: usize,
    /// A disk writes so many sectors at once, at multiples of them: 1 for any disk, 8 for most of
    /// today's.
    pub unit_sectors: u64,
    /// Sectors that a disk is trusted to write as one, if one write holds them all; empty for none.
    pub whole_sectors: Range<u64>,
}

/// How much of one write a crash left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it.
    Whole,
    /// Only these of its sectors, counted from the write's first.
    Sectors(Vec<usize>),
}

/// What a crash left of an epoch: the writes of which anything is left, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Choice(pub Vec<(usize, Part)>);

/// A write, as the sectors hold it after it.
#[derive(Clone, Debug)]
struct Pending {
    first_sector: u64,
    data: Vec<u8>,
}

impl Pending {
    fn sectors(&self) -> usize {
        self.data.len() / SECTOR_BYTES
    }
}

/// What lies between two flushes.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// What was durable when it began.
    pub base: Image,
    /// The requests of the record that lie in it, without the flushes at its ends.
    pub requests: Range<usize>,
    writes: Vec<Pending>,
}

impl Recorded {
    /// The epochs, in order. The last one lasts until the end of the record.
    pub fn epochs(&self) -> Vec<Epoch> {
        let mut epochs = Vec::new();
        let mut image = self.base.clone();
        let mut epoch = Epoch {
            base: image.clone(),
            requests: 0..0,
            writes: Vec::new(),
        };
        for (index, request) in self.requests.iter().enumerate() {
            let range = match request {
                Request::Write { offset_bytes, data } => (*offset_bytes, data.len() as u64),
                Request::WriteZeros {
                    offset_bytes,
                    length_bytes,
                } => (*offset_bytes, *length_bytes),
                Request::Marker(_) => continue,
                Request::Flush => {
                    let next = epoch.flushed(index, 0..u64::MAX);
                    epochs.push(std::mem::replace(&mut epoch, next));
                    continue;
                }
                Request::FlushPart(part) => {
                    let next = epoch.flushed(index, part.clone());
                    epochs.push(std::mem::replace(&mut epoch, next));
                    continue;
                }
            };
            request.apply(&mut image);
            epoch.writes.extend(pending(&image, range));
        }
        epoch.requests.end = self.requests.len();
        epochs.push(epoch);
        epochs
    }

    /// The record as it would be had the device ignored those flushes for which `is_dropped`, given
    /// their place in the record, is true.
    pub fn without_flushes(&self, is_dropped: impl Fn(&[Request], usize) -> bool) -> Recorded {
        let is_kept = |index: usize| {
            let is_flush = matches!(self.requests[index], Request::Flush | Request::FlushPart(_));
            !is_flush || !is_dropped(&self.requests, index)
        };
        let kept = (0..self.requests.len()).filter(|index| is_kept(*index));
        Recorded {
            base: self.base.clone(),
            requests: kept.map(|index| self.requests[index].clone()).collect(),
        }
    }
}

/// The sectors of a range as the image holds them; `None` for an empty range.
fn pending(image: &Image, (offset_bytes, length_bytes): (u64, u64)) -> Option<Pending> {
    let sector_bytes = SECTOR_BYTES as u64;
    let first_sector = offset_bytes / sector_bytes;
    let end = (offset_bytes + length_bytes).next_multiple_of(sector_bytes);
    let start = first_sector * sector_bytes;
    let mut data = vec![0; (end.min(image.len_bytes()) - start) as usize];
    image.read(start, &mut data);
    data.resize((end - start) as usize, 0);
    (length_bytes > 0).then_some(Pending { first_sector, data })
}

impl Epoch {
    /// Ends at a flush of these bytes; gives what begins then.
    fn flushed(&mut self, index: usize, part: Range<u64>) -> Epoch {
        self.requests.end = index;
        let mut next = Epoch {
            base: self.base.clone(),
            requests: index + 1..index + 1,
            writes: Vec::new(),
        };
        for write in &self.writes {
            let start = write.first_sector * SECTOR_BYTES as u64;
            match part.contains(&start) {
                true => put(&mut next.base, start, &write.data),
                false => next.writes.push(write.clone()),
            }
        }
        next
    }

    /// The number of writes in it.
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// What a crash leaves that leaves this of the epoch.
    pub fn image(&self, choice: &Choice) -> Image {
        let mut image = self.base.clone();
        for (index, part) in &choice.0 {
            let write = &self.writes[*index];
            let start = write.first_sector * SECTOR_BYTES as u64;
            match part {
                Part::Whole => put(&mut image, start, &write.data),
                Part::Sectors(sectors) => {
                    for sector in sectors {
                        let at = sector * SECTOR_BYTES;
                        put(
                            &mut image,
                            start + at as u64,
                            &write.data[at..at + SECTOR_BYTES],
                        );
                    }
                }
            }
        }
        image
    }

    /// The states that are tried, each once; `seed` decides where chance does.
    pub fn choices(&self, limits: &Limits, seed: u64) -> Vec<Choice> {
        let count = self.writes.len();
        let mut random = Random(seed);
        let (mut sure, mut others) = (Vec::new(), Vec::new());
        if count <= limits.exhaustive_writes {
            for mask in 0..1_u64 << count {
                sure.push(whole((0..count).filter(|index| mask >> index & 1 == 1)));
            }
        } else {
            sure.push(Choice::default());
            sure.push(whole(0..count));
            for index in 0..count {
                others.push(whole(0..index));
                others.push(whole((0..count).filter(|other| *other != index)));
                others.push(whole([index]));
            }
            for _ in 0..limits.states {
                others.push(whole((0..count).filter(|_| random.next() & 1 == 1)));
            }
        }
        for index in 0..count {
            others.extend(self.torn(index, limits, &mut random));
        }
        // A shuffle of which the head is taken.
        let taken = others.len().min(limits.states);
        for at in 0..taken {
            let from = at + random.below(others.len() - at);
            others.swap(at, from);
        }
        others.truncate(taken);
        let mut seen = HashSet::new();
        sure.into_iter()
            .chain(others)
            .filter(|choice| seen.insert(choice.clone()))
            .collect()
    }

    /// Ways to tear one write.
    fn torn(&self, index: usize, limits: &Limits, random: &mut Random) -> Vec<Choice> {
        let sectors = self.writes[index].sectors();
        let first_sector = self.writes[index].first_sector;
        // The first of the sectors that stay together decides for all of them.
        let keep_together = |part: Vec<usize>| -> Vec<usize> {
            let deciding = |sector: usize| {
                let at = first_sector + sector as u64;
                let start = match limits.whole_sectors.contains(&at) {
                    true => limits.whole_sectors.start,
                    false => at - at % limits.unit_sectors,
                };
                start.max(first_sector) - first_sector
            };
            let is_in = |sector: &usize| part.contains(&(deciding(*sector) as usize));
            (0..sectors).filter(is_in).collect()
        };
        if sectors < 2 {
            return Vec::new();
        }
        let middle = 1 + random.below(sectors - 1);
        let chance = (0..sectors).filter(|_| random.next() & 1 == 1).collect();
        let parts: [Vec<usize>; 5] = [
            vec![0],
            (0..middle).collect(),
            (middle..sectors).collect(),
            (0..sectors - 1).collect(),
            chance,
        ];
        let mut choices = Vec::new();
        for part in parts.map(keep_together).map(Part::Sectors) {
            for end in [index + 1, self.writes.len()] {
                let of = |other| (other, Part::Whole);
                let mut choice: Vec<_> = (0..end).map(of).collect();
                choice[index].1 = part.clone();
                choices.push(Choice(choice));
            }
        }
        choices
    }

    /// Says what a choice leaves, and where it was written.
    pub fn describe(&self, choice: &Choice) -> String {
        let mut text = format!("of {} writes since the last flush:", self.writes.len());
        for (index, part) in &choice.0 {
            let write = &self.writes[*index];
            let (from, count) = (write.first_sector, write.sectors());
            match part {
                Part::Whole => text += &format!(" #{index} [{from}+{count}]"),
                Part::Sectors(sectors) => {
                    text += &format!(" #{index} [{from}+{count}] but of it only {sectors:?}");
                }
            }
        }
        if choice.0.is_empty() {
            text += " none";
        }
        text
    }
}

fn whole(indices: impl IntoIterator<Item = usize>) -> Choice {
    Choice(indices.into_iter().map(|at| (at, Part::Whole)).collect())
}

/// Writes what of `data` lies on the device.
fn put(image: &mut Image, start: u64, data: &[u8]) {
    let length = (image.len_bytes() - start).min(data.len() as u64) as usize;
    image.write(start, &data[..length]);
}

/// SplitMix64 (Steele et al., OOPSLA 2014): the same for a seed everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecordingDevice, RecordingPart};
    use finefs_block::BlockDevice;
    use std::sync::Arc;

    const LIMITS: Limits = Limits {
        exhaustive_writes: 4,
        states: 20,
        unit_sectors: 1,
        whole_sectors: 0..0,
    };

    fn states(recorded: &Recorded, epoch: usize, limits: &Limits) -> HashSet<Vec<u8>> {
        let epoch = &recorded.epochs()[epoch];
        let choices = epoch.choices(limits, 1);
        choices
            .iter()
            .map(|choice| epoch.image(choice).to_bytes())
            .collect()
    }

    #[test]
    fn a_flush_of_one_disk_leaves_the_other_as_it_was() {
        let device = Arc::new(RecordingDevice::new(vec![0; 4 * 512]));
        let part = |range| RecordingPart::new(device.clone(), range);
        let (first, second) = (part(0..1024), part(1024..2048));
        first.write_at(512, &[1; 512]).unwrap();
        second.write_at(0, &[2; 512]).unwrap();
        first.flush().unwrap();
        first.write_at(0, &[3; 512]).unwrap();
        let recorded = device.recorded();
        let after: Vec<[u8; 3]> = states(&recorded, 1, &LIMITS)
            .iter()
            .map(|bytes| [bytes[0], bytes[512], bytes[1024]])
            .collect();
        // What was flushed is there, of the rest any part.
        let expected = [[0, 1, 0], [0, 1, 2], [3, 1, 0], [3, 1, 2]];
        assert_eq!(after.len(), expected.len());
        assert!(expected.iter().all(|state| after.contains(state)));
        second.flush().unwrap();
        let recorded = device.recorded();
        let last = &recorded.epochs()[2];
        assert_eq!((last.base.to_bytes()[1024], last.writes()), (2, 1));
        assert!(first.write_at(1000, &[0; 512]).is_err());
    }

    #[test]
    fn a_flush_parts_what_is_durable_from_what_may_be() {
        let device = RecordingDevice::new(vec![0; 4 * 512]);
        device.write_at(0, &[1; 512]).unwrap();
        device.write_at(512, &[2; 512]).unwrap();
        device.flush().unwrap();
        device.mark(7);
        device.write_at(1024, &[3; 512]).unwrap();
        let recorded = device.recorded();
        let epochs = recorded.epochs();
        assert_eq!(epochs.len(), 2);
        assert_eq!(epochs[1].requests, 3..5);
        let firsts = |images: HashSet<Vec<u8>>| {
            let mut all: Vec<[u8; 3]> = images
                .iter()
                .map(|image| [image[0], image[512], image[1024]])
                .collect();
            all.sort();
            all
        };
        let first = firsts(states(&recorded, 0, &LIMITS));
        assert_eq!(first, [[0, 0, 0], [0, 2, 0], [1, 0, 0], [1, 2, 0]]);
        let second = firsts(states(&recorded, 1, &LIMITS));
        assert_eq!(second, [[1, 2, 0], [1, 2, 3]]);
        // A device that ignores the flush leaves the later write without the earlier ones.
        let lied = recorded.without_flushes(|_, _| true);
        assert_eq!(lied.epochs().len(), 1);
        assert!(firsts(states(&lied, 0, &LIMITS)).contains(&[0, 0, 3]));
    }

    #[test]
    fn writes_are_torn_at_sectors_and_never_inside() {
        let device = RecordingDevice::new(vec![0; 8 * 512]);
        device.write_at(0, &[1; 4 * 512]).unwrap();
        // A part of a sector takes the rest of it along.
        device.write_at(100, &[2; 10]).unwrap();
        let recorded = device.recorded();
        let mut torn = 0;
        for image in states(&recorded, 0, &LIMITS) {
            let kinds: Vec<u8> = (0..4).map(|sector| image[sector * 512]).collect();
            torn += u32::from(kinds.contains(&0) && kinds.contains(&1));
            for sector in 0..4 {
                let bytes = &image[sector * 512..(sector + 1) * 512];
                let patched = sector == 0 && bytes[100..110] == [2; 10];
                let rest = bytes
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| !patched || !(100..110).contains(at));
                let rest: HashSet<u8> = rest.map(|(_, byte)| *byte).collect();
                assert_eq!(rest.len(), 1, "torn inside a sector");
                assert!(!patched || rest.contains(&1));
            }
        }
        assert!(torn > 0);
    }

    #[test]
    fn some_sectors_stay_together() {
        let device = RecordingDevice::new(vec![0; 8 * 512]);
        device.write_at(512, &[1; 5 * 512]).unwrap();
        let limits = Limits {
            whole_sectors: 2..4,
            ..LIMITS
        };
        let recorded = device.recorded();
        let images = states(&recorded, 0, &limits);
        assert!(images.len() > 3);
        for image in images {
            assert_eq!(image[2 * 512], image[3 * 512]);
        }
        let limits = Limits {
            unit_sectors: 2,
            ..LIMITS
        };
        for image in states(&recorded, 0, &limits) {
            assert_eq!(image[2 * 512], image[3 * 512]);
            assert_eq!(image[4 * 512], image[5 * 512]);
        }
        let apart = states(&recorded, 0, &LIMITS);
        assert!(apart.iter().any(|image| image[2 * 512] != image[3 * 512]));
    }

    #[test]
    fn many_writes_are_sampled_and_the_seed_repeats_it() {
        let device = RecordingDevice::new(vec![0; 64 * 512]);
        for sector in 0..32 {
            device.write_at(sector * 1024, &[1; 1024]).unwrap();
        }
        let epochs = device.recorded().epochs();
        let choices = epochs[0].choices(&LIMITS, 3);
        assert!(choices.len() > 15 && choices.len() <= 22);
        assert_eq!(choices, epochs[0].choices(&LIMITS, 3));
        assert_ne!(choices, epochs[0].choices(&LIMITS, 4));
        assert!(choices.contains(&Choice::default()) && choices.contains(&whole(0..32)));
    }
}
