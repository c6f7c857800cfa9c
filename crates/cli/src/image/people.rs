//! Names of users and groups: those of the image's own /etc/passwd and /etc/group, since numbers
//! mean in an image what they mean there.

use std::collections::HashMap;

use finefs::FileSystem;

/// Files that are larger than this are no tables of users.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// The users and groups of one image.
#[derive(Default)]
pub(super) struct People {
    users: Table,
    groups: Table,
}

#[derive(Default)]
struct Table {
    names: HashMap<u32, String>,
    numbers: HashMap<String, u32>,
    /// The field behind a number: of users their own group.
    groups: HashMap<String, u32>,
}

impl People {
    /// None: numbers only.
    pub fn nobody() -> People {
        People::default()
    }

    /// As the image names them; as far as it does.
    pub fn of(fs: &FileSystem) -> People {
        People {
            users: Table::read(fs, "/etc/passwd"),
            groups: Table::read(fs, "/etc/group"),
        }
    }

    pub fn user(&self, uid: u32) -> String {
        self.users.name(uid)
    }

    pub fn group(&self, gid: u32) -> String {
        self.groups.name(gid)
    }

    /// The number of a user, who may be given by number.
    pub fn uid(&self, text: &str) -> Option<u32> {
        self.users.number(text)
    }

    pub fn gid(&self, text: &str) -> Option<u32> {
        self.groups.number(text)
    }

    /// The group that a user has by /etc/passwd; none of one who is given by number.
    pub fn own_group(&self, user: &str) -> Option<u32> {
        self.users.groups.get(user).copied()
    }

    /// Whether a number has a name.
    pub fn knows_uid(&self, uid: u32) -> bool {
        self.users.names.contains_key(&uid)
    }

    pub fn knows_gid(&self, gid: u32) -> bool {
        self.groups.names.contains_key(&gid)
    }
}

impl Table {
    fn read(fs: &FileSystem, path: &str) -> Table {
        let is_usable = fs
            .metadata(path)
            .is_ok_and(|found| found.is_file() && found.len() <= TABLE_BYTES_MAX);
        let text = is_usable.then(|| fs.read(path).ok()).flatten();
        let mut table = Table::default();
        for line in String::from_utf8_lossy(&text.unwrap_or_default()).lines() {
            let mut fields = line.split(':');
            let name = fields.next();
            let number = fields.nth(1).and_then(|field| field.parse::<u32>().ok());
            if let (Some(name), Some(number)) = (name, number) {
                table.names.entry(number).or_insert_with(|| name.to_owned());
                table.numbers.entry(name.to_owned()).or_insert(number);
                let group = fields.next().and_then(|field| field.parse().ok());
                table
                    .groups
                    .entry(name.to_owned())
                    .or_insert(group.unwrap_or(number));
            }
        }
        // Everywhere so.
        table.names.entry(0).or_insert_with(|| "root".to_owned());
        table.numbers.entry("root".to_owned()).or_insert(0);
        table.groups.entry("root".to_owned()).or_insert(0);
        table
    }

    fn name(&self, number: u32) -> String {
        match self.names.get(&number) {
            Some(name) => name.clone(),
            None => number.to_string(),
        }
    }

    fn number(&self, text: &str) -> Option<u32> {
        let by_name = self.numbers.get(text).copied();
        // The highest number means "as it is" to chown(2), and is nobody's.
        let is_somebody = |number: &u32| *number != u32::MAX;
        let digits = text.strip_prefix('+').unwrap_or(text);
        by_name.or_else(|| digits.parse().ok().filter(is_somebody))
    }
}
