//! Writes what differs between two trees as a layer of a container image.
//!
//! Laid over the first tree it makes the second: what the first alone has is taken away by
//! whiteouts, `.wh.NAME`; what is new or differs is there in whole. A file with several names has
//! all of them in the layer if it has one, since a layer cannot link to what is below it.
//!
//! # References
//! OCI Image Format Specification 1.1, "layer.md".

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archive::{self, Progress, Style, Writer};
use crate::attributes::Attributes;
use crate::compare::{Change, Options, Tree, compare};
use crate::error::{Error, Result};
use crate::packing::Packing;
use crate::tree::{Follow, SourceDir};

/// Writes a layer that makes the second of two trees of the first, to a file, as
/// [`archive::write_file`] does. Gives what archives cannot hold, a line each.
///
/// # Errors
/// What cannot be read or written.
pub fn write_file(
    place: &Path,
    trees: (&Tree, &Tree),
    options: Options,
    packing: Packing,
    progress: &Progress,
) -> Result<Vec<String>> {
    let parts = parts(trees, options)?;
    archive::write_file_by(place, &Style::of(packing), progress, &mut |writer| {
        put(&parts, trees.1, writer)
    })
}

/// The same to a stream, which messages call `shown`.
///
/// # Errors
/// As [`write_file`].
pub fn write(
    to: &mut dyn Write,
    shown: &str,
    trees: (&Tree, &Tree),
    options: Options,
    packing: Packing,
    progress: &Progress,
) -> Result<Vec<String>> {
    let parts = parts(trees, options)?;
    archive::write_by(to, shown, &Style::of(packing), progress, &mut |writer| {
        put(&parts, trees.1, writer)
    })
}

/// What a layer has at a path; a whiteout comes before what takes its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Whiteout,
    /// A file; a directory without what is in it.
    File,
    /// All of it.
    Tree,
}

type Parts = BTreeMap<PathBuf, Vec<Part>>;

fn parts((first, second): (&Tree, &Tree), options: Options) -> Result<Parts> {
    let mut parts = Parts::new();
    let mut failed = None;
    compare((first, second), options, &mut |told| match told {
        Ok(difference) => {
            let has = match &difference.change {
                Change::Removed => vec![Part::Whiteout],
                Change::Added => vec![Part::Tree],
                Change::Changed(aspects) if aspects.iter().any(|it| it.what == "type") => {
                    vec![Part::Whiteout, Part::Tree]
                }
                Change::Changed(_) => vec![Part::File],
            };
            parts.insert(difference.path, has);
        }
        Err(error) => failed = failed.take().or(Some(error)),
    });
    if let Some(error) = failed {
        return Err(error);
    }
    add_links(&mut parts, second)?;
    check_names(&parts, second)?;
    // Whoever unpacks it would make directories on the way anew.
    let paths: Vec<PathBuf> = parts.keys().cloned().collect();
    for path in paths {
        for above in path.ancestors().skip(1) {
            if !above.as_os_str().is_empty() {
                let has = parts.entry(above.to_owned());
                has.or_insert_with(|| vec![Part::File]);
            }
        }
    }
    Ok(parts)
}

/// What names of whiteouts begin with.
const WHITEOUT: &[u8] = b".wh.";

/// Refuses files whose names would be taken for whiteouts, where the layer would have such.
fn check_names(parts: &Parts, second: &Tree) -> Result<()> {
    let is_whiteout = |path: &Path| {
        let mut names = path.iter();
        names.any(|name| name.as_encoded_bytes().starts_with(WHITEOUT))
    };
    let mut found: Vec<PathBuf> = parts
        .keys()
        .filter(|path| is_whiteout(path))
        .cloned()
        .collect();
    let is_added = |path: &Path| {
        let mut above = path.ancestors();
        above.any(|above| {
            parts
                .get(above)
                .is_some_and(|has| has.contains(&Part::Tree))
        })
    };
    walk(second, &mut |path, _| {
        if is_whiteout(&path) && is_added(&path) {
            found.push(path);
        }
    })?;
    found.sort();
    found.dedup();
    let Some(first) = found.first() else {
        return Ok(());
    };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let reason =
        format!("a layer cannot have names that begin with .wh., which are whiteouts in it{more}");
    Err(Error::new(format!("/{}", first.display()), reason))
}

/// Adds the other names of files that have one in the layer.
fn add_links(parts: &mut Parts, tree: &Tree) -> Result<()> {
    for names in links(tree)?.into_values() {
        let has = |path: &Path, part: Part| parts.get(path).is_some_and(|has| has.contains(&part));
        let is_covered = |path: &PathBuf| {
            has(path, Part::File) || path.ancestors().any(|above| has(above, Part::Tree))
        };
        if !names.iter().any(is_covered) {
            continue;
        }
        let missing: Vec<&PathBuf> = names.iter().filter(|path| !is_covered(path)).collect();
        for path in missing.into_iter().cloned().collect::<Vec<_>>() {
            parts.entry(path).or_default().push(Part::File);
        }
    }
    Ok(())
}

/// The names of files that have several.
fn links(tree: &Tree) -> Result<HashMap<(u64, u64), Vec<PathBuf>>> {
    let mut links: HashMap<_, Vec<PathBuf>> = HashMap::new();
    walk(tree, &mut |path, found| {
        if !found.is_directory() && found.links > 1 {
            links.entry(found.identity()).or_default().push(path);
        }
    })?;
    for names in links.values_mut() {
        names.sort();
    }
    Ok(links)
}

/// Tells each path of a tree, and what is there.
fn walk((dir, name): &Tree, tell: &mut dyn FnMut(PathBuf, &Attributes)) -> Result<()> {
    let mut todo = vec![(Arc::clone(dir), name.clone(), PathBuf::new())];
    while let Some((dir, name, path)) = todo.pop() {
        let found = dir.attributes(&name, Follow::No)?;
        if found.is_directory() {
            let inside = enter(&dir, &name)?;
            for name in inside.names()? {
                let path = path.join(&name);
                todo.push((Arc::clone(&inside), name, path));
            }
        }
        tell(path, &found);
    }
    Ok(())
}

fn enter(dir: &Arc<dyn SourceDir>, name: &OsStr) -> Result<Arc<dyn SourceDir>> {
    match name.as_encoded_bytes() {
        b"." => Ok(Arc::clone(dir)),
        _ => dir.open_dir(name, Follow::No),
    }
}

fn put(parts: &Parts, (dir, name): &Tree, writer: &mut Writer<'_>) -> Result<()> {
    let mut open: Option<(PathBuf, Arc<dyn SourceDir>)> = None;
    for (path, has) in parts {
        let Some(last) = path.file_name() else {
            // The top itself.
            writer.file(dir, name, PathBuf::new())?;
            continue;
        };
        let above = path.parent().unwrap_or(Path::new(""));
        if !matches!(&open, Some((path, _)) if path == above) {
            let mut here = enter(dir, name)?;
            for part in above.components() {
                here = enter(&here, part.as_os_str())?;
            }
            open = Some((above.to_owned(), here));
        }
        let Some((_, here)) = &open else {
            continue;
        };
        for part in has {
            match part {
                Part::Whiteout => {
                    let mut whiteout = OsString::from(".wh.");
                    whiteout.push(last);
                    writer.empty_file(&above.join(whiteout))?;
                }
                Part::File => drop(writer.file(here, last, path.clone())?),
                Part::Tree => writer.tree(here, last, path.clone())?,
            }
        }
    }
    Ok(())
}
