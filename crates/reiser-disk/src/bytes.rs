//! Little-endian numbers in byte slices. Total: bytes that are not there read as zeros, and take no
//! writing.

#[inline]
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    if let Some(there) = bytes.get(at..).and_then(|rest| rest.get(..N)) {
        array.copy_from_slice(there);
    }
    array
}

#[inline]
pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, &value.to_le_bytes());
}

#[inline]
pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_le_bytes());
}

#[inline]
pub(crate) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, &value.to_le_bytes());
}

#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(there) = bytes
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..value.len()))
    {
        there.copy_from_slice(value);
    }
}
