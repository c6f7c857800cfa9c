//! `finefs dump`

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Args, Subcommand};
use finefs_block::Access;
use finefs_check::dump::{File, What, dump};

use crate::check::open;
use crate::journals::Journals;
use crate::{CliResult, Failure, output, size};

/// Show structures of an image: a group, an inode, where its blocks lie, a block, the journal
///
/// For reading it stands in debugfs's place; nothing is written, and the image may be in use.
#[derive(Args)]
pub(crate) struct Dump {
    /// The image, a file or block device; IMAGE@p2 is a partition of it
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    offset: Option<u64>,
    #[command(flatten)]
    journals: Journals,
    #[command(subcommand)]
    what: Structure,
}

#[derive(Subcommand)]
enum Structure {
    /// A block group
    Group {
        /// Its number
        number: u32,
    },
    /// An inode
    Inode {
        /// Its number, or a path that begins with a slash
        file: OsString,
    },
    /// Where the blocks of an inode lie: blocks of the file, blocks of the file system
    Extents {
        /// Its number, or a path that begins with a slash
        file: OsString,
    },
    /// The bytes of a block
    Block {
        /// Its number
        number: u64,
    },
    /// The journal's log: which blocks each transaction holds, revokes, and when it was committed
    Journal,
}

impl Dump {
    pub(crate) fn run(self) -> CliResult<()> {
        let what = match &self.what {
            Structure::Group { number } => What::Group(*number),
            Structure::Inode { file } => What::Inode(named(file)?),
            Structure::Extents { file } => What::Extents(named(file)?),
            Structure::Block { number } => What::Block(*number),
            Structure::Journal => What::Journal,
        };
        let device = open(&self.image, self.offset, Access::Inspect)?;
        let image = self.image.display();
        let journal = self.journals.open_for_part(&self.image, self.offset)?;
        let text = dump(&device, journal.as_ref(), &what);
        output::print(&text.map_err(|reason| Failure::new(format!("{image}: {reason}")))?)
    }
}

fn named(file: &OsString) -> CliResult<File> {
    if file.as_bytes().first() == Some(&b'/') {
        return Ok(File::Path(file.as_bytes().to_vec()));
    }
    let number = file.to_str().and_then(|text| text.parse().ok());
    let number = number.ok_or_else(|| {
        Failure::new(format!(
            "{}: is neither a number nor a path",
            file.display()
        ))
    })?;
    Ok(File::Number(number))
}
