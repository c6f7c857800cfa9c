//! The duplicate-request cache: a call that must not be carried out twice is answered a second time
//! from here.
//!
//! A client that lost its connection sends its calls again. A REMOVE that had been carried out
//! would then fail, and the client would believe that the file was not there. So the replies of
//! such calls are kept, for each client machine its own (Juszczak, "Improving the Performance and
//! Correctness of an NFS Server", 1989).
//!
//! # Data model
//! A client has a fixed number of places. A call goes to the place that a hash of its transaction
//! id says. Clients count these up, by one or by more, and the hash spreads such numbers evenly; so
//! the last few hundred calls of a client are kept, whatever others do, and calls of one client
//! seldom meet at a lock. Beside the id, a hash of the whole call tells duplicates: other machines
//! may share an address.
//!
//! # Invariants
//! 1. While a call is under way its place is not given to another.
//! 2. A duplicate of a call that is under way is not carried out; whoever sent it gets the reply
//!    too.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use finefs_locks::Mutex;

use crate::classes;

/// Replies kept for each client: 2 to the power of this.
const PLACES_BITS: u32 = 10;
/// Longer replies are not kept: none of those that matter is. So a client keeps the server from
/// half a MiB at most.
const REPLY_MAX: usize = 512;

/// Tells calls apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    xid: u32,
    hash: u64,
}

/// What is known of a call. `W` is whom a reply can be sent to.
enum Kept<W> {
    Nothing,
    UnderWay(Key, Vec<Arc<W>>),
    Done(Key, Box<[u8]>),
}

/// The replies of one client.
pub(crate) struct Replies<W> {
    /// Made when the first is kept.
    places: OnceLock<Box<[Mutex<Kept<W>>]>>,
    hasher: RandomState,
}

/// What is to be done about a call.
pub(crate) enum Found<'r, W> {
    /// It is new: carry it out.
    New(UnderWay<'r, W>),
    /// It was carried out, with this reply.
    Done(Box<[u8]>),
    /// It is being carried out; the reply will be sent to its sender as well.
    IsUnderWay,
}

/// A call that is carried out. Its place is free again when this is dropped without a reply.
pub(crate) struct UnderWay<'r, W> {
    place: Option<&'r Mutex<Kept<W>>>,
    key: Key,
}

/// Senders of duplicates of one call that are remembered.
const WAITING_MAX: usize = 4;

/// Fibonacci hashing: what is counted up comes to places far from each other.
fn place_of(xid: u32) -> usize {
    let hash = u64::from(xid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - PLACES_BITS)) as usize
}

impl<W> Replies<W> {
    pub(crate) fn new() -> Replies<W> {
        Replies {
            places: OnceLock::new(),
            hasher: RandomState::new(),
        }
    }

    /// Looks for a call by its transaction id and all its bytes.
    pub(crate) fn find(&self, xid: u32, call: &[u8], sender: &Arc<W>) -> Found<'_, W> {
        let hash = self.hasher.hash_one(call);
        let key = Key { xid, hash };
        let places = self.places.get_or_init(|| {
            let places = 0..1 << PLACES_BITS;
            let places = places.map(|_| Mutex::new(&classes::REPLIES, Kept::Nothing));
            places.collect()
        });
        let place = &places[place_of(xid)];
        let mut kept = place.lock();
        match &mut *kept {
            Kept::Done(known, reply) if *known == key => return Found::Done(reply.clone()),
            Kept::UnderWay(known, waiting) if *known == key => {
                if waiting.len() < WAITING_MAX {
                    waiting.push(Arc::clone(sender));
                }
                return Found::IsUnderWay;
            }
            // Invariant 1: this one is not kept.
            Kept::UnderWay(..) => return Found::New(UnderWay { place: None, key }),
            _ => {}
        }
        *kept = Kept::UnderWay(key, Vec::new());
        Found::New(UnderWay {
            place: Some(place),
            key,
        })
    }
}

impl<W> UnderWay<'_, W> {
    /// The call was carried out: keeps its reply, and gives those who wait for it too.
    pub(crate) fn finish(mut self, reply: &[u8]) -> Vec<Arc<W>> {
        let Some(place) = self.place.take() else {
            return Vec::new();
        };
        let next = match reply.len() <= REPLY_MAX {
            true => Kept::Done(self.key, reply.into()),
            false => Kept::Nothing,
        };
        match std::mem::replace(&mut *place.lock(), next) {
            Kept::UnderWay(_, waiting) => waiting,
            _ => Vec::new(),
        }
    }
}

impl<W> Drop for UnderWay<'_, W> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            *place.lock() = Kept::Nothing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new<'r>(replies: &'r Replies<u8>, xid: u32, call: &[u8]) -> UnderWay<'r, u8> {
        match replies.find(xid, call, &Arc::new(0)) {
            Found::New(under_way) => under_way,
            _ => panic!("it is new"),
        }
    }

    #[test]
    fn a_duplicate_is_answered_from_the_first() {
        let replies = Replies::new();
        let first = new(&replies, 7, b"remove");
        let duplicate = replies.find(7, b"remove", &Arc::new(1));
        assert!(matches!(duplicate, Found::IsUnderWay));
        let waiting = first.finish(b"removed");
        assert_eq!(
            waiting.iter().map(|sender| **sender).collect::<Vec<_>>(),
            [1]
        );
        let Found::Done(reply) = replies.find(7, b"remove", &Arc::new(2)) else {
            panic!("it was carried out");
        };
        assert_eq!(&*reply, b"removed");
        // The same id with other bytes is another call.
        new(&replies, 7, b"create").finish(b"created");
        new(&replies, 7, b"remove");
    }

    #[test]
    fn a_call_that_failed_by_a_bug_leaves_nothing() {
        let replies = Replies::new();
        drop(new(&replies, 7, b"remove"));
        new(&replies, 7, b"remove");
    }

    #[test]
    fn a_place_in_use_is_left_alone() {
        let replies = Replies::new();
        let first = new(&replies, 7, b"first");
        let neighbour = (8..).find(|xid| place_of(*xid) == place_of(7));
        let second = new(&replies, neighbour.unwrap(), b"second");
        assert!(second.finish(b"").is_empty());
        first.finish(b"done");
        let first = replies.find(7, b"first", &Arc::new(0));
        assert!(matches!(first, Found::Done(_)));
    }

    #[test]
    fn the_last_calls_are_kept_however_a_client_counts() {
        for step in [1, 2, 16, 256, 4096, 65536, 0x0100_0001] {
            let replies = Replies::new();
            let xids: Vec<u32> = (0..200).map(|number| number * step).collect();
            for xid in &xids {
                new(&replies, *xid, b"call").finish(b"reply");
            }
            let is_kept = |xid: &&u32| {
                let found = replies.find(**xid, b"call", &Arc::new(0));
                matches!(found, Found::Done(_))
            };
            // The last first: asking for one that is not kept takes its place.
            let kept = xids.iter().rev().filter(is_kept).count();
            assert!(kept >= 160, "by {step}: {kept}");
        }
    }
}
