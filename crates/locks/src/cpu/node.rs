//! Which NUMA node a CPU belongs to.
//!
//! Source: `/sys/devices/system/node/node*/cpulist` (Linux
//! `Documentation/ABI/stable/sysfs-devices-node`), read once. Where there is no such thing, all
//! CPUs are of node 0.

use std::fs;
use std::sync::OnceLock;

/// The node of each CPU; those that are not named are of node 0.
static NODES: OnceLock<Box<[u16]>> = OnceLock::new();

/// The NUMA node of `cpu`, one of `0..count()`; 0 where nothing is known of nodes.
///
/// ```
/// use finefs_locks::cpu;
/// println!("CPU {} is of node {}", cpu::current(), cpu::node_of(cpu::current()));
/// ```
pub fn node_of(cpu: usize) -> usize {
    let nodes = NODES.get_or_init(|| read("/sys/devices/system/node"));
    nodes.get(cpu).copied().map_or(0, usize::from)
}

fn read(directory: &str) -> Box<[u16]> {
    let mut nodes = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(node) = number.and_then(|number| number.parse::<u16>().ok()) else {
            continue;
        };
        let list = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        for cpu in cpus(&list) {
            if nodes.len() <= cpu {
                nodes.resize(cpu + 1, 0);
            }
            nodes[cpu] = node;
        }
    }
    nodes.into()
}

/// The numbers of a list like `0-3,8,10-11`.
fn cpus(list: &str) -> impl Iterator<Item = usize> {
    /// More than any Linux has (CONFIG_NR_CPUS).
    const CPUS_END: usize = 8192;
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..(last + 1).min(CPUS_END),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_understood() {
        assert_eq!(cpus("0-2,5,7-8\n").collect::<Vec<_>>(), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpus("\n").count(), 0);
    }

    #[test]
    fn a_node_for_each_cpu() {
        let dir = std::env::temp_dir().join(format!("finefs-nodes.{}", std::process::id()));
        for (node, list) in [
            ("node0", "0,2\n"),
            ("node1", "1,3-4\n"),
            ("possible", "9\n"),
        ] {
            fs::create_dir_all(dir.join(node)).unwrap();
            fs::write(dir.join(node).join("cpulist"), list).unwrap();
        }
        let nodes = read(dir.to_str().unwrap());
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(*nodes, [0, 1, 0, 1, 1]);
        assert!(read("/nowhere").is_empty());
    }
}
