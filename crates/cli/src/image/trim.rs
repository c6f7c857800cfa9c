//! `finefs trim`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use finefs_image::Access;

use super::session::{Context, Session, print_json};
use super::{Where, text};
use crate::CliResult;
use crate::output::print;

/// Give the storage below the free space of images back, as fstrim(8)
///
/// An image file becomes sparse where nothing is in it; a block device is told.
#[derive(Args)]
pub(crate) struct Trim {
    /// The images
    #[arg(value_name = "IMAGE", required = true)]
    operands: Vec<OsString>,
    /// Leave runs of free space alone that are shorter: bytes, or with k, m, g
    #[arg(short, long, value_name = "SIZE", default_value = "0", value_parser = crate::size::bytes)]
    minimum: u64,
    /// Print how much it was
    #[arg(short, long)]
    verbose: bool,
    /// As JSON, for scripts: bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

impl Trim {
    pub(crate) fn run(self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs trim", &self.place);
        let mut sums = Vec::new();
        for operand in &self.operands {
            let trimmed = self.trim(&mut session, operand);
            if let Some(bytes) = session.check(trimmed) {
                let image = operand.display().to_string();
                if self.verbose && !self.json {
                    let size = text::human(bytes);
                    print(&format!("{image}: {size} ({bytes} bytes) trimmed\n"))?;
                }
                sums.push(serde_json::json!({ "image": image, "bytes": bytes }));
            }
        }
        if self.json {
            print_json(&sums)?;
        }
        session.end()
    }

    fn trim(&self, session: &mut Session, operand: &OsString) -> finefs_image::Result<u64> {
        let address = session.address(operand)?;
        let fs = session.images.open(&address, Access::Write)?;
        fs.trim(self.minimum).map_err(|error| {
            finefs_image::Error::inside(address.image.display().to_string(), &error)
        })
    }
}
