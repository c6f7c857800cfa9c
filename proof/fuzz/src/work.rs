//! Operations on a mounted image, as bytes say.
//!
//! Unlike the generator of the testkit, this one takes every choice from the input, so that a
//! fuzzer can see what each byte does.

use finefs_namespace::{
    AllocateMode, Caller, Error, FileKind, Ino, Namespace, RenameMode, SetAttributes, XattrMode,
};

/// Inodes that operations can name.
const KNOWN_MAX: usize = 64;
const OPERATIONS_MAX: usize = 200;

struct Worker<'n> {
    namespace: &'n Namespace,
    caller: Caller,
    known: Vec<Ino>,
}

/// Runs operations of five bytes each; their errors are no matter.
pub fn work(namespace: &Namespace, bytes: &[u8]) {
    let mut worker = Worker {
        namespace,
        caller: Caller::root(),
        known: vec![namespace.root()],
    };
    worker.learn(namespace.root());
    for operation in bytes.chunks_exact(5).take(OPERATIONS_MAX) {
        let [code, a, b, c, d] = *operation else {
            continue;
        };
        let _ = worker.step(code, a, b, c, d);
    }
}

/// A name: short ones that meet each other, and long ones that fill directories.
fn name(choice: u8) -> Vec<u8> {
    match choice & 0xc0 {
        0 | 0x40 => vec![b'a' + (choice & 15)],
        0x80 => format!("f{}", choice & 63).into_bytes(),
        _ => vec![b'x' + choice % 3; 60 + 3 * usize::from(choice & 63)],
    }
}

impl Worker<'_> {
    fn ino(&self, choice: u8) -> Ino {
        self.known[usize::from(choice) % self.known.len()]
    }

    fn know(&mut self, ino: Ino) {
        if self.known.len() < KNOWN_MAX && !self.known.contains(&ino) {
            self.known.push(ino);
        }
    }

    /// Gets to know what is in a directory.
    fn learn(&mut self, dir: Ino) {
        let mut found = Vec::new();
        let _ = self.namespace.read_directory(dir, 0, &mut |entry| {
            found.push(entry.ino);
            found.len() < KNOWN_MAX
        });
        for ino in found {
            self.know(ino);
        }
    }

    fn step(&mut self, code: u8, a: u8, b: u8, c: u8, d: u8) -> Result<(), Error> {
        let (fs, caller) = (self.namespace, self.caller.clone());
        let ino = self.ino(a);
        let name = &name(b)[..];
        // Offsets near the start, near what block maps have as limits, and far out.
        let near = u64::from(c) * 300 + u64::from(d);
        let offset = match d & 7 {
            6 => near << 8,
            7 => near << u32::from(c % 48),
            _ => near,
        };
        let length = 1 + usize::from(b) * usize::from(1 + (c & 31));
        match code % 24 {
            0 => {
                let made = fs.create_file(&caller, ino, name, 0o644)?;
                self.know(made.ino);
            }
            1 => {
                let made = fs.make_directory(&caller, ino, name, 0o755)?;
                self.know(made.ino);
            }
            2 => {
                let target = vec![b't'; 1 + usize::from(c) * usize::from(1 + (d & 3))];
                let made = fs.make_symlink(&caller, ino, name, &target)?;
                self.know(made.ino);
            }
            3 => {
                let kind =
                    [FileKind::Fifo, FileKind::CharDevice, FileKind::Socket][usize::from(c % 3)];
                fs.make_node(&caller, ino, name, kind, 0o600, u64::from(d))?;
            }
            4 => drop(fs.make_link(&caller, self.ino(c), ino, name)?),
            5 | 6 => fs.remove_file(&caller, ino, name)?,
            7 => fs.remove_directory(&caller, ino, name)?,
            8 => {
                let mode = [
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::Whiteout,
                ];
                let to = self::name(d);
                let mode = mode[usize::from(code / 24 % 4)];
                fs.rename(&caller, (ino, name), (self.ino(c), &to), mode)?;
            }
            9..=11 => drop(fs.write(ino, offset, &vec![b; length])?),
            12 => drop(fs.append(ino, &vec![d; length])?),
            13 => {
                let change = SetAttributes {
                    size_bytes: Some(offset),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&caller, ino, &change)?;
            }
            14 => {
                let change = SetAttributes {
                    permissions: Some(u32::from(b)),
                    uid: Some(u32::from(c) << 12),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&caller, ino, &change)?;
            }
            15 => {
                let modes = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange,
                ];
                let mode = modes[usize::from(b & 3)];
                fs.allocate(ino, mode, offset, u64::from(b) << (code / 24))?;
            }
            16 => {
                let name = format!("user.{}", b % 8);
                let value = vec![c; usize::from(d) * usize::from(1 + (code / 24))];
                fs.set_xattr(&caller, ino, name.as_bytes(), &value, XattrMode::Set)?;
            }
            17 => {
                let name = format!("user.{}", b % 8);
                fs.remove_xattr(&caller, ino, name.as_bytes())?;
            }
            18 => {
                let found = fs.lookup(&caller, ino, name)?;
                self.know(found.ino);
            }
            19 => self.learn(ino),
            20 => drop(fs.read(ino, offset, &mut vec![0; length])?),
            21 => fs.sync()?,
            22 => {
                fs.list_xattrs(&caller, ino)?;
                let _ = (
                    fs.read_symlink(ino),
                    fs.seek_data(ino, offset),
                    fs.seek_hole(ino, offset),
                );
            }
            _ => {
                let made = fs.create_unnamed(&caller, ino, 0o600)?;
                fs.write(made.ino, near, &vec![b; length])?;
                if c & 1 == 0 {
                    fs.make_link(&caller, made.ino, ino, name)?;
                }
                fs.forget(made.ino, 1);
            }
        }
        Ok(())
    }
}
