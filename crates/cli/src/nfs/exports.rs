//! What is to be served: `IMAGE`, `--memory`, or `--export` once for each file system.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use finefs_nfs::{ExportOptions, Network, Squash};

use crate::CliResult;
use crate::target::disk_of;

/// The options that there are.
const OPTIONS: &str =
    "ro, rw, sync, async, secure, insecure, clients=CIDR and squash=root|all|none";

/// A file system that is to be served.
#[derive(Clone, Debug)]
pub(super) struct Export {
    /// By which clients mount it: `/`, or `/NAME`.
    pub name: String,
    /// `None` for memory.
    pub image: Option<PathBuf>,
    /// Where in it the partition starts that was named.
    pub start_bytes: Option<u64>,
    pub options: ExportOptions,
}

impl FromStr for Export {
    type Err = String;

    /// `NAME=IMAGE,OPTION,...`. Options are taken from the end, as a path may have commas.
    fn from_str(text: &str) -> Result<Export, String> {
        let (name, rest) = text.split_once('=').ok_or("give NAME=IMAGE")?;
        let name = name.trim_start_matches('/');
        let is_sound = !name.split('/').any(|part| part == "." || part == "..");
        if name.is_empty() || !is_sound || name.ends_with('/') || name.contains("//") {
            return Err(format!("{name:?} is no name for an export"));
        }
        let mut options = ExportOptions::default();
        let mut image = rest;
        while let Some((before, word)) = image.rsplit_once(',') {
            if !apply(&mut options, word)? {
                break;
            }
            image = before;
        }
        if let Some(word) = unknown_option(image) {
            return Err(format!("no option {word:?}; there are {OPTIONS}"));
        }
        if image.is_empty() {
            return Err("give NAME=IMAGE".into());
        }
        // They were taken from the last to the first.
        options.clients.reverse();
        Ok(Export {
            name: format!("/{name}"),
            image: Some(image.into()),
            start_bytes: None,
            options,
        })
    }
}

impl Export {
    /// Finds the image, and the partition that is named, while a relative path means what the user
    /// meant.
    pub(super) fn locate(&mut self) -> CliResult<()> {
        if let Some(image) = &mut self.image {
            (*image, self.start_bytes) = disk_of(image)?;
        }
        Ok(())
    }
}

/// What is no option, where the path before it and other options is there, and the whole is not.
fn unknown_option(image: &str) -> Option<&str> {
    let is_there = |path: &str| finefs_disk::is_url(path.as_ref()) || Path::new(path).exists();
    let (mut rest, mut unknown) = (image, None);
    while !is_there(rest) {
        let (before, word) = rest.rsplit_once(',')?;
        if !apply(&mut ExportOptions::default(), word).unwrap_or(false) {
            unknown = Some(word);
        }
        rest = before;
    }
    unknown
}

/// Applies an option of exports(5); false when it is none.
fn apply(options: &mut ExportOptions, word: &str) -> Result<bool, String> {
    match word.split_once('=') {
        None => match word {
            "ro" => options.is_read_only = true,
            "rw" => options.is_read_only = false,
            "sync" => options.is_async = false,
            "async" => options.is_async = true,
            "secure" => options.needs_reserved_port = true,
            "insecure" => options.needs_reserved_port = false,
            _ => return Ok(false),
        },
        Some(("clients", network)) => {
            let network = network.parse::<Network>();
            let network = network.map_err(|error| format!("{word}: {error}"))?;
            options.clients.push(network);
        }
        Some(("squash", whom)) => {
            options.squash = match whom {
                "root" => Squash::Root,
                "all" => Squash::All,
                "none" => Squash::None,
                _ => return Err(format!("{word}: give root, all or none")),
            }
        }
        Some(_) => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_a_name_an_image_and_options() {
        let export: Export = "data=/a,b.img,ro,clients=192.0.2.0/24,clients=::1,squash=all"
            .parse()
            .unwrap();
        assert_eq!(export.name, "/data");
        assert_eq!(export.image.unwrap(), PathBuf::from("/a,b.img"));
        assert!(export.options.is_read_only && !export.options.needs_reserved_port);
        assert_eq!(export.options.squash, Squash::All);
        assert_eq!(export.options.clients[0].to_string(), "192.0.2.0/24");
        assert_eq!(export.options.clients.len(), 2);
        let plain: Export = "/a/b=x=y.img".parse().unwrap();
        assert_eq!(plain.name, "/a/b");
        assert_eq!(plain.image.unwrap(), PathBuf::from("x=y.img"));
        assert_eq!(plain.options.squash, Squash::Root);
        for wrong in [
            "x.img",
            "=x.img",
            "a=",
            "../a=x",
            "a=x,squash=some",
            "a=x,clients=here",
        ] {
            assert!(wrong.parse::<Export>().is_err(), "{wrong}");
        }
    }
}
