//! The words of find's expressions.

use std::ffi::OsString;

use super::expression::{Compared, Expression, Number};
use super::printf::Format;
use super::times::Which;
use crate::image::mode::Mode;
use crate::image::{date, text};

/// What is looked for.
#[derive(Debug)]
pub(super) struct Query {
    pub expression: Expression,
    pub depth_min: usize,
    pub depth_max: usize,
    /// Directories come after what is in them.
    pub is_depth_first: bool,
    /// Something may be removed.
    pub deletes: bool,
}

type Result<T> = std::result::Result<T, String>;

/// Nested parentheses and `!`, at most: expressions are judged by recursion.
const NESTED_MAX: usize = 200;

pub(super) fn parse(words: &[OsString]) -> Result<Query> {
    let mut parser = Parser {
        words,
        query: Query {
            expression: Expression::Constant(true),
            depth_min: 0,
            depth_max: usize::MAX,
            is_depth_first: false,
            deletes: false,
        },
        nested: 0,
    };
    if !words.is_empty() {
        parser.query.expression = parser.any()?;
    }
    if let Some(word) = parser.words.first() {
        return Err(format!("unexpected '{}'", word.display()));
    }
    let mut query = parser.query;
    if !query.expression.is_action() {
        let all = std::mem::replace(&mut query.expression, Expression::Constant(true));
        query.expression = Expression::And(Box::new(all), Box::new(Expression::Print));
    }
    Ok(query)
}

