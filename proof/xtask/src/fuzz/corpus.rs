//! The kept inputs of the targets: `proof/fuzz/corpus` has one archive for each target, which
//! `proof/fuzz/tests/corpus.rs` reads. The same inputs are the same bytes.
//!
//! libFuzzer works on files: [`unpack`] makes them, [`pack`] puts them back.

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Inputs by their names: digests, where libFuzzer found them.
pub type Inputs = BTreeMap<String, Vec<u8>>;

/// The archive of a target.
fn archive(target: &str) -> PathBuf {
    let name = format!("{target}.tar.gz");
    super::fuzz_dir().join("corpus").join(name)
}

/// The kept inputs of `target`; none where it has no archive yet.
pub fn kept(target: &str) -> Result<Inputs> {
    let path = archive(target);
    if !path.exists() {
        return Ok(Inputs::new());
    }
    let file = fs::File::open(&path)?;
    unpacked(file).with_context(|| path.display().to_string())
}

/// Makes the directory `into` anew, with the kept inputs of `target` as files.
pub fn unpack(target: &str, into: &Path) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    fs::create_dir_all(into)?;
    for (name, bytes) in kept(target)? {
        fs::write(into.join(name), bytes)?;
    }
    Ok(())
}

/// Makes `inputs` the kept ones of `target`.
pub fn pack(target: &str, inputs: &Inputs) -> Result<()> {
    let path = archive(target);
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::write(&path, packed(inputs)?).with_context(|| path.display().to_string())
}

/// Keeps the input in `file` too, under the file's name.
pub fn add(target: &str, file: &Path) -> Result<()> {
    let name = file.file_name().context("the input has no name")?;
    let name = name.to_string_lossy().into_owned();
    let mut inputs = kept(target)?;
    inputs.insert(
        name,
        fs::read(file).with_context(|| file.display().to_string())?,
    );
    pack(target, &inputs)
}

/// The files of a directory.
pub fn files(directory: &Path) -> Result<Inputs> {
    let mut inputs = Inputs::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        inputs.insert(name, fs::read(entry.path())?);
    }
    Ok(inputs)
}

/// A compressed tar archive in which nothing depends on time, user or machine.
fn packed(inputs: &Inputs) -> Result<Vec<u8>> {
    let packer = GzEncoder::new(Vec::new(), Compression::best());
    let mut archive = tar::Builder::new(packer);
    for (name, bytes) in inputs {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &bytes[..])?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn unpacked(archive: impl Read) -> Result<Inputs> {
    let mut inputs = Inputs::new();
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        ensure!(!name.contains('/'), "{name}: not the name of an input");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        inputs.insert(name, bytes);
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_inputs_come_back_and_pack_to_the_same_bytes() {
        let digest = "0123456789abcdef0123456789abcdef01234567".to_owned();
        let inputs = Inputs::from([
            ("named".to_owned(), vec![1; 700]),
            ("empty".to_owned(), Vec::new()),
            (digest, (0..=255).collect()),
        ]);
        let archive = packed(&inputs).unwrap();
        let back = unpacked(&archive[..]).unwrap();
        assert_eq!(back, inputs);
        assert_eq!(packed(&back).unwrap(), archive);
    }
}
