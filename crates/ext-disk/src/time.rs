//! Time stamps: 32 bits of seconds, and in large inodes 32 more, of which 2 extend the seconds
//! (the epoch bits) and 30 are nanoseconds. The range is 1901-12-13 to 2446-05-10.

/// Nanoseconds in a second.
pub const NSEC_PER_SEC: u32 = 1_000_000_000;

/// A time stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01, rounded down.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

impl Timestamp {
    /// The earliest that an inode can hold.
    pub const MIN: Timestamp = Timestamp {
        sec: i32::MIN as i64,
        nsec: 0,
    };
    /// The latest that an inode with extra fields can hold.
    pub const MAX: Timestamp = Timestamp {
        sec: 0x3_7fff_ffff,
        nsec: NSEC_PER_SEC - 1,
    };
    /// The latest that an inode without extra fields can hold.
    pub const MAX_SMALL: Timestamp = Timestamp {
        sec: i32::MAX as i64,
        nsec: 0,
    };

    /// Decodes the two halves; `extra` is `None` where the inode has no room for it.
    pub fn decode(seconds: u32, extra: Option<u32>) -> Timestamp {
        let base = i64::from(seconds.cast_signed());
        match extra {
            None => Timestamp { sec: base, nsec: 0 },
            Some(extra) => Timestamp {
                sec: base + (i64::from(extra & 3) << 32),
                // 30 bits hold a little more than a second has nanoseconds.
                nsec: (extra >> 2).min(NSEC_PER_SEC - 1),
            },
        }
    }

    /// Encodes into (seconds, extra), clamped to the range that `has_extra` gives.
    pub fn encode(self, has_extra: bool) -> (u32, u32) {
        let max = if has_extra {
            Timestamp::MAX
        } else {
            Timestamp::MAX_SMALL
        };
        let t = self.clamp(Timestamp::MIN, max);
        let low = (t.sec & 0xffff_ffff) as u32;
        let epoch = ((t.sec - i64::from(low.cast_signed())) >> 32) as u32 & 3;
        let nsec = t.nsec.min(NSEC_PER_SEC - 1);
        (low, if has_extra { epoch | (nsec << 2) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_encodings() {
        // From Documentation/filesystems/ext4/inodes.rst, "Inode Timestamps".
        for (sec, low, epoch) in [
            (-0x8000_0000, 0x8000_0000, 0),
            (-1, 0xffff_ffff, 0),
            (0, 0, 0),
            (0x7fff_ffff, 0x7fff_ffff, 0),
            (0x8000_0000, 0x8000_0000, 1),
            (0x1_7fff_ffff, 0x7fff_ffff, 1),
            (0x1_8000_0000, 0x8000_0000, 2),
            (0x3_7fff_ffff, 0x7fff_ffff, 3),
        ] {
            let t = Timestamp {
                sec,
                nsec: 999_999_999,
            };
            assert_eq!(t.encode(true), (low, epoch | 999_999_999 << 2), "{sec:#x}");
            assert_eq!(Timestamp::decode(low, Some(epoch | 999_999_999 << 2)), t);
        }
    }

    #[test]
    fn out_of_range_is_clamped() {
        let far = Timestamp {
            sec: i64::MAX,
            nsec: 5,
        };
        assert_eq!(far.encode(true), Timestamp::MAX.encode(true));
        assert_eq!(far.encode(false), (0x7fff_ffff, 0));
        assert_eq!(
            Timestamp {
                sec: i64::MIN,
                nsec: 5
            }
            .encode(true),
            (0x8000_0000, 0)
        );
    }
}
