//! The terminal of the live view: raw mode and the alternate screen, keys, styled lines, frames.
//!
//! Like crossterm for the little that is needed here.
//!
//! The terminal is in raw mode and on its alternate screen from [`Terminal::enter`] until the
//! [`Terminal`] is dropped, whatever the reason: a key, a signal (which is an event of the loop), a
//! mount that has gone, an error of the terminal itself. A panic, of any thread, restores it before
//! it prints its message.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Take the alternate screen, hide the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal as it was.
static BEFORE: OnceLock<(File, Termios)> = OnceLock::new();
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub(super) struct Terminal {
    /// The frame on the screen.
    shown: String,
}

impl Terminal {
    /// Takes the terminal of standard input, else the controlling terminal.
    pub(super) fn enter() -> io::Result<Terminal> {
        let input = input()?;
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.make_raw();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            hook(info);
        }));
        let (input, _) = BEFORE.get_or_init(|| (input, before));
        tcsetattr(input, OptionalActions::Now, &raw)?;
        IS_OURS.store(true, Ordering::Relaxed);
        // Dropped, it restores the modes.
        let terminal = Terminal {
            shown: String::new(),
        };
        send(ENTER)?;
        Ok(terminal)
    }

    /// Its columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Shows lines from the top; sends nothing if they are on the screen.
    pub(super) fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        let frame = frame(lines);
        if frame != self.shown {
            send(&frame)?;
            self.shown = frame;
        }
        Ok(())
    }

    /// The next frame is sent even if it is the same: the terminal has another size.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// Restores the terminal, once.
fn leave() {
    if !IS_OURS.swap(false, Ordering::Relaxed) {
        return;
    }
    if let Some((input, before)) = BEFORE.get() {
        // Both fail where the terminal has hung up.
        let _ = tcsetattr(input, OptionalActions::Now, before);
        let _ = send(LEAVE);
    }
}

/// In one write: there is no end of line in it, at which standard output would divide it.
fn send(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn frame(lines: &[Line]) -> String {
    let mut frame = String::new();
    for (row, line) in (1..).zip(lines) {
        // Erased before, since after a full line that would erase its last character.
        let _ = write!(frame, "\x1b[{row}H\x1b[2K");
        for (style, text) in &line.0 {
            let _ = match style.parameters() {
                "" => write!(frame, "{text}"),
                parameters => write!(frame, "\x1b[{parameters}m{text}\x1b[m"),
            };
        }
    }
    frame
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Reversed,
    /// Reversed, bold and underlined.
    Chosen,
}

impl Style {
    /// Of ECMA-48's SGR.
    fn parameters(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Reversed => "7",
            Style::Chosen => "1;4;7",
        }
    }
}

/// A line of styled texts.
#[derive(Clone, Default, Debug)]
pub(super) struct Line(pub Vec<(Style, String)>);

impl Line {
    pub(super) fn new(style: Style, text: impl Into<String>) -> Line {
        Line(vec![(style, text.into())])
    }

    pub(super) fn plain(text: impl Into<String>) -> Line {
        Line::new(Style::Plain, text)
    }

    /// Without what a terminal would take for an order, and not wider than it.
    pub(super) fn fit(&mut self, width: usize) {
        let mut room = width;
        for (_, text) in &mut self.0 {
            let shown = text.chars().filter(|c| !c.is_control());
            *text = shown.take(room).collect();
            room -= text.chars().count();
        }
    }
}

/// A key. Ctrl-C is the character that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Char(char),
    Escape,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Any other with a sequence.
    Other,
}

/// The keys of the terminal, as they come, until it cannot be read any more.
pub(super) struct Keys {
    input: File,
    /// Read, but not taken yet.
    bytes: Vec<u8>,
}

impl Keys {
    pub(super) fn new() -> io::Result<Keys> {
        Ok(Keys {
            input: input()?,
            bytes: Vec::new(),
        })
    }
}

impl Iterator for Keys {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        loop {
            if let Some((key, length)) = key(&self.bytes) {
                self.bytes.drain(..length);
                return Some(key);
            }
            let mut chunk = [0; 64];
            match self.input.read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => self.bytes.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

fn input() -> io::Result<File> {
    if stdin().is_terminal() {
        Ok(stdin().as_fd().try_clone_to_owned()?.into())
    } else {
        File::open("/dev/tty")
    }
}

/// The first key, and how many bytes it is; none if more has to be read. An escape at the end is
/// the key of this name: terminals send sequences whole.
fn key(bytes: &[u8]) -> Option<(Key, usize)> {
    let [0x1b, b'[' | b'O', rest @ ..] = bytes else {
        // Of characters beyond ASCII come the bytes, none of which is a key of the view.
        return bytes.first().map(|byte| match byte {
            0x1b => (Key::Escape, 1),
            byte => (Key::Char(char::from(*byte)), 1),
        });
    };
    let last = rest.iter().position(|byte| matches!(byte, b'@'..=b'~'))?;
    let key = match &rest[..=last] {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"C" => Key::Right,
        b"D" => Key::Left,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"F" | b"4~" | b"8~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => Key::Other,
    };
    Some((key, last + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_however_they_arrive() {
        let typed = b"q\x1b[B\x1bOA\x1b[5~\x1b[1;5Cx\x03\x1b";
        let expected = [
            Key::Char('q'),
            Key::Down,
            Key::Up,
            Key::PageUp,
            Key::Other,
            Key::Char('x'),
            Key::Char('\x03'),
            Key::Escape,
        ];
        let mut rest = &typed[..];
        for one in expected {
            let (found, length) = key(rest).unwrap();
            assert_eq!(found, one);
            rest = &rest[length..];
        }
        assert_eq!(key(rest), None);
        for begun in ["\x1b[", "\x1b[5", "\x1bO"] {
            assert_eq!(key(begun.as_bytes()), None, "{begun:?}");
        }
    }

    #[test]
    fn a_frame_is_lines_at_their_places_with_their_styles() {
        let chosen = (Style::Chosen, "CLASS".to_owned());
        let lines = [
            Line(vec![chosen, (Style::Plain, " kind".into())]),
            Line::default(),
        ];
        let expected = "\x1b[1H\x1b[2K\x1b[1;4;7mCLASS\x1b[m kind\x1b[2H\x1b[2K";
        assert_eq!(frame(&lines), expected);
    }
}
