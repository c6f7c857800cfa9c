//! File handles: what a client names a file by, also after the server was started again.
//!
//! # Form
//! | bytes | |
//! |---|---|
//! | 4 | version of this form |
//! | 16 | UUID of the file system |
//! | 8 | inode number |
//! | 4 | generation, which distinguishes uses of a number |
//! | 8 | SipHash-2-4 of the above with the file system's secret |
//!
//! Nobody makes up a handle without the secret, and so nobody gets at a file by its number past the
//! permissions of the directories above it. The secret is made of the image's UUID and the seed of
//! its directory hashes ([`Identity`]): it is the same whenever and wherever the image is served,
//! and known to whoever can read the image.

use std::hash::Hasher;

use finefs_namespace::{Error, Identity, Ino, Result};
use siphasher::sip::SipHasher24;

const VERSION: u32 = 1;
const SIGNED_BYTES: usize = 32;
/// The length of a handle.
pub(crate) const HANDLE_BYTES: usize = SIGNED_BYTES + 8;
/// The longest handle that a request may have (NFS3_FHSIZE).
pub(crate) const HANDLE_MAX: usize = 64;

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub ino: Ino,
    pub generation: u32,
}

/// The handle of a file.
pub(crate) fn encode(identity: &Identity, named: Named) -> [u8; HANDLE_BYTES] {
    let mut handle = [0; HANDLE_BYTES];
    handle[..4].copy_from_slice(&VERSION.to_be_bytes());
    handle[4..20].copy_from_slice(&identity.uuid);
    handle[20..28].copy_from_slice(&named.ino.0.to_be_bytes());
    handle[28..32].copy_from_slice(&named.generation.to_be_bytes());
    let seal = seal(identity, &handle[..SIGNED_BYTES]);
    handle[SIGNED_BYTES..].copy_from_slice(&seal.to_be_bytes());
    handle
}

/// The UUID of the file system that a handle says it is of.
pub(crate) fn uuid(handle: &[u8]) -> Option<&[u8; 16]> {
    handle.get(4..20)?.try_into().ok()
}

/// What a handle names. [`Error::BadHandle`] for bytes that were never given out,
/// [`Error::Stale`] for a handle of another file system.
pub(crate) fn decode(identity: &Identity, handle: &[u8]) -> Result<Named> {
    let handle: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| Error::BadHandle)?;
    let number = |range: std::ops::Range<usize>| {
        let bytes = handle[range].iter();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if number(0..4) != u64::from(VERSION) {
        return Err(Error::BadHandle);
    }
    if handle[4..20] != identity.uuid {
        return Err(Error::Stale);
    }
    if number(SIGNED_BYTES..HANDLE_BYTES) != seal(identity, &handle[..SIGNED_BYTES]) {
        return Err(Error::BadHandle);
    }
    Ok(Named {
        ino: Ino(number(20..28)),
        generation: number(28..32) as u32,
    })
}

fn seal(identity: &Identity, signed: &[u8]) -> u64 {
    let [first, second] = identity.secret;
    let mut hasher = SipHasher24::new_with_keys(first, second);
    // Other things are made of the same secret.
    hasher.write(b"file handle");
    hasher.write(signed);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_for_its_file_system_only() {
        let identity = Identity::derived([7; 16], b"seed");
        let named = Named {
            ino: Ino(12),
            generation: 99,
        };
        let handle = encode(&identity, named);
        assert_eq!(decode(&identity, &handle), Ok(named));
        // Started again.
        assert_eq!(
            decode(&Identity::derived([7; 16], b"seed"), &handle),
            Ok(named)
        );
        let other = Identity::derived([8; 16], b"seed");
        assert_eq!(decode(&other, &handle), Err(Error::Stale));
        let other = Identity::derived([7; 16], b"sees");
        assert_eq!(decode(&other, &handle), Err(Error::BadHandle));
    }

    #[test]
    fn no_bit_of_a_handle_can_be_changed() {
        let identity = Identity::derived([7; 16], b"seed");
        let named = Named {
            ino: Ino(12),
            generation: 99,
        };
        let handle = encode(&identity, named);
        for bit in 0..HANDLE_BYTES * 8 {
            let mut forged = handle;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&identity, &forged).is_err(), "bit {bit}");
        }
        assert_eq!(decode(&identity, &handle[1..]), Err(Error::BadHandle));
        assert_eq!(decode(&identity, &[]), Err(Error::BadHandle));
    }
}
