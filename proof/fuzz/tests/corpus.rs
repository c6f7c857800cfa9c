//! The kept inputs of all targets, and some random ones: what `make test` can do without a
//! sanitizer.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use finefs_fuzz::{TARGETS, seed};

/// The most that one input may take of a CPU; libFuzzer's limit is longer, as its code is slower.
const INPUT_LIMIT: Duration = Duration::from_secs(10);

/// What this thread has had of a CPU.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().expect("it goes forward from 0")
}

fn timed(name: &str, what: &str, target: fn(&[u8]), data: &[u8]) {
    let started = cpu_time();
    target(data);
    let took = cpu_time() - started;
    assert!(took < INPUT_LIMIT, "{name}: {what}: took {took:?}");
}

/// The kept inputs of a target, with their names.
fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let packed = File::open(corpus.join(format!("{target}.tar.gz"))).expect("the inputs are kept");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let entries = archive.entries().expect("it is an archive");
    let inputs = entries.map(|entry| {
        let mut entry = entry.expect("the archive is whole");
        let name = entry.path().expect("it has a name").display().to_string();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("the archive is whole");
        (name, data)
    });
    inputs.collect()
}

#[test]
fn every_target_has_kept_inputs() {
    for (name, target) in TARGETS {
        let inputs = kept(name);
        assert!(!inputs.is_empty(), "{name}: no input");
        for (input, data) in inputs {
            timed(name, &input, *target, &data);
        }
    }
}

/// Good images stay good: the oracles of the image targets hold on them.
#[test]
fn good_images() {
    for number in 0..seed::all().len() as u8 {
        finefs_fuzz::run("walk", &[number, 0]);
        finefs_fuzz::run("replay", &[number, 0]);
        let work: Vec<u8> = (0..600_u32).map(|n| (n * n % 251) as u8 ^ number).collect();
        finefs_fuzz::run("write", &[&[number, 0], &work[..]].concat());
        // Mending a good image changes nothing that matters.
        let mut bytes = seed::all()[usize::from(number)].bytes.clone();
        seed::all()[usize::from(number)].layout.mend(&mut bytes);
        let same = bytes == seed::all()[usize::from(number)].bytes;
        assert!(same, "{}", seed::all()[usize::from(number)].name);
    }
}

/// Random inputs, the same each time.
#[test]
fn random_inputs() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    for (name, target) in TARGETS {
        for round in 0..60 {
            let length = usize::from(random()) * (1 + round % 4);
            let data: Vec<u8> = (0..length).map(|_| random()).collect();
            timed(
                name,
                &format!("random input {round}: {data:x?}"),
                *target,
                &data,
            );
        }
    }
}
