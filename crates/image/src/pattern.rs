//! Patterns of names, as fnmatch(3) has them without flags: `*`, `?`, `[a-z]`, `[!a-z]`, `\c`.

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
        let first = *text.get(at)?;
        if first == b']' && at > start {
            return Some((is_in != is_negated, at + 1));
        }
        match (text.get(at + 1), text.get(at + 2)) {
            (Some(b'-'), Some(last)) if *last != b']' => {
                is_in |= (first..=*last).contains(&byte);
                at += 3;
            }
            _ => {
                is_in |= first == byte;
                at += 1;
            }
        }
    }
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
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
