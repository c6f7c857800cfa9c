//! Total little- and big-endian access to byte slices.
//!
//! A read outside the slice gives 0 and a write outside it does nothing, so no field access can
//! panic. Views check their size once, when they are made; this is the belt to those braces.

/// An integer with a fixed on-disk width.
pub(crate) trait Field: Sized {
    fn get_le(bytes: &[u8], offset: usize) -> Self;
    fn put_le(bytes: &mut [u8], offset: usize, value: Self);
    fn get_be(bytes: &[u8], offset: usize) -> Self;
    fn put_be(bytes: &mut [u8], offset: usize, value: Self);
}

macro_rules! impl_field {
    ($($ty:ty),*) => {$(
        impl Field for $ty {
            #[inline]
            fn get_le(bytes: &[u8], offset: usize) -> Self {
                array(bytes, offset).map_or(0, Self::from_le_bytes)
            }
            #[inline]
            fn put_le(bytes: &mut [u8], offset: usize, value: Self) {
                put_bytes(bytes, offset, &value.to_le_bytes());
            }
            #[inline]
            fn get_be(bytes: &[u8], offset: usize) -> Self {
                array(bytes, offset).map_or(0, Self::from_be_bytes)
            }
            #[inline]
            fn put_be(bytes: &mut [u8], offset: usize, value: Self) {
                put_bytes(bytes, offset, &value.to_be_bytes());
            }
        }
    )*};
}
impl_field!(u8, u16, u32, u64, i16, i32);

#[inline]
fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk::<N>().copied()
}

/// The `N` bytes at `offset`, or zeroes where the slice ends earlier.
#[inline]
pub(crate) fn get_array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    array(bytes, offset).unwrap_or([0; N])
}

/// Copies `value` to `offset`; does nothing when it does not fit.
#[inline]
pub(crate) fn put_bytes(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(to) = bytes
        .get_mut(offset..)
        .and_then(|b| b.get_mut(..value.len()))
    {
        to.copy_from_slice(value);
    }
}

/// Fills `range` with zeroes, clipped to the slice.
#[inline]
pub(crate) fn zero(bytes: &mut [u8], range: core::ops::Range<usize>) {
    let end = range.end.min(bytes.len());
    if let Some(part) = bytes.get_mut(range.start.min(end)..end) {
        part.fill(0);
    }
}

/// The part of `bytes` inside `range`, clipped to what is there.
#[inline]
pub(crate) fn clip(bytes: &[u8], range: core::ops::Range<usize>) -> &[u8] {
    let end = range.end.min(bytes.len());
    bytes.get(range.start.min(end)..end).unwrap_or(&[])
}

#[inline]
pub(crate) fn le16(bytes: &[u8], offset: usize) -> u16 {
    u16::get_le(bytes, offset)
}
#[inline]
pub(crate) fn le32(bytes: &[u8], offset: usize) -> u32 {
    u32::get_le(bytes, offset)
}
#[inline]
pub(crate) fn be32(bytes: &[u8], offset: usize) -> u32 {
    u32::get_be(bytes, offset)
}
#[inline]
pub(crate) fn put_le16(bytes: &mut [u8], offset: usize, value: u16) {
    u16::put_le(bytes, offset, value);
}
#[inline]
pub(crate) fn put_le32(bytes: &mut [u8], offset: usize, value: u32) {
    u32::put_le(bytes, offset, value);
}
#[inline]
pub(crate) fn put_be32(bytes: &mut [u8], offset: usize, value: u32) {
    u32::put_be(bytes, offset, value);
}

/// Getters and setters of plain fields of a view (`struct View<B> { bytes: B }`), or, with
/// `owned`, of a struct that owns its bytes. One line a field: doc, offset, type, getter, setter.
macro_rules! fields {
    (view $view:ident $read:ident $write:ident { $( $(#[$doc:meta])* $off:literal $ty:ident $get:ident $set:ident; )* }) => {
        impl<B: AsRef<[u8]>> $view<B> { $(
            $(#[$doc])*
            #[inline]
            pub fn $get(&self) -> $ty { <$ty as crate::bytes::Field>::$read(self.bytes.as_ref(), $off) }
        )* }
        impl<B: AsRef<[u8]> + AsMut<[u8]>> $view<B> { $(
            #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
            #[inline]
            pub fn $set(&mut self, value: $ty) { <$ty as crate::bytes::Field>::$write(self.bytes.as_mut(), $off, value); }
        )* }
    };
    (owned $view:ident $read:ident $write:ident { $( $(#[$doc:meta])* $off:literal $ty:ident $get:ident $set:ident; )* }) => {
        impl $view { $(
            $(#[$doc])*
            #[inline]
            pub fn $get(&self) -> $ty { <$ty as crate::bytes::Field>::$read(&self.bytes[..], $off) }
            #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
            #[inline]
            pub fn $set(&mut self, value: $ty) { <$ty as crate::bytes::Field>::$write(&mut self.bytes[..], $off, value); }
        )* }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_outside_is_harmless() {
        let mut b = [1u8, 2, 3];
        assert_eq!(le16(&b, 0), 0x0201);
        assert_eq!(le16(&b, 2), 0);
        assert_eq!(le32(&b, usize::MAX), 0);
        put_le16(&mut b, 2, 9);
        put_be32(&mut b, usize::MAX, 9);
        assert_eq!(b, [1, 2, 3]);
        put_le16(&mut b, 1, 0x0908);
        assert_eq!(b, [1, 8, 9]);
        zero(&mut b, 2..100);
        assert_eq!(clip(&b, 1..50), [8, 0]);
        assert_eq!(clip(&b, 7..9), [0u8; 0]);
    }
}
