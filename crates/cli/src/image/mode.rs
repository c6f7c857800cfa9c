//! Modes as chmod(1) reads them: octal, also with an operator as `+022`, or `u+rwx,go-w,a=rX,+t`.

/// A mode that may depend on what a file has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mode(Vec<Clause>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Clause {
    operator: Operator,
    /// The bits of those who are meant, as 07777.
    who: u32,
    /// Set-id and permission bits to add, remove or set.
    bits: u32,
    /// `X`: execution for directories and for what somebody may execute.
    has_conditional_execution: bool,
    /// `u`, `g` or `o`: the bits of them, by their shift.
    copied_from: Option<u32>,
    /// Nobody is named: `=` clears the bits of everybody, also those of the umask.
    is_of_all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Remove,
    Set,
    /// A number: all bits, but a directory keeps its set-id bits if the number has few digits.
    Number {
        keeps_set_id: bool,
    },
}

/// The umask of an edit of an image: its superuser's.
const UMASK: u32 = 0o022;

impl Mode {
    /// That of another file.
    pub fn number(permissions: u32) -> Mode {
        Mode(vec![Clause::number(permissions, false)])
    }

    /// What a new directory gets that has inherited these set-id bits, as mkdir(1) has it: a
    /// sticky one is made without write permission for others, unless that is named.
    pub fn of_new_directory(&self, inherited: u32) -> u32 {
        let mode = self.of(0o777 | inherited, true);
        let named = self
            .0
            .iter()
            .fold(0, |named, clause| named | clause.named());
        match mode & 0o1000 {
            0 => mode,
            _ => mode & !(0o022 & !named),
        }
    }

    /// What a file with these permissions gets.
    pub fn of(&self, permissions: u32, is_directory: bool) -> u32 {
        let mut mode = permissions;
        for clause in &self.0 {
            mode = clause.apply(mode, is_directory);
        }
        mode & 0o7777
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let invalid = || format!("invalid mode '{text}'");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).map_err(|_| invalid())?;
            if bits > 0o7777 {
                return Err(invalid());
            }
            return Ok(Mode(vec![Clause::number(bits, text.len() < 5)]));
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            clauses.extend(parse_part(part).ok_or_else(invalid)?);
        }
        Ok(Mode(clauses))
    }
}

fn parse_part(part: &str) -> Option<Vec<Clause>> {
    let operators = part.find(['+', '-', '='])?;
    let (people, mut rest) = part.split_at(operators);
    let mut who = 0;
    for letter in people.chars() {
        who |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    let limit = match people.is_empty() {
        true => 0o7777 & !UMASK,
        false => who,
    };
    let mut clauses = Vec::new();
    while let Some(first) = rest.chars().next() {
        let operator = match first {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            _ => Operator::Set,
        };
        rest = &rest[1..];
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let word = &rest[..end];
        let is_of_all = people.is_empty();
        clauses.push(match word.starts_with(|c: char| c.is_ascii_digit()) {
            true if is_of_all => parse_digits(operator, word)?,
            true => return None,
            false => Clause {
                is_of_all,
                ..parse_clause(operator, limit, word)?
            },
        });
        rest = &rest[end..];
    }
    Some(clauses)
}

/// `+755`, `=644`: bits in octal, whatever the umask is.
fn parse_digits(operator: Operator, digits: &str) -> Option<Clause> {
    let bits = u32::from_str_radix(digits, 8).ok()?;
    let number = Clause::number(bits, false);
    let operator = match operator {
        Operator::Set => number.operator,
        operator => operator,
    };
    (bits <= 0o7777).then_some(Clause { operator, ..number })
}

fn parse_clause(operator: Operator, who: u32, letters: &str) -> Option<Clause> {
    let mut clause = Clause {
        operator,
        who,
        bits: 0,
        has_conditional_execution: false,
        copied_from: None,
        is_of_all: false,
    };
    let shift = |letter| match letter {
        "u" => Some(6),
        "g" => Some(3),
        "o" => Some(0),
        _ => None,
    };
    if let Some(shift) = shift(letters) {
        clause.copied_from = Some(shift);
        return Some(clause);
    }
    for letter in letters.chars() {
        clause.bits |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            'X' => {
                clause.has_conditional_execution = true;
                0
            }
            _ => return None,
        };
    }
    Some(clause)
}

impl Clause {
    fn number(bits: u32, keeps_set_id: bool) -> Clause {
        Clause {
            operator: Operator::Number { keeps_set_id },
            who: 0o7777,
            bits,
            has_conditional_execution: false,
            copied_from: None,
            is_of_all: true,
        }
    }

    /// The bits that it says something of.
    fn named(&self) -> u32 {
        match (self.operator, self.copied_from) {
            (Operator::Add | Operator::Remove, None) => self.bits & self.who,
            _ => self.who,
        }
    }

    fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let mut bits = self.bits;
        if self.has_conditional_execution && (is_directory || mode & 0o111 != 0) {
            bits |= 0o111;
        }
        if let Some(shift) = self.copied_from {
            bits |= (mode >> shift & 7) * 0o111;
        }
        bits &= self.who;
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => {
                // A directory keeps set-id bits that are not named.
                let kept = if is_directory { 0o6000 } else { 0 };
                let cleared = if self.is_of_all { 0o7777 } else { self.who };
                mode & !(cleared & !kept) | bits
            }
            Operator::Number { keeps_set_id } => {
                let kept = match is_directory && keeps_set_id {
                    true => mode & 0o6000,
                    false => 0,
                };
                bits | kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        for (text, before, is_directory, after) in [
            ("644", 0o777, false, 0o644),
            ("755", 0o2700, true, 0o2755),
            ("00755", 0o2700, true, 0o755),
            ("4755", 0, false, 0o4755),
            ("u+x", 0o644, false, 0o744),
            ("go-rwx", 0o777, false, 0o700),
            ("a=rX", 0o700, false, 0o555),
            ("a=rX", 0o600, false, 0o444),
            ("a+X", 0o600, true, 0o711),
            ("+w", 0o444, false, 0o644),
            ("u=rw,g=u,o=", 0o777, false, 0o660),
            ("u+s,g+s,+t", 0o755, false, 0o7755),
            ("o+s", 0o755, false, 0o755),
            ("g=", 0o2775, true, 0o2705),
            ("u+w-x", 0o555, false, 0o655),
            ("=rw", 0o777, false, 0o644),
            ("+022", 0o644, false, 0o666),
            ("-7000,=755", 0o7700, false, 0o755),
            ("g=u-w,o=g", 0o750, false, 0o755),
            ("u=g,+X", 0o650, false, 0o551),
        ] {
            let mode: Mode = text.parse().unwrap();
            let found = mode.of(before, is_directory);
            assert_eq!(found, after, "{text}: {found:o}");
        }
        for bad in [
            "", "u", "888", "u+q", "77777", "x+r", ",", "u+7", "+8", "=77777",
        ] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
    }
}
