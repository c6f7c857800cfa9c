//! Copies a directory of the host into an image, without mounting it and without root, and lists
//! what the image then holds:
//!
//! ```console
//! $ truncate -s 64M disk.img && mke2fs -q -t ext4 -E root_owner disk.img
//! $ cargo run -p finefs --example fill_image -- disk.img ./etc
//! ```

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use finefs::{Dir, FileKind, FileSystem, FileTimes, LastLink, Permissions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(source)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fill_image IMAGE DIRECTORY".into());
    };
    let fs = FileSystem::open_image(image)?;
    for note in fs.notes() {
        eprintln!("{note}");
    }
    copy_directory(Path::new(&source), &fs)?;
    list(&fs, Path::new("/"))?;
    // Only now is it sure that all of it is on the image.
    fs.close()?;
    Ok(())
}

/// Copies what is in `source` into `target`, each directory through a handle of its own.
fn copy_directory(source: &Path, target: &Dir) -> io::Result<()> {
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (path, name, metadata) = (entry.path(), entry.file_name(), entry.metadata()?);
        let kind = metadata.file_type();
        if kind.is_dir() {
            target.create_dir_all(&name)?;
            copy_directory(&path, &target.open_dir(&name)?)?;
        } else if kind.is_symlink() {
            target.symlink(fs::read_link(&path)?, &name)?;
        } else if kind.is_file() {
            io::copy(&mut fs::File::open(&path)?, &mut target.create(&name)?)?;
        } else {
            let kind = match () {
                () if kind.is_fifo() => FileKind::Fifo,
                () if kind.is_socket() => FileKind::Socket,
                () if kind.is_block_device() => FileKind::BlockDevice,
                () => FileKind::CharDevice,
            };
            target.make_node(&name, kind, 0o600, metadata.rdev())?;
        }
        let (uid, gid) = (metadata.uid(), metadata.gid());
        target.set_owner(&name, Some(uid), Some(gid), LastLink::Keep)?;
        if !kind.is_symlink() {
            target.set_permissions(&name, Permissions::from_mode(metadata.mode()))?;
        }
        let times = FileTimes::new()
            .accessed(metadata.accessed()?)
            .modified(metadata.modified()?);
        target.set_times(&name, times, LastLink::Keep)?;
    }
    Ok(())
}

fn list(dir: &Dir, path: &Path) -> finefs::Result<()> {
    for entry in dir.read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        println!(
            "{:06o} {:5} {:5} {:10} {}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.len(),
            entry.path().display()
        );
        if metadata.is_dir() {
            list(dir, &entry.path())?;
        }
    }
    Ok(())
}
