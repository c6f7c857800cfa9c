//! Device numbers in `i_block`: 16 bits in the first word while both halves are below 256, else
//! 32 bits in the second word.

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNo {
    /// The major number, at most 12 bits.
    pub major: u32,
    /// The minor number, at most 20 bits.
    pub minor: u32,
}

impl DeviceNo {
    /// Decodes the first two words of `i_block`.
    pub fn decode(first: u32, second: u32) -> DeviceNo {
        if first != 0 {
            DeviceNo {
                major: (first >> 8) & 0xff,
                minor: first & 0xff,
            }
        } else {
            DeviceNo {
                major: (second >> 8) & 0xfff,
                minor: (second & 0xff) | ((second >> 12) & 0xf_ff00),
            }
        }
    }

    /// Encodes into the first two words of `i_block`; `None` when the number is too large.
    pub fn encode(self) -> Option<(u32, u32)> {
        let DeviceNo { major, minor } = self;
        if major > 0xfff || minor > 0xf_ffff {
            None
        } else if major < 256 && minor < 256 {
            Some(((major << 8) | minor, 0))
        } else {
            Some((0, (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for (major, minor, first, second) in [
            (8, 1, 0x801, 0),
            (0, 0, 0, 0),
            (8, 256, 0, 0x10_0800),
            (4095, 0xf_ffff, 0, 0xffff_ffff),
            (259, 3, 0, 0x1_0303),
        ] {
            let d = DeviceNo { major, minor };
            assert_eq!(d.encode(), Some((first, second)));
            assert_eq!(DeviceNo::decode(first, second), d);
        }
        assert_eq!(
            DeviceNo {
                major: 4096,
                minor: 0
            }
            .encode(),
            None
        );
        assert_eq!(
            DeviceNo {
                major: 0,
                minor: 1 << 20
            }
            .encode(),
            None
        );
    }
}
