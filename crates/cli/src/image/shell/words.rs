//! The words of a line, in bytes, as a shell reads them: blanks between them, `'text'`, `"text"` in
//! which a backslash takes `"` and `\`, a backslash before any letter, and `#` before what is a
//! comment.

/// A word.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub text: Vec<u8>,
    /// The same where a part that was not quoted may stand for several names: what was quoted has
    /// backslashes.
    pub pattern: Option<Vec<u8>>,
}

/// Why a line cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    OpenQuote,
    /// What other shells have for pipes, files and jobs.
    Operator(char),
}

/// The last word of a line that is being written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Where it begins, with its quote.
    pub start: usize,
    /// What it says.
    pub text: Vec<u8>,
    /// The quote that is not closed.
    pub quote: Option<u8>,
}

/// Letters that a pattern has a meaning for.
const MARKS: &[u8] = b"*?[]\\";

/// Reads a line letter by letter.
#[derive(Default)]
struct Reader {
    words: Vec<Word>,
    text: Vec<u8>,
    pattern: Vec<u8>,
    has_marks: bool,
    /// Where the word begins; `None` between words.
    start: Option<usize>,
    quote: Option<u8>,
    is_escaped: bool,
}

impl Reader {
    /// Takes a letter as it is.
    fn put(&mut self, letter: u8) {
        self.text.push(letter);
        if MARKS.contains(&letter) {
            self.pattern.push(b'\\');
        }
        self.pattern.push(letter);
    }

    fn end_word(&mut self) {
        if self.start.take().is_some() {
            let pattern = std::mem::take(&mut self.pattern);
            self.words.push(Word {
                text: std::mem::take(&mut self.text),
                pattern: std::mem::take(&mut self.has_marks).then_some(pattern),
            });
        }
    }

    /// Reads all of a line; what is an operator ends it, with an error.
    fn read(&mut self, line: &[u8]) -> Result<(), Wrong> {
        for (at, &letter) in line.iter().enumerate() {
            if std::mem::take(&mut self.is_escaped) {
                if self.quote == Some(b'"') && !matches!(letter, b'"' | b'\\') {
                    self.put(b'\\');
                }
                self.put(letter);
                continue;
            }
            match (self.quote, letter) {
                (Some(quote), letter) if letter == quote => self.quote = None,
                (Some(b'"') | None, b'\\') => {
                    self.start.get_or_insert(at);
                    self.is_escaped = true;
                }
                (Some(_), letter) => self.put(letter),
                (None, b' ' | b'\t' | b'\n' | b'\r') => self.end_word(),
                (None, b'#') if self.start.is_none() => break,
                (None, b'|' | b'>' | b'<' | b';' | b'&') => {
                    return Err(Wrong::Operator(char::from(letter)));
                }
                (None, letter) => {
                    self.start.get_or_insert(at);
                    match letter {
                        b'\'' | b'"' => self.quote = Some(letter),
                        letter => {
                            self.has_marks |= matches!(letter, b'*' | b'?' | b'[');
                            self.text.push(letter);
                            self.pattern.push(letter);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The words of a line.
pub(super) fn split(line: &[u8]) -> Result<Vec<Word>, Wrong> {
    let mut reader = Reader::default();
    reader.read(line)?;
    if reader.quote.is_some() || reader.is_escaped {
        return Err(Wrong::OpenQuote);
    }
    reader.end_word();
    Ok(reader.words)
}

/// The last word of a line that goes on; an empty one behind a blank.
pub(super) fn last(line: &[u8]) -> Begun {
    let mut reader = Reader::default();
    // What would be refused is no word that could be completed.
    let _ = reader.read(line);
    Begun {
        start: reader.start.unwrap_or(line.len()),
        text: reader.text,
        quote: reader.quote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        let words = |line: &str| -> Vec<String> {
            let words = split(line.as_bytes()).unwrap().into_iter();
            words.map(|word| text(word.text)).collect()
        };
        assert_eq!(
            words(" ls  'a b'\\ \"c\\\"\\d\"  # more"),
            ["ls", "a b c\"\\d"]
        );
        assert_eq!(words("a#b '' '|'"), ["a#b", "", "|"]);
        assert!(words("# nothing").is_empty() && words("").is_empty());
        assert_eq!(split(b"\xFF\\ \x80 a").unwrap()[0].text, b"\xFF \x80");
        for (line, wrong) in [
            ("cat 'open", Wrong::OpenQuote),
            ("cat open\\", Wrong::OpenQuote),
            ("cat a | wc", Wrong::Operator('|')),
            ("cat a>b", Wrong::Operator('>')),
            ("ls; ls", Wrong::Operator(';')),
        ] {
            assert_eq!(split(line.as_bytes()), Err(wrong), "{line}");
        }
        let patterns = |line: &str| -> Vec<Option<String>> {
            let words = split(line.as_bytes()).unwrap().into_iter();
            words.map(|word| word.pattern.map(text)).collect()
        };
        assert_eq!(patterns("'*' \\? a"), [None, None, None]);
        assert_eq!(patterns("'[a]'*"), [Some("\\[a\\]*".to_owned())]);
    }

    #[test]
    fn the_last_word_of_a_line_goes_on() {
        for (line, start, text, quote) in [
            ("", 0, "", None),
            ("ls", 0, "ls", None),
            ("ls ", 3, "", None),
            ("cat a\\ b", 4, "a b", None),
            ("cd \"a b", 3, "a b", Some(b'"')),
            ("cd 'a b", 3, "a b", Some(b'\'')),
            ("cd 'a b'/c", 3, "a b/c", None),
        ] {
            let text = text.as_bytes().to_owned();
            assert_eq!(
                last(line.as_bytes()),
                Begun { start, text, quote },
                "{line}"
            );
        }
    }
}
