//! The bounds and access checks that every device makes first.

use std::io;

/// Fails unless `length_bytes` from `offset_bytes` on lie within `device_bytes`.
pub fn check(device_bytes: u64, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    match offset_bytes.checked_add(length_bytes) {
        Some(end) if end <= device_bytes => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{length_bytes} bytes at offset {offset_bytes} lie past the end of the device \
                 ({device_bytes} bytes)"
            ),
        )),
    }
}

/// The error of a write to a read-only device.
pub fn read_only() -> io::Error {
    io::Error::from_raw_os_error(libc::EROFS)
}
