//! Patterns of names, as fnmatch(3) has them without flags: `*`, `?`, `[a-z]`, `[!a-z]`,
//! `[[:digit:]]`, `\c`. Classes are those of the C locale.

/// Whether all of `text` matches.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last `*` does not match.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(_) if t < text.len() => one(&pattern[p..], text[t]),
            Some(_) => None,
            None if t == text.len() => return true,
            None => None,
        };
        match (step, retry) {
            (Some(length), _) => (p, t) = (p + length, t + 1),
            (None, Some((after, from))) if from < text.len() => {
                (p, t) = (after, from + 1);
                retry = Some((after, from + 1));
            }
            (None, _) => return false,
        }
    }
}

/// The length of the first element of a pattern, if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match set(rest, byte) {
            Some((is_in, length)) => is_in.then_some(length + 1),
            None => (byte == b'[').then_some(1),
        },
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// Whether a byte is in the set whose text follows `[`, and that text's length with its `]`.
fn set(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let is_negated = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(is_negated);
    let (mut at, mut is_in) = (start, false);
    loop {
        if *text.get(at)? == b']' && at > start {
            return Some((is_in != is_negated, at + 1));
        }
        if let Some(name) = class_name(&text[at..]) {
            match is_of_class(name, byte) {
                Some(is_of_it) => is_in |= is_of_it,
                // Nothing matches from here on, as in glibc.
                None if !is_in => return Some((false, at)),
                None => {}
            }
            at += name.len() + "[::]".len();
            continue;
        }
        let first = letter(text, &mut at)?;
        match (text.get(at), text.get(at + 1)) {
            (Some(b'-'), Some(next)) if *next != b']' => {
                at += 1;
                is_in |= (first..=letter(text, &mut at)?).contains(&byte);
            }
            _ => is_in |= first == byte,
        }
    }
}

/// The byte that stands at a place of a set, alone or after `\`; the place is past it then.
fn letter(text: &[u8], at: &mut usize) -> Option<u8> {
    *at += usize::from(*text.get(*at)? == b'\\');
    let letter = *text.get(*at)?;
    *at += 1;
    Some(letter)
}

/// The name of the class, `[:name:]`, that a text begins with.
fn class_name(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"[:")?;
    let length = rest.iter().position(|byte| !byte.is_ascii_lowercase())?;
    rest[length..].starts_with(b":]").then(|| &rest[..length])
}

/// Whether a byte is of a class; `None` where there is no class of that name.
fn is_of_class(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => matches!(byte, b' '..=b'~'),
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_shells() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*.conf", "a.conf", true),
            ("*.conf", "a.confx", false),
            ("a*b*c", "axxbyybc", true),
            ("a*b*c", "axxbyyb", false),
            ("?", "x", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("", "a", false),
            ("a[[:digit:]]", "a7", true),
            ("a[[:digit:]]", "ad", false),
            ("a[[:digit:]]", "a:]", false),
            ("[![:space:]]", "\x0b", false),
            ("[[:upper:][:digit:]_-]x", "-x", true),
            ("[[:upper:][:digit:]_-]x", "ax", false),
            ("[x[:alpha:]", "[xa", true),
            ("[x[:alpha:]", "xa", false),
            ("[[:digit:]-z]", "-", true),
            ("[[:digit:]-z]", "y", false),
            ("[[:nothing:]n]", "n", false),
            ("[n[:nothing:]]", "n", true),
            ("[![:nothing:]]", "n", false),
            // No name of a class: letters.
            ("[[:]", ":", true),
            ("[[:A:]]", "A]", true),
            ("[\\]a]", "]", true),
            ("[\\]a]", "a", true),
            ("[\\]a]", "\\", false),
            ("[\\a-\\c]", "b", true),
            ("[X-\\]]", "]", true),
            ("[X-\\]]", "Z", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn classes_are_those_of_the_c_locale() {
        let all = |name: &str| {
            let pattern = format!("[[:{name}:]]");
            let is_of_it = |byte: &u8| matches(pattern.as_bytes(), &[*byte]);
            (0..=255).filter(is_of_it).count()
        };
        for (name, count) in [
            ("alnum", 62),
            ("alpha", 52),
            ("blank", 2),
            ("cntrl", 33),
            ("digit", 10),
            ("graph", 94),
            ("lower", 26),
            ("print", 95),
            ("punct", 32),
            ("space", 6),
            ("upper", 26),
            ("xdigit", 22),
        ] {
            assert_eq!(all(name), count, "{name}");
        }
    }
}
