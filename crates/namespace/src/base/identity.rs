//! What tells a file system from all others.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher24;

use crate::base::types::Ino;

/// What tells a file system from all others, and stays when it is opened again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Keys for what users see and shall not make up or foresee: file handles, the order of
    /// listings. A user that can read the image can know them.
    pub secret: [u64; 2],
}

impl Identity {
    /// Of a file system that has this UUID, and this seed for its own hashes.
    pub fn derived(uuid: [u8; 16], seed: &[u8]) -> Identity {
        let secret = [0, 1].map(|number: u8| {
            let mut hasher = SipHasher24::new_with_key(&uuid);
            hasher.write(seed);
            hasher.write_u8(number);
            hasher.finish()
        });
        Identity { uuid, secret }
    }

    /// Of a file system that is never opened again.
    pub fn random() -> Identity {
        let random = RandomState::new();
        let [a, b, c, d] = [0, 1, 2, 3].map(|number: u8| random.hash_one(number));
        let uuid = u128::from(a) << 64 | u128::from(b);
        Identity {
            // A random one by RFC 9562: version 4, variant 10.
            uuid: (uuid & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62).to_be_bytes(),
            secret: [c, d],
        }
    }

    /// Keys for the names of one directory.
    pub(crate) fn keys_of(&self, directory: Ino, generation: u32) -> [u64; 2] {
        [0, 1].map(|number: u8| {
            let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
            hasher.write_u64(directory.0);
            hasher.write_u32(generation);
            hasher.write_u8(number);
            hasher.finish()
        })
    }
}
