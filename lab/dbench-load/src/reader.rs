//! [`Reader`]: a load file that is read and understood line by line, from the beginning again and
//! again.

use crate::{Load, Operation, unreadable};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

/// The name that stands for the client that replays.
const ANY_CLIENT: &str = "client1";

/// Reads a load file for one client. Its paths are the client's own.
///
/// ```
/// use finefs_dbench_load::{OperationKind, Reader};
/// # let dir = std::env::temp_dir().join(format!("finefs-dbench-load-{}", std::process::id()));
/// # std::fs::write(&dir, "Unlink \"\\clients\\client1\\a\" 0x16 NT_STATUS_OK\n").unwrap();
/// # let file = dir.as_path();
/// let mut reader = Reader::open(file, "client7").unwrap();
/// let operation = reader.next_operation().unwrap().unwrap();
/// assert_eq!(operation.kind, OperationKind::Unlink);
/// assert_eq!(reader.paths()[operation.paths[0] as usize], "clients/client7/a");
/// assert_eq!(reader.next_operation(), Ok(None));
/// reader.rewind().unwrap();
/// assert!(reader.next_operation().unwrap().is_some());
/// # std::fs::remove_file(file).unwrap();
/// ```
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    client: String,
    line: String,
    number: u32,
    /// Has the paths that were met so far, and no operations.
    load: Load,
    known: HashMap<String, u32>,
}

impl Reader {
    /// Opens the file; `client` is the name that paths have in place of `client1`. The error names
    /// the file.
    pub fn open(path: &Path, client: &str) -> Result<Reader, String> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        Ok(Reader {
            file: BufReader::new(file),
            path: path.to_owned(),
            client: client.to_owned(),
            line: String::new(),
            number: 0,
            load: Load::default(),
            known: HashMap::new(),
        })
    }

    /// The next line that says something; none at the file's end. The error names the file and the
    /// line.
    pub fn next_operation(&mut self) -> Result<Option<Operation>, String> {
        loop {
            self.line.clear();
            let length = self.file.read_line(&mut self.line);
            if length.map_err(|error| unreadable(&self.path, &error))? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let line = self.line.replace(ANY_CLIENT, &self.client);
            let parsed = self.load.parse_line(&line, self.number, &mut self.known);
            let parsed = parsed
                .map_err(|what| format!("{}: line {}: {what}", self.path.display(), self.number))?;
            if parsed.is_some() {
                return Ok(parsed);
            }
        }
    }

    /// All paths of the lines so far, with `/`, relative: [`Operation::paths`] are places in it.
    pub fn paths(&self) -> &[String] {
        &self.load.paths
    }

    /// Goes back to the first line. The error names the file.
    pub fn rewind(&mut self) -> Result<(), String> {
        self.number = 0;
        let rewound = self.file.rewind();
        rewound.map_err(|error| unreadable(&self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this content, which goes with it.
    struct Written(PathBuf);

    impl Written {
        fn new(name: &str, text: &str) -> Written {
            let name = format!("finefs-dbench-load.{}.{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            Written(path)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn lines_are_what_the_whole_file_says() {
        let text = "# a comment\n\
            NTCreateX \"\\clients\\client1\\a b\" 0x40 0x2 17 NT_STATUS_OK\n\
            \n\
            0.25 WriteX 17 65534 1 1 NT_STATUS_OK\r\n\
            Rename \"\\clients\\client1\\a b\" \"\\c\" NT_STATUS_OK";
        let file = Written::new("whole", text);
        let whole = Load::read(&file.0).unwrap();
        let mut reader = Reader::open(&file.0, "client1").unwrap();
        for _ in 0..2 {
            let lines = std::iter::from_fn(|| reader.next_operation().unwrap());
            assert_eq!(lines.collect::<Vec<_>>(), whole.operations);
            assert_eq!(reader.paths(), whole.paths);
            reader.rewind().unwrap();
        }
    }

    #[test]
    fn mistakes_are_told_where_they_are_met() {
        let file = Written::new("wrong", "Close 1 NT_STATUS_OK\nFly 1 NT_STATUS_OK\n");
        let mut reader = Reader::open(&file.0, "client1").unwrap();
        assert!(reader.next_operation().unwrap().is_some());
        let error = reader.next_operation().unwrap_err();
        assert!(
            error.ends_with("line 2: unknown operation \"Fly\""),
            "{error}"
        );
        let error = Reader::open("/nonexistent".as_ref(), "client1").unwrap_err();
        assert!(error.starts_with("load file /nonexistent: "), "{error}");
    }
}
