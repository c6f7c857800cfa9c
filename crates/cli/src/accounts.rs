//! Users and groups of this machine, by name: passwd(5), group(5).

use std::str::FromStr;

/// The table of users.
pub(crate) const USERS: &str = "/etc/passwd";
/// The table of groups.
pub(crate) const GROUPS: &str = "/etc/group";

/// A number, or the one that a table has for a name.
pub(crate) fn number_of<N: FromStr>(text: &str, table: &str) -> Option<N> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    find(&std::fs::read_to_string(table).ok()?, text)
}

fn find<N: FromStr>(table: &str, name: &str) -> Option<N> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name) && !name.is_empty();
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!(number_of::<u16>("65535", USERS), Some(65535));
        assert_eq!(number_of::<u16>("65536", USERS), None);
        assert_eq!(number_of::<u32>("7", "/nonexistent"), Some(7));
        let table = "root:x:0:0::/:/bin/sh\n:x:5:5::/:\nwww:x:33:34::/:\n";
        assert_eq!(find::<u32>(table, "www"), Some(33));
        assert_eq!(find::<u32>(table, "root"), Some(0));
        for name in ["", "ww", "x", "33"] {
            assert_eq!(find::<u32>(table, name), None, "{name:?}");
        }
    }
}
