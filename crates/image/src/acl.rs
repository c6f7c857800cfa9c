//! ACLs as archives have them, in text, and as the system has them, in an attribute.
//!
//! # References
//! acl(5), "SHORT TEXT FORM"; Linux `include/uapi/linux/posix_acl_xattr.h`.

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// The attribute's value. The error says what is wrong.
pub(crate) fn from_text(text: &str) -> Result<Vec<u8>, String> {
    let mut entries = Vec::new();
    for line in text.split([',', '\n']) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            entries.push(parse(entry).ok_or_else(|| format!("ACL entry '{entry}'"))??);
        }
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(permissions));
        value.extend(u32::to_le_bytes(id));
    }
    Ok(value)
}

/// The text of an attribute's value, numbers for names; `None` for what is none.
pub(crate) fn to_text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() || entries.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    for [tag0, tag1, bits, _, id @ ..] in entries {
        let (kind, is_named) = match u16::from_le_bytes([*tag0, *tag1]) {
            0x01 => ("user", false),
            0x02 => ("user", true),
            0x04 => ("group", false),
            0x08 => ("group", true),
            0x10 => ("mask", false),
            0x20 => ("other", false),
            _ => return None,
        };
        let id = match is_named {
            true => u32::from_le_bytes(*id).to_string(),
            false => String::new(),
        };
        let letters = [(4, 'r'), (2, 'w'), (1, 'x')];
        let letters = letters.map(|(bit, letter)| if bits & bit != 0 { letter } else { '-' });
        lines.push(format!("{kind}:{id}:{}", String::from_iter(letters)));
    }
    Some(lines.join(","))
}

/// The permission bits of a file that has this access ACL: its mask stands for the group.
pub(crate) fn permissions(value: &[u8]) -> Option<u32> {
    let (entries, _) = value.get(4..)?.as_chunks::<8>();
    let bits = |wanted: u16| {
        let is_it = |entry: &&[u8; 8]| u16::from_le_bytes([entry[0], entry[1]]) == wanted;
        let entry = entries.iter().find(is_it)?;
        Some(u32::from(entry[2]) & 0o7)
    };
    Some(bits(0x01)? << 6 | bits(0x10).or(bits(0x04))? << 3 | bits(0x20)?)
}

/// Tag, number and permissions; `None` for what is no entry.
fn parse(entry: &str) -> Option<Result<(u16, u32, u16), String>> {
    let mut fields = entry.split(':');
    let (kind, name) = (fields.next()?, fields.next()?.trim());
    let permissions = fields.next()?;
    // Some archivers add the number behind the name.
    let number = fields.next().unwrap_or(name);
    let mut bits = 0;
    for letter in permissions.trim().chars() {
        bits |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    let tag = match (kind.trim(), name.is_empty()) {
        ("user" | "u", true) => 0x01,
        ("user" | "u", false) => 0x02,
        ("group" | "g", true) => 0x04,
        ("group" | "g", false) => 0x08,
        ("mask" | "m", true) => 0x10,
        ("other" | "o", true) => 0x20,
        _ => return None,
    };
    if name.is_empty() {
        return Some(Ok((tag, NO_ID, bits)));
    }
    let id = number.trim().parse::<u32>();
    Some(id.map(|id| (tag, id, bits)).map_err(|_| {
        format!("the ACL names '{name}' without its number (tar's --numeric-owner keeps it)")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_what_the_kernel_takes() {
        let value = from_text("other::---,user::rw-\nuser:joe:r-x:7,group::r--,mask::rwx").unwrap();
        let entries: Vec<(u16, u16, u32)> = value[4..]
            .chunks(8)
            .map(|entry| {
                let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
                let id = [entry[4], entry[5], entry[6], entry[7]];
                (half(0), half(2), u32::from_le_bytes(id))
            })
            .collect();
        let wanted = [
            (1, 6, NO_ID),
            (2, 5, 7),
            (4, 4, NO_ID),
            (16, 7, NO_ID),
            (32, 0, NO_ID),
        ];
        assert_eq!(entries, wanted);
        assert_eq!(&value[..4], [2, 0, 0, 0]);
        let text = to_text(&value).unwrap();
        assert_eq!(text, "user::rw-,user:7:r-x,group::r--,mask::rwx,other::---");
        assert_eq!(from_text(&text).unwrap(), value);
        assert_eq!(to_text(&value[..7]), None);
        assert_eq!(permissions(&value), Some(0o670));
        let short = from_text("user::rwx,group::r-x,other::--x").unwrap();
        assert_eq!(permissions(&short), Some(0o751));
        assert_eq!(permissions(&from_text("user::rwx").unwrap()), None);
    }

    #[test]
    fn names_without_numbers_and_other_words_are_refused() {
        assert!(from_text("user:joe:rwx").unwrap_err().contains("number"));
        assert!(from_text("user::rwx,nobody").is_err());
        assert!(from_text("user::rwt").is_err());
    }
}
