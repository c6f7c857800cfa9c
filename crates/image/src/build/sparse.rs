//! Where the data of files with holes is in an archive, as GNU tar has it: lists of pairs of offset
//! and length.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use super::content::Segment;

/// Longest list of the data of one file that is read, in bytes.
const MAP_BYTES_MAX: u64 = 64 << 20;

/// The most digits of a number of 64 bits.
const DIGITS_MAX: usize = 20;

const TAR_BLOCK: u64 = 512;

/// What is wrong with such a list.
const DAMAGED: &str = "its list of data and holes is damaged";

/// Where parts of a file are that lie one behind the other in the archive.
pub(super) fn place(
    pairs: impl Iterator<Item = (u64, u64)>,
    start: u64,
    end: u64,
    size: u64,
) -> Result<Vec<Segment>, String> {
    let mut segments: Vec<Segment> = Vec::new();
    let (mut at, mut last) = (start, 0);
    for (offset, length) in pairs.filter(|pair| pair.1 > 0) {
        let stop = offset.checked_add(length).filter(|stop| *stop <= size);
        let next = at.checked_add(length).filter(|next| *next <= end);
        let (Some(stop), Some(next)) = (stop.filter(|_| offset >= last), next) else {
            return Err(DAMAGED.into());
        };
        segments.push(Segment { offset, at, length });
        (at, last) = (next, stop);
    }
    Ok(segments)
}

/// The list that begins the data in version 1.0: decimal numbers, a line each, the first of them
/// how many pairs follow; then zeros to the end of the block. Gives the numbers of all pairs, and
/// where the data begins.
pub(super) fn read_map(file: &File, at: u64, stored: u64) -> Result<(Vec<u64>, u64), String> {
    let mut numbers: Vec<u64> = Vec::new();
    let mut wanted = None;
    let mut line = Vec::with_capacity(DIGITS_MAX);
    let mut length = 0;
    while length + TAR_BLOCK <= stored && length < MAP_BYTES_MAX {
        let mut block = [0; TAR_BLOCK as usize];
        let read = file.read_exact_at(&mut block, at + length);
        read.map_err(|_| DAMAGED)?;
        length += TAR_BLOCK;
        for byte in block {
            if byte != b'\n' {
                if line.len() == DIGITS_MAX {
                    return Err(DAMAGED.into());
                }
                line.push(byte);
                continue;
            }
            let number = number(&line).ok_or(DAMAGED)?;
            line.clear();
            match wanted {
                None => wanted = Some(number.checked_mul(2).ok_or(DAMAGED)?),
                Some(_) => numbers.push(number),
            }
            if wanted == Some(numbers.len() as u64) {
                return Ok((numbers, at + length));
            }
        }
    }
    Err(DAMAGED.into())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The list of GNU tar's own format, in the header and in blocks behind it, and where the data
/// begins.
pub(super) fn old_map(
    file: &File,
    header: &Header,
    mut at: u64,
) -> Result<(Vec<(u64, u64)>, u64), String> {
    let gnu = header.as_gnu().ok_or(DAMAGED)?;
    let mut pairs = Vec::new();
    let mut note = |parts: &[GnuSparseHeader]| {
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let pair = part
                .offset()
                .and_then(|offset| Ok((offset, part.length()?)));
            pairs.push(pair.map_err(|_| DAMAGED)?);
        }
        Ok::<(), String>(())
    };
    note(&gnu.sparse)?;
    let mut goes_on = gnu.is_extended();
    while goes_on {
        let mut more = GnuExtSparseHeader::new();
        let read = file.read_exact_at(more.as_mut_bytes(), at);
        read.map_err(|_| DAMAGED)?;
        at += TAR_BLOCK;
        note(&more.sparse)?;
        goes_on = more.is_extended();
    }
    Ok((pairs, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lists_of_holes_are_refused() {
        assert!(place([(0, 10), (5, 10)].into_iter(), 0, 100, 100).is_err());
        assert!(place([(0, 101)].into_iter(), 0, 1000, 100).is_err());
        assert!(place([(0, 60), (60, 40)].into_iter(), 10, 100, 100).is_err());
        assert!(place([(u64::MAX, 2)].into_iter(), 0, u64::MAX, u64::MAX).is_err());
        let good = place([(0, 10), (50, 5), (100, 0)].into_iter(), 512, 1024, 100).unwrap();
        assert_eq!(good[1].at, 522);
    }

    #[test]
    fn lists_before_the_data_are_read_by_lines() {
        let file = tempfile::tempfile().unwrap();
        let read = |text: &[u8]| {
            let mut bytes = text.to_vec();
            bytes.resize(text.len().next_multiple_of(512) + 512, 0);
            file.set_len(0).unwrap();
            file.write_all_at(&bytes, 512).unwrap();
            read_map(&file, 512, bytes.len() as u64)
        };
        assert_eq!(read(b"1\n512\n7\n"), Ok((vec![512, 7], 1024)));
        // Over the end of a block.
        let many = format!("200\n{}", "12345\n".repeat(400));
        let (numbers, at) = read(many.as_bytes()).unwrap();
        assert_eq!((numbers, at), (vec![12345; 400], 512 + 2560));
        let most = format!("1\n0\n{}\n", u64::MAX);
        assert_eq!(read(most.as_bytes()), Ok((vec![0, u64::MAX], 1024)));
        let long = format!("{}1\n0\n7\n", "0".repeat(20));
        for bad in [&b"1\n512\n"[..], b"x\n", b"1\n\n7\n", long.as_bytes()] {
            assert_eq!(read(bad), Err(DAMAGED.into()), "{bad:?}");
        }
        assert_eq!(read(&vec![b'1'; 1 << 20]), Err(DAMAGED.into()));
    }
}
