//! VMware's flat disks: a descriptor, which is a text, and a raw file beside it.
//!
//! # References
//! VMware, "Virtual Disk Format 5.0".

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use finefs_block::BlockDevice;

const SECTOR_BYTES: u64 = 512;
/// No descriptor is longer.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// The file with the data of the disk with this descriptor.
pub fn flat_path(descriptor: &Path) -> PathBuf {
    let mut name = OsString::from(descriptor.file_stem().unwrap_or(OsStr::new("disk")));
    name.push("-flat.vmdk");
    descriptor.with_file_name(name)
}

/// The descriptor of a disk of so many bytes, whole sectors, whose data is in the file `flat`.
pub fn descriptor(length_bytes: u64, flat: &str, id: u32) -> String {
    let sectors = length_bytes / SECTOR_BYTES;
    let (heads, per_track) = (16, 63);
    let cylinders = (sectors / (heads * per_track)).min(16383);
    format!(
        "# Disk DescriptorFile\n\
         version=1\n\
         CID={id:08x}\n\
         parentCID=ffffffff\n\
         createType=\"monolithicFlat\"\n\
         \n\
         # Extent description\n\
         RW {sectors} FLAT \"{flat}\" 0\n\
         \n\
         # The Disk Data Base\n\
         #DDB\n\
         \n\
         ddb.virtualHWVersion = \"4\"\n\
         ddb.geometry.cylinders = \"{cylinders}\"\n\
         ddb.geometry.heads = \"{heads}\"\n\
         ddb.geometry.sectors = \"{per_track}\"\n\
         ddb.adapterType = \"lsilogic\"\n"
    )
}

/// The data of a descriptor: the file, the sectors in it, and those before them.
#[derive(PartialEq, Eq, Debug)]
struct Flat {
    /// RDONLY, not RW.
    is_read_only: bool,
    name: String,
    sectors: u64,
    start: u64,
}

fn parse(text: &str) -> Result<Flat, String> {
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some((key, value)) = line.split_once('=')
            && key.trim() == "parentCID"
            && !value.trim().eq_ignore_ascii_case("ffffffff")
        {
            return Err("is a VMDK over another one, which finefs does not open".to_owned());
        }
        let mut words = line.splitn(4, ' ');
        let (access, sectors, kind) = (words.next(), words.next(), words.next());
        if !matches!(access, Some("RW" | "RDONLY" | "NOACCESS")) {
            continue;
        }
        if kind != Some("FLAT") || access == Some("NOACCESS") {
            let kind = kind.unwrap_or("nothing");
            return Err(format!("is a VMDK of {kind}; only FLAT ones can be read"));
        }
        let (name, start) = words
            .next()
            .and_then(|rest| rest.strip_prefix('"')?.split_once('"'))
            .ok_or("is a VMDK whose extent has no file")?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let start = match start.trim() {
            "" => Some(0),
            text => number(text),
        };
        let (Some(sectors), Some(start)) = (sectors.and_then(number), start) else {
            return Err("is a VMDK whose extent has no size".to_owned());
        };
        let flat = Flat {
            is_read_only: access == Some("RDONLY"),
            name: name.to_owned(),
            sectors,
            start,
        };
        if found.replace(flat).is_some() {
            return Err("is a VMDK of several files; only those of one can be read".to_owned());
        }
    }
    found.ok_or_else(|| "is a VMDK descriptor without an extent".to_owned())
}

/// Where the bytes of a disk are.
pub(crate) struct Data {
    /// The descriptor forbids to write them.
    pub is_read_only: bool,
    pub path: PathBuf,
    pub start_bytes: u64,
    pub length_bytes: u64,
}

/// Of the disk whose descriptor is at `path` and open as `file`.
pub(crate) fn data(path: &Path, file: &dyn BlockDevice) -> io::Result<Data> {
    if file.len_bytes() > TEXT_BYTES_MAX {
        return Err(io::Error::other("is a VMDK descriptor that is too long"));
    }
    let mut text = vec![0; file.len_bytes() as usize];
    file.read_at(0, &mut text)?;
    let flat = parse(&String::from_utf8_lossy(&text)).map_err(io::Error::other)?;
    let beside = flat_path(path);
    if beside.file_name() != Some(OsStr::new(&flat.name)) {
        return Err(io::Error::other(format!(
            "is a VMDK with its data in {:?}; finefs opens only {:?} beside it",
            flat.name,
            beside.file_name().unwrap_or_default()
        )));
    }
    Ok(Data {
        is_read_only: flat.is_read_only,
        path: beside,
        start_bytes: flat.start.saturating_mul(SECTOR_BYTES),
        length_bytes: flat.sectors.saturating_mul(SECTOR_BYTES),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_says_where_its_data_is() {
        let flat = parse(&descriptor(8192, "a b-flat.vmdk", 7)).unwrap();
        let expected = Flat {
            is_read_only: false,
            name: "a b-flat.vmdk".to_owned(),
            sectors: 16,
            start: 0,
        };
        assert_eq!(flat, expected);
        let path = flat_path(Path::new("/x/a b.vmdk"));
        assert_eq!(path, Path::new("/x/a b-flat.vmdk"));
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "version=1\n",
            "RW 16 SPARSE \"a.vmdk\"\n",
            "RW x FLAT \"a.vmdk\" 0\n",
            "RW 16 FLAT a.vmdk 0\n",
            "RW 16 FLAT \"a\" 0\nRW 16 FLAT \"b\" 0\n",
            "parentCID=12345678\nRW 16 FLAT \"a\" 0\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
