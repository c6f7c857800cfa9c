//! Manual pages and shell completions, of the command line's definition: with the argument DIR,
//! DIR/man has a page for the command and for each subcommand, DIR/completions what bash, zsh and
//! fish read. `make pages` runs it.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Command;
use clap::builder::Resettable;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

fn main() -> Result<()> {
    let dir = env::args_os().nth(1).map(PathBuf::from);
    write_all(&dir.ok_or_else(|| Error::other("pages DIR"))?)
}

fn write_all(dir: &Path) -> Result<()> {
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    let mut command = finefs_cli::command().disable_help_subcommand(true);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "finefs", &completions)?;
    }
    command.build();
    write_pages(&command, &man)
}

/// Of a command and all below it.
fn write_pages(command: &Command, dir: &Path) -> Result<()> {
    for part in subcommands(command) {
        write_pages(part, dir)?;
    }
    write_page(command, dir)
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|part| !part.is_hide_set())
}

fn write_page(command: &Command, dir: &Path) -> Result<()> {
    let is_mount = command.get_name() == "mount";
    let mut command = command.clone();
    if is_mount {
        // The same options, shorter.
        command = command.after_help(Resettable::Reset);
    }
    let page = Man::new(command).source(concat!("finefs ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)?;
    if is_mount {
        mount_options().to_writer(&mut text)?;
    }
    fs::write(dir.join(page.get_filename()), text)
}

fn mount_options() -> Roff {
    let page = finefs_cli::options_page();
    let mut roff = Roff::new();
    roff.control("SH", ["MOUNT OPTIONS"]);
    roff.text([roman(page.intro)]);
    for (heading, options) in page.groups {
        roff.control("SS", [heading]);
        for option in options {
            roff.control("TP", []);
            roff.text([bold(option.names)]);
            roff.text([roman(option.text)]);
        }
    }
    roff.control("PP", []);
    roff.text([roman(page.sizes)]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_has_a_page_and_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let main = read("man/finefs.1");
        let command = finefs_cli::command();
        assert!(subcommands(&command).count() >= 6);
        for part in subcommands(&command).map(Command::get_name) {
            let page = read(&format!("man/finefs-{part}.1"));

            assert!(page.contains(&format!("finefs\\-{part} \\- ")), "{page}");
            assert!(
                main.contains(&format!("finefs\\-{part}(1)")),
                "{part}: {main}"
            );
            for shell in ["finefs.bash", "_finefs", "finefs.fish"] {
                assert!(
                    read(&format!("completions/{shell}")).contains(part),
                    "{shell}: {part}"
                );
            }
        }
    }

    #[test]
    fn the_page_of_mount_has_all_mount_options() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        let page = fs::read_to_string(dir.path().join("man/finefs-mount.1")).unwrap();
        assert!(!page.contains(".SH EXTRA"), "{page}");
        let (_, options) = page.split_once(".SH \"MOUNT OPTIONS\"").unwrap();
        let told: usize = finefs_cli::options_page()
            .groups
            .iter()
            .map(|(_, of)| of.len())
            .sum();
        assert_eq!(options.matches("\n.TP\n").count(), told);
        assert!(options.contains("noatime"), "{options}");
    }
}