struct Parser<'a> {
    words: &'a [OsString],
    query: Query,
    nested: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.words.first().and_then(|word| word.to_str())
    }

    fn next(&mut self) -> Option<OsString> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first.clone())
    }

    fn bytes(&mut self, test: &str) -> Result<Vec<u8>> {
        let word = self.next();
        let word = word.ok_or_else(|| format!("{test} wants an argument"))?;
        Ok(word.into_encoded_bytes())
    }

    fn word(&mut self, test: &str) -> Result<String> {
        let bytes = self.bytes(test)?;
        String::from_utf8(bytes).map_err(|_| format!("{test}: not text"))
    }

    fn any(&mut self) -> Result<Expression> {
        let mut left = self.all()?;
        while matches!(self.peek(), Some("-o" | "-or")) {
            self.next();
            let right = self.all()?;
            left = Expression::Or(Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn all(&mut self) -> Result<Expression> {
        let mut left = self.one()?;
        loop {
            match self.peek() {
                None if self.words.is_empty() => return Ok(left),
                Some("-o" | "-or" | ")") => return Ok(left),
                Some("-a" | "-and") => drop(self.next()),
                _ => {}
            }
            let right = self.one()?;
            left = Expression::And(Box::new(left), Box::new(right));
        }
    }

    fn one(&mut self) -> Result<Expression> {
        let word = self.next().ok_or("the expression is not complete")?;
        let word = word.to_str().ok_or("a test is not text")?.to_owned();
        if matches!(word.as_str(), "!" | "-not" | "(") {
            self.nested += 1;
            if self.nested > NESTED_MAX {
                return Err("the expression is too deep".to_owned());
            }
            let inner = match word.as_str() {
                "(" => self.any()?,
                _ => Expression::Not(Box::new(self.one()?)),
            };
            if word == "(" && self.next().is_none_or(|word| word != ")") {
                return Err("a parenthesis is not closed".to_owned());
            }
            self.nested -= 1;
            return Ok(inner);
        }
        self.test(&word)
    }

    fn test(&mut self, word: &str) -> Result<Expression> {
        let name = |ignores_case| {
            move |pattern| Expression::Name {
                pattern,
                ignores_case,
            }
        };
        let path = |ignores_case| {
            move |pattern| Expression::Path {
                pattern,
                ignores_case,
            }
        };
        let target = |ignores_case| {
            move |pattern| Expression::Target {
                pattern,
                ignores_case,
            }
        };
        Ok(match word {
            "-name" => name(false)(self.bytes(word)?),
            "-iname" => name(true)(self.bytes(word)?),
            "-path" | "-wholename" => path(false)(self.bytes(word)?),
            "-ipath" | "-iwholename" => path(true)(self.bytes(word)?),
            "-type" => Expression::Kind(kinds(&self.word(word)?)?),
            "-size" => size(&self.word(word)?)?,
            "-perm" => permissions(&self.word(word)?)?,
            "-lname" => target(false)(self.bytes(word)?),
            "-ilname" => target(true)(self.bytes(word)?),
            "-newer" => self.newer_file(word, Which::Modified, Which::Modified)?,
            "-anewer" => self.newer_file(word, Which::Accessed, Which::Modified)?,
            "-cnewer" => self.newer_file(word, Which::Changed, Which::Modified)?,
            "-samefile" => Expression::Same(self.name(word)?),
            "-nouser" => Expression::NoUser,
            "-nogroup" => Expression::NoGroup,
            "-user" => Expression::User(self.word(word)?),
            "-group" => Expression::Group(self.word(word)?),
            "-uid" => Expression::Uid(self.number(word)?),
            "-gid" => Expression::Gid(self.number(word)?),
            "-links" => Expression::Links(self.number(word)?),
            "-inum" => Expression::Inode(self.number(word)?),
            "-mtime" => self.age(word, Which::Modified, 86_400)?,
            "-atime" => self.age(word, Which::Accessed, 86_400)?,
            "-ctime" => self.age(word, Which::Changed, 86_400)?,
            "-mmin" => self.age(word, Which::Modified, 60)?,
            "-amin" => self.age(word, Which::Accessed, 60)?,
            "-cmin" => self.age(word, Which::Changed, 60)?,
            "-empty" => Expression::Empty,
            // The image's superuser, who asks, may read and write everything.
            "-readable" | "-writable" => Expression::IsThere,
            "-executable" => Expression::Executable,
            "-true" => Expression::Constant(true),
            "-false" => Expression::Constant(false),
            "-prune" => Expression::Prune,
            "-print" => Expression::Print,
            "-print0" => Expression::Print0,
            "-printf" => Expression::Printf(Format::parse(&self.bytes(word)?)?),
            "-quit" => Expression::Quit,
            "-ls" => Expression::Ls,
            _ => return self.setting(word),
        })
    }

    /// What counts for the whole search.
    fn setting(&mut self, word: &str) -> Result<Expression> {
        match word {
            "-maxdepth" => self.query.depth_max = self.depth(word)?,
            "-mindepth" => self.query.depth_min = self.depth(word)?,
            "-depth" | "-d" => self.query.is_depth_first = true,
            "-mount" | "-xdev" | "-noleaf" => {}
            "-delete" => {
                self.query.is_depth_first = true;
                self.query.deletes = true;
                return Ok(Expression::Delete);
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                return Err(format!(
                    "{word}: no command can be run on files in an image; take -delete, -printf, or \
                     -print0 and xargs -0 finefs COMMAND"
                ));
            }
            word => return self.newer_xy(word),
        }
        Ok(Expression::Constant(true))
    }

    fn depth(&mut self, word: &str) -> Result<usize> {
        let text = self.word(word)?;
        text.parse()
            .map_err(|_| format!("{word} {text}: not a number"))
    }

    fn number(&mut self, word: &str) -> Result<Number> {
        let text = self.word(word)?;
        number(&text).ok_or_else(|| format!("{word} {text}: not a number"))
    }

    fn age(&mut self, word: &str, which: Which, unit: i64) -> Result<Expression> {
        Ok(Expression::Age {
            which,
            number: self.number(word)?,
            unit,
            now: text::now(),
        })
    }

    /// `-newerXY`: time X of the files, time Y of the file that is named, or, with `t`, a time.
    fn newer_xy(&mut self, word: &str) -> Result<Expression> {
        let unknown = || format!("unknown test '{word}'");
        let letters = word.strip_prefix("-newer").ok_or_else(unknown)?;
        let mut letters = letters.chars();
        let (Some(which), Some(of), None) = (letters.next(), letters.next(), letters.next()) else {
            return Err(unknown());
        };
        let which = Which::by(which).ok_or_else(unknown)?;
        if of == 't' {
            let than = date::parse(&self.word(word)?)?;
            return Ok(Expression::Newer { which, than });
        }
        self.newer_file(word, which, Which::by(of).ok_or_else(unknown)?)
    }

    fn newer_file(&mut self, word: &str, which: Which, of: Which) -> Result<Expression> {
        let file = self.name(word)?;
        Ok(Expression::NewerThanFile { which, file, of })
    }

    fn name(&mut self, word: &str) -> Result<OsString> {
        let name = self.next();
        name.ok_or_else(|| format!("{word} wants a file, as IMAGE:/PATH"))
    }
}

fn number(text: &str) -> Option<Number> {
    let digits = text.trim_start_matches(['+', '-']);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = is_number.then(|| digits.parse().ok()).flatten()?;
    match text.len() - digits.len() {
        0 => Some(Number::Exactly(value)),
        1 if text.starts_with('+') => Some(Number::More(value)),
        1 => Some(Number::Less(value)),
        _ => None,
    }
}

fn kinds(text: &str) -> Result<Vec<char>> {
    let letters: Vec<char> = text
        .split(',')
        .filter_map(|part| {
            let mut letters = part.chars();
            letters.next().filter(|_| letters.next().is_none())
        })
        .collect();
    let is_known = letters.iter().all(|letter| "fdlbcps".contains(*letter));
    match is_known && !letters.is_empty() && letters.len() == text.split(',').count() {
        true => Ok(letters),
        false => Err(format!("-type {text}: give some of f,d,l,b,c,p,s")),
    }
}

fn size(text: &str) -> Result<Expression> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => (&text[..at], letter),
        _ => (text, 'b'),
    };
    let unit = match unit {
        'c' => 1,
        'w' => 2,
        'b' => 512,
        'k' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => 0,
    };
    match number(digits) {
        Some(number) if unit > 0 => Ok(Expression::Size { number, unit }),
        _ => Err(format!(
            "-size {text}: give a number with c, w, b, k, M or G"
        )),
    }
}

