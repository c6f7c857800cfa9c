//! How much memory the data cache takes where nobody says.

/// At least so much.
const BYTES_MIN: u64 = 32 << 20;

/// At most so much.
const BYTES_MAX: u64 = 1 << 30;

/// One part in so many of the memory that there is.
const SHARE: u64 = 16;

/// In bytes: a share of the machine's memory, or of what its control group may have if that is
/// less.
pub fn default_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total_bytes);
    // In a container the root of this tree is the container's group.
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    share_of(machine.unwrap_or(0).min(group.unwrap_or(u64::MAX)))
}

fn share_of(memory_bytes: u64) -> u64 {
    (memory_bytes / SHARE).clamp(BYTES_MIN, BYTES_MAX)
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
        let shares = [0, 1 << 30, 8 << 30, 64 << 30].map(share_of);
        assert_eq!(shares, [BYTES_MIN, 64 << 20, 512 << 20, BYTES_MAX]);
        assert!((BYTES_MIN..=BYTES_MAX).contains(&default_bytes()));
    }
}
