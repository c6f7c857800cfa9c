//! "working on extent locks for i_mutex": what the inode's mutex costs random direct I/O to one
//! file, three rounds.
//!
//! `ext4+dio_nolock` is ext4 with the mutex simply left out (`__generic_file_aio_write` called
//! without it, DIO_LOCKING cleared): an upper bound, not a correct file system. A range lock was
//! proposed and not measured.

use serde::Serialize;

use super::Source;

/// One round: reads and writes apart.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Round {
    /// Reads.
    pub read: f64,
    /// Writes.
    pub write: f64,
}

/// One file system in three tables.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The file system and its option.
    pub name: &'static str,
    /// I/O operations a second.
    pub iops: [Round; 3],
    /// KB a second.
    pub bandwidth_kb_per_s: [Round; 3],
    /// Mean latencies, microseconds.
    pub latency_us: [Round; 3],
}

const fn rounds(values: [(f64, f64); 3]) -> [Round; 3] {
    const fn round((read, write): (f64, f64)) -> Round {
        Round { read, write }
    }
    [round(values[0]), round(values[1]), round(values[2])]
}

/// Of [`ROWS`].
pub const SOURCE: Source = Source {
    thread: "working on extent locks for i_mutex",
    author: "Zheng Liu",
    date: "2012-01-18 11:58",
    machine: "Intel SSD",
    setup: "fio: 64G file, bs=16k, direct=1, psync, 32 threads, randrw with 90 % reads, 600 s",
};

/// fio's numjobs.
pub const THREADS: u32 = 32;
/// fio's bs, bytes.
pub const BLOCK_BYTES: u32 = 16 << 10;
/// fio's rwmixread.
pub const READ_PERCENT: u32 = 90;

/// The tables, a file system a row.
pub const ROWS: [Row; 4] = [
    Row {
        name: "ext4",
        iops: rounds([(5584.0, 622.0), (5726.0, 636.0), (5719.0, 636.0)]),
        bandwidth_kb_per_s: rounds([
            (89_359.0, 9955.3),
            (91_621.0, 10_186.0),
            (91_519.0, 10_185.0),
        ]),
        latency_us: rounds([(5163.28, 5048.31), (5037.81, 4914.82), (5041.49, 4932.81)]),
    },
    Row {
        name: "ext4+dioread_nolock",
        iops: rounds([(7105.0, 789.0), (7117.0, 793.0), (7129.0, 795.0)]),
        bandwidth_kb_per_s: rounds([
            (113_691.0, 12_635.0),
            (113_882.0, 12_692.0),
            (114_066.0, 12_728.0),
        ]),
        latency_us: rounds([
            (1220.04, 29_510.5),
            (1213.67, 29_418.9),
            (1208.77, 29_361.49),
        ]),
    },
    Row {
        name: "ext4+dio_nolock",
        iops: rounds([(8920.0, 992.0), (8956.0, 995.0), (8976.0, 997.0)]),
        bandwidth_kb_per_s: rounds([
            (142_731.0, 15_888.0),
            (143_301.0, 15_930.0),
            (143_617.0, 15_959.0),
        ]),
        latency_us: rounds([(3226.61, 3194.35), (3214.59, 3178.09), (3207.34, 3173.78)]),
    },
    Row {
        name: "xfs",
        iops: rounds([(8726.0, 971.0), (8962.0, 994.0), (8975.0, 998.0)]),
        bandwidth_kb_per_s: rounds([
            (139_627.0, 15_537.0),
            (143_400.0, 15_914.0),
            (143_603.0, 15_980.0),
        ]),
        latency_us: rounds([(3299.87, 3266.32), (3213.73, 3182.20), (3208.16, 3178.10)]),
    },
];
