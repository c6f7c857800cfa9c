//! Standard input and output that the program was started without (`finefs ls IMAGE >&-`).
//!
//! The standard library opens /dev/null in their place before `main`, and takes a write to a closed
//! descriptor for a success: what is printed would be lost without a word. So the loader calls
//! [`note`] before that, and the commands that read and write put files there that fail.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;

const INPUT: u8 = 1;
const OUTPUT: u8 = 2;

/// What was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn note() {
    for (number, bit) in [(0, INPUT), (1, OUTPUT)] {
        // SAFETY: this command has no argument, and takes any number for a descriptor.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

// SAFETY: the section has addresses of functions of this type, which are called once each before
// `main`; this one uses nothing that is not there yet.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

fn is_closed(bit: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & bit != 0
}

/// Lets reading and writing fail where nothing is open for it. Where the files for that are missing
/// it stays as it is.
pub(crate) fn let_fail() {
    if is_closed(OUTPUT)
        && let Ok(full) = OpenOptions::new().write(true).open("/dev/full")
    {
        let _ = rustix::stdio::dup2_stdout(full);
    }
    if is_closed(INPUT)
        && let Ok(directory) = File::open("/")
    {
        let _ = rustix::stdio::dup2_stdin(directory);
    }
}

/// Why standard output could not be written.
pub(crate) fn output_error(error: io::Error) -> io::Error {
    match is_closed(OUTPUT) && error.kind() == io::ErrorKind::StorageFull {
        true => Errno::BADF.into(),
        false => error,
    }
}

/// Why standard input could not be read.
pub(crate) fn input_error(error: io::Error) -> io::Error {
    match is_closed(INPUT) && error.kind() == io::ErrorKind::IsADirectory {
        true => Errno::BADF.into(),
        false => error,
    }
}

/// Standard input, whose errors say that it is closed where it is.
pub(crate) struct Input(pub io::StdinLock<'static>);

impl io::Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(input_error)
    }
}
