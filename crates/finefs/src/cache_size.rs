//! How much memory an image may take for what it could read again, and who gets what of it.

/// At least so much where nobody says.
const BYTES_MIN: u64 = 64 << 20;

/// One part in so many of the memory that there is, where nobody says.
const SHARE: u64 = 8;

/// Blocks of metadata never need more.
const BUFFERS_MAX: u64 = 64 << 20;
/// File data that was written; more only makes commits longer.
const DATA_MAX: u64 = 1 << 30;

/// What each cache of an image may take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// Inodes, names, mappings, attributes.
    pub inodes: u64,
    /// Data that was written to files.
    pub data: u64,
    /// Clean blocks of metadata.
    pub buffers: u64,
}

impl Shares {
    /// Of so much in all, and of so much for data if somebody says; else of a share of the
    /// machine's memory, or of what its control group may have if that is less. An eighth is left
    /// for what waits for a commit beside the inodes themselves.
    pub fn new(cache: Option<u64>, data: Option<u64>) -> Shares {
        let cache = cache.unwrap_or_else(|| share_of(memory_bytes()));
        let data = data.unwrap_or(cache / 8 * 3).min(data.unwrap_or(DATA_MAX));
        let buffers = (cache / 8).min(BUFFERS_MAX);
        let left = cache - cache / 8;
        Shares {
            inodes: left.saturating_sub(data + buffers).max(cache / 4),
            data,
            buffers,
        }
    }
}

fn memory_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total_bytes);
    // In a container the root of this tree is the container's group.
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    machine.unwrap_or(0).min(group.unwrap_or(u64::MAX))
}

fn share_of(memory_bytes: u64) -> u64 {
    (memory_bytes / SHARE).max(BYTES_MIN)
}

/// The line `MemTotal` of /proc/meminfo, see proc_meminfo(5).
fn total_bytes(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_the_memory() {
        let text = "MemTotal:        8000000 kB\nMemFree:           10 kB\n";
        assert_eq!(total_bytes(text), Some(8_000_000 << 10));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        let shares = [0, 1 << 30, 64 << 30].map(share_of);
        assert_eq!(shares, [BYTES_MIN, 128 << 20, 8 << 30]);
        assert!(memory_bytes() > 0);
    }

    #[test]
    fn shares_are_within_the_whole() {
        for cache in [64 << 20, 128 << 20, 1 << 30, 64 << 30] {
            let shares = Shares::new(Some(cache), None);
            assert!(shares.inodes + shares.data + shares.buffers <= cache);
            assert!(shares.inodes >= cache / 4 && shares.data <= DATA_MAX);
        }
        let all_data = Shares::new(Some(1 << 30), Some(3 << 30));
        assert_eq!((all_data.data, all_data.inodes), (3 << 30, 1 << 28));
        assert_eq!(Shares::new(Some(0), None).inodes, 0);
    }
}