fn permissions(text: &str) -> Result<Expression> {
    let (compared, mode) = match text.split_at_checked(1) {
        Some(("-", rest)) => (Compared::All, rest),
        Some(("/", rest)) => (Compared::Any, rest),
        _ => (Compared::Exactly, text),
    };
    let mode: Mode = mode.parse()?;
    Ok(Expression::Permissions {
        bits: mode.of(0, false),
        compared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Query> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        parse(&words)
    }

    #[test]
    fn expressions_are_read() {
        let print = || Box::new(Expression::Print);
        assert_eq!(
            parsed("").unwrap().expression,
            Expression::And(Box::new(Expression::Constant(true)), print())
        );
        let query = parsed("-maxdepth 2 ( -name a -o ! -type d,l ) -size +3k").unwrap();
        assert_eq!(query.depth_max, 2);
        let text = format!("{:?}", query.expression);
        assert!(
            text.contains("Or(Name") && text.contains("unit: 1024"),
            "{text}"
        );
        assert!(parsed("-delete").unwrap().is_depth_first);
        for bad in [
            "-name",
            "(",
            "-type x",
            "-size 3q",
            "-foo",
            "-newerxy a",
            "-newermtt a",
            "-newer",
            "-exec rm {} ;",
            "-printf %q",
            ")",
            "-o",
            "-name a )",
            "-perm 9",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed(&"! ".repeat(1000)).is_err());
    }

    #[test]
    fn numbers_are_more_less_or_equal() {
        assert!(number("+3").unwrap().holds(4) && !number("+3").unwrap().holds(3));
        assert!(number("-3").unwrap().holds(2) && number("3").unwrap().holds(3));
        assert_eq!(number("+-3"), None);
    }
}
