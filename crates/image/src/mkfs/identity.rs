//! What makes a file system itself: UUID, hash seed, time. Random and now, or from a seed.

use super::error::{MkfsError, Result};
use super::options::Options;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of images that are made of a seed alone: 1980-01-01, the first that all archives know.
const SEEDED_TIME: i64 = 315_532_800;

/// UUID, hash seed and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub uuid: [u8; 16],
    pub hash_seed: [u8; 16],
    pub time: i64,
}

impl Identity {
    /// A hash seed as the superblock has it.
    pub fn hash_seed_words(&self) -> [u32; 4] {
        let (words, _) = self.hash_seed.as_chunks::<4>();
        std::array::from_fn(|index| words.get(index).map_or(0, |word| u32::from_le_bytes(*word)))
    }

    pub fn of(options: &Options, blocks: u64) -> Result<Identity> {
        let time = match (options.time, &options.seed) {
            (Some(time), _) => time,
            (None, Some(_)) => SEEDED_TIME,
            (None, None) => now(),
        };
        let made = |purpose: &str| match (&options.seed, options.time) {
            (Some(seed), _) => Ok(derived(seed, purpose, options, blocks)),
            // A time from outside asks for the same bytes in each build, too.
            (None, Some(time)) => Ok(derived(&time.to_string(), purpose, options, blocks)),
            (None, None) => random(),
        };
        Ok(Identity {
            uuid: options.uuid.map_or_else(|| made("uuid"), Ok)?,
            hash_seed: options.hash_seed.map_or_else(|| made("hash seed"), Ok)?,
            time,
        })
    }
}

/// Sets UUID and hash seed as the seed says, where nobody gave them; `size` in place of the number
/// of blocks, for images whose size is computed.
pub(crate) fn identify(options: &mut Options, size: u64) {
    let Some(seed) = options.seed.clone() else {
        return;
    };
    let made = |purpose| derived(&seed, purpose, options, size);
    let (uuid, hash_seed) = (made("uuid"), made("hash seed"));
    options.uuid.get_or_insert(uuid);
    options.hash_seed.get_or_insert(hash_seed);
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// A UUID that label and size tell apart from others of the same seed.
fn derived(seed: &str, purpose: &str, options: &Options, blocks: u64) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_keys(0x6669_6e65_6673, 0x6d6b_6673);
    for part in [purpose.as_bytes(), seed.as_bytes(), &options.label] {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.write(&blocks.to_le_bytes());
    as_uuid(hasher.finish128().as_bytes())
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match read {
        Ok(16) => Ok(as_uuid(bytes)),
        Ok(_) => Err(no_random(std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(no_random(error.into())),
    }
}

fn no_random(error: std::io::Error) -> MkfsError {
    MkfsError::Io {
        place: "random numbers".into(),
        action: "read",
        error,
    }
}

/// Version 4, the variant of RFC 9562.
fn as_uuid(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// Reads a UUID as `-U` takes it: 32 hexadecimal digits, hyphens between them or not; `clear` is
/// all zeros, `random` and `time` are made anew (`None`).
pub fn parse_uuid(option: &'static str, text: &str) -> Result<Option<[u8; 16]>> {
    match text {
        "clear" | "null" => return Ok(Some([0; 16])),
        "random" | "time" => return Ok(None),
        _ => {}
    }
    let bad = || MkfsError::value(option, text, "give a UUID, as uuidgen(1) prints it");
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return Err(bad());
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
    }
    Ok(Some(uuid))
}

/// A UUID as it is printed.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| &hex[part]).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same() {
        let options = Options {
            seed: Some("a".into()),
            ..Options::default()
        };
        let one = Identity::of(&options, 100).unwrap();
        assert_eq!(one, Identity::of(&options, 100).unwrap());
        assert_ne!(one.uuid, Identity::of(&options, 101).unwrap().uuid);
        assert_ne!(one.uuid, one.hash_seed);
        // The values are promised: other versions make the same images.
        assert_eq!(one.time, 315_532_800);
        assert_eq!(
            format_uuid(&one.uuid),
            format_uuid(&derived("a", "uuid", &options, 100))
        );
    }

    #[test]
    fn uuids_round_trip() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        let uuid = parse_uuid("-U", text).unwrap().unwrap();
        assert_eq!(format_uuid(&uuid), text);
        assert_eq!(parse_uuid("-U", "clear").unwrap(), Some([0; 16]));
        assert_eq!(parse_uuid("-U", "random").unwrap(), None);
        for bad in ["", "1", "01234567-89ab-cdef-0123-456789abcdeg"] {
            assert!(parse_uuid("-U", bad).is_err());
        }
    }
}
