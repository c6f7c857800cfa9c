//! randrw: random reads and writes of blocks of one large file by many at once.
//!
//! The job of fio that Zheng Liu ran to compare ext4's file lock with XFS's (linux-ext4, "working
//! on extent locks for i_mutex", January 2012): one file, 32 threads, blocks of 16 KiB, 90 % reads,
//! pread and pwrite past the page cache. Reported as there: operations, bandwidth and latency, of
//! reads and writes apart.
//!
//! Every block has contents of its own, and a write writes just these again. So wherever data lands
//! in a wrong place, or a write is lost before the file was written once, a reader notices.

use crate::clock::now_ns;
use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Length, Plan, Watch};
use crate::report::{Report, rate};
use crate::room::require_space;
use crate::targets::{Errno, File, OFlags, Target, write_all_at};
use crate::timing::note;
use crate::worker::Worker;
use crate::workload::{Detail, Workload};
use finefs_lockmeter::Times;
use serde::{Deserialize, Serialize};

/// The parameters of randrw.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct RandRw {
    /// Size of the file in blocks
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// Size of a block in bytes: a multiple of 512
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    pub block_size: u32,
    /// Reads in 100 operations
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u8).range(..=100))]
    pub read_share: u8,
    /// Go through the page cache where a directory could do without
    #[arg(long)]
    pub buffered: bool,
}

impl Default for RandRw {
    fn default() -> RandRw {
        RandRw {
            blocks: 4096,
            block_size: 16 << 10,
            read_share: 90,
            buffered: false,
        }
    }
}

const PATH: &str = "randrw";

/// What memory and offsets of direct I/O are aligned to: no device wants more.
const ALIGNMENT: usize = 4096;

/// A buffer for direct I/O.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Buffer {
        let bytes = vec![0_u8; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Buffer {
            bytes,
            start,
            length,
        }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

/// What block `block` contains: numbers that go up from one of its own.
fn fill(block: u64, data: &mut [u8]) {
    // Knuth's multiplier: neighbours get numbers far apart.
    let first = (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (at, word) in data.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&first.wrapping_add(at as u64).to_le_bytes());
    }
}

impl RandRw {
    fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    /// Past the page cache, if that is wanted and the file system can; says whether.
    fn open<T: Target>(&self, target: &T) -> Result<(T::File, bool)> {
        if !self.buffered {
            match target.open(PATH, OFlags::RDWR | OFlags::DIRECT) {
                Err(Errno::INVAL) => {}
                result => return Ok((result.during("open", PATH)?, true)),
            }
        }
        let file = target.open(PATH, OFlags::RDWR).during("open", PATH)?;
        Ok((file, false))
    }

    fn read<F: File>(&self, file: &F, block: u64, buffer: &mut [u8]) -> Result<()> {
        let offset = block * u64::from(self.block_size);
        let count = file.read_at(buffer, offset).during("read", PATH)?;
        self.check_length("read", block, count)
    }

    fn check_length(&self, what: &str, block: u64, count: usize) -> Result<()> {
        if count == self.block_size as usize {
            return Ok(());
        }
        let line = format!("{what} of block {block}: {count} bytes");
        Err(WorkloadError::Wrong(line))
    }
}

/// What randrw counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RandRwDetail {
    /// How many reads there were.
    pub read_count: u64,
    /// How many writes.
    pub write_count: u64,
    /// How long reads took.
    pub reads: Times,
    /// How long writes took.
    pub writes: Times,
    /// The page cache was not used, as far as the target has one.
    pub is_direct: bool,
}

impl Detail for RandRwDetail {
    fn add(&mut self, other: RandRwDetail) {
        self.read_count += other.read_count;
        self.write_count += other.write_count;
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.is_direct |= other.is_direct;
    }
}

impl Workload for RandRw {
    const NAME: &'static str = "randrw";

    const THREADS: usize = 32;

    type Detail = RandRwDetail;

    fn usual_length(&self) -> Length {
        Length::Seconds(60.0)
    }

