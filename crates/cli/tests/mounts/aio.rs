//! Asynchronous I/O by Linux's io_submit(2), as libaio does it.

use std::ffi::c_ulong;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use crate::aligned::Aligned;

/// `struct iocb` of `include/uapi/linux/aio_abi.h` (of a machine with the lower byte first).
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

const IOCB_CMD_PWRITE: u16 = 1;

/// A context of io_setup(2) for one file and one request at a time.
pub struct Queue {
    context: c_ulong,
    file: File,
}

fn checked(outcome: i64) -> io::Result<i64> {
    match outcome {
        0.. => Ok(outcome),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Queue {
    pub fn new(file: File) -> io::Result<Queue> {
        let mut context: c_ulong = 0;
        // SAFETY: the kernel writes the context's number there.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) })?;
        Ok(Queue { context, file })
    }

    /// Submits a write and waits for its end; gives the number of bytes written.
    pub fn write(&mut self, bytes: &Aligned, offset: u64) -> io::Result<usize> {
        let bytes = bytes.bytes();
        let mut request = Iocb {
            opcode: IOCB_CMD_PWRITE,
            fd: self.file.as_raw_fd() as u32,
            buffer: bytes.as_ptr().addr() as u64,
            length: bytes.len() as u64,
            offset: offset as i64,
            ..Iocb::default()
        };
        let mut requests = [&raw mut request];
        let mut event = Event::default();
        // SAFETY: there is one request, and the bytes that it names are borrowed until it has
        // ended. Should the wait for it fail, the kernel only reads what it has pinned.
        checked(unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_mut_ptr())
        })?;
        let no_limit = null_mut::<libc::timespec>();
        // SAFETY: there is room for one event.
        let count = checked(unsafe {
            let (event, context) = (&raw mut event, self.context);
            libc::syscall(libc::SYS_io_getevents, context, 1, 1, event, no_limit)
        })?;
        assert_eq!(count, 1);
        match event.result {
            done @ 0.. => Ok(done as usize),
            error => Err(io::Error::from_raw_os_error(-error as i32)),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the context is ours; nothing is under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