    fn operations(&self) -> &'static str {
        "reads and writes"
    }

    fn check(&self, _: &Plan) -> Result<()> {
        if self.block_size == 0 || !self.block_size.is_multiple_of(512) {
            let line = "the block size must be a multiple of 512";
            return Err(WorkloadError::Parameters(line.to_owned()));
        }
        if self.blocks > i64::MAX as u64 / u64::from(self.block_size) {
            let line = "blocks, block size: no file is as large as their product";
            return Err(WorkloadError::Parameters(line.to_owned()));
        }
        Ok(())
    }

    fn prepare<T: Target>(&self, target: &T, _: &Plan, watch: Watch<'_>) -> Result<()> {
        require_space(
            target,
            self.bytes(),
            "the file of --blocks and --block-size",
        )?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = target.open(PATH, flags).during("create", PATH)?;
        let mut data = vec![0; self.block_size as usize];
        for block in 0..self.blocks {
            watch.check_stop()?;
            fill(block, &mut data);
            let offset = block * u64::from(self.block_size);
            write_all_at(&file, &data, offset).during("write", PATH)?;
        }
        watch.check_stop()?;
        file.sync_all().during("sync", PATH)
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<RandRwDetail> {
        let (file, is_direct) = self.open(target)?;
        let length = self.block_size as usize;
        let (mut buffer, mut expected) = (Buffer::new(length), vec![0; length]);
        let mut detail = RandRwDetail::default();
        worker.start()?;
        while worker.goes_on() {
            if worker.operations() == 0 {
                detail = RandRwDetail::default();
            }
            let block = worker.rng.u64(..self.blocks);
            let data = buffer.get();
            if worker.rng.u8(..100) < self.read_share {
                let before_ns = now_ns();
                self.read(&file, block, data)?;
                note(&mut detail.reads, now_ns() - before_ns);
                if worker.verifies() {
                    fill(block, &mut expected);
                    check(block, data, &expected)?;
                }
            } else {
                fill(block, data);
                let before_ns = now_ns();
                let offset = block * u64::from(self.block_size);
                let count = file.write_at(data, offset).during("write", PATH)?;
                note(&mut detail.writes, now_ns() - before_ns);
                self.check_length("write", block, count)?;
            }
            worker.done();
        }
        worker.end();
        let size_bytes = file.stat().during("stat", PATH)?.size_bytes;
        if worker.verifies() && size_bytes != self.bytes() {
            let line = format!("the file has {size_bytes} bytes at the end");
            return Err(WorkloadError::Wrong(line));
        }
        detail.read_count = detail.reads.count();
        detail.write_count = detail.writes.count();
        detail.is_direct = is_direct;
        Ok(detail)
    }

    fn clean_up<T: Target>(&self, target: &T, _: Crew) -> Result<()> {
        match target.remove_file(PATH) {
            Err(Errno::NOENT) => Ok(()),
            result => result.during("remove", PATH),
        }
    }

    /// In the form of the mail's table, and quantiles.
    fn describe(&self, report: &Report<RandRw>) -> String {
        let detail = &report.detail;
        let mut text = format!(
            "{}: {} blocks of {} bytes, {} % reads, {}",
            Self::NAME,
            self.blocks,
            self.block_size,
            self.read_share,
            if detail.is_direct {
                "direct"
            } else {
                "buffered"
            },
        );
        for (name, times) in [("read", &detail.reads), ("write", &detail.writes)] {
            let per_second = rate(times.count(), report.seconds);
            let us = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e3;
            text.push_str(&format!(
                "\n{name:>5}: iops {per_second:.0}, bandwidth {:.0} KB/s, latency usec mean {:.2}, \
                 50 % {:.2}, 90 % {:.2}, 99 % {:.2}, 99.9 % {:.2}, max {:.2}",
                per_second * f64::from(self.block_size) / 1024.0,
                us(times.mean_ns()),
                us(times.quantile_ns(0.5)),
                us(times.quantile_ns(0.9)),
                us(times.quantile_ns(0.99)),
                us(times.quantile_ns(0.999)),
                us(Some(times.max_ns)),
            ));
        }
        text
    }
}

fn check(block: u64, found: &[u8], expected: &[u8]) -> Result<()> {
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(WorkloadError::Wrong(format!(
            "block {block} has something else at byte {at}"
        ))),
    }
}
