//! `completions` and `man`, generated from the declarations of the command line.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::{generate, shells};
use clap_mangen::Man;
use tonnage_units::names::nearest;
use tonnage_units::{Error, Result};

use super::atomic_file::replace;
use super::print;
use crate::args::manual::{CompletionsArgs, ManArgs, Shell};
use crate::args::version;
use crate::args::{Cli, ior};

/// `tonnage completions`.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    print(&script(args.shell)).map(|()| ExitCode::SUCCESS)
}

/// `tonnage man`.
pub fn man(args: &ManArgs) -> Result<ExitCode> {
    match &args.dir {
        Some(dir) => write_all(dir)?,
        None => print(&one(args.command.as_deref())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> String {
    let mut command = Cli::command();
    let mut out = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, "tonnage", &mut out),
        Shell::Zsh => generate(shells::Zsh, &mut command, "tonnage", &mut out),
        Shell::Fish => generate(shells::Fish, &mut command, "tonnage", &mut out),
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the program and then its commands, each named like its page: `tonnage`, `tonnage-transfer`.
fn pages() -> Vec<Command> {
    // The long version names the target machine, but pages must be the same on all machines.
    let mut program = Cli::command().long_version(version::short());
    program.build();
    let commands = program.get_subcommands().cloned();
    let commands: Vec<_> = commands
        .filter(|command| command.get_name() != "help" && !command.is_hide_set())
        .map(|command| match command.get_name() {
            "ior" => ior::own_command().display_name("tonnage-ior"),
            _ => command,
        })
        .collect();
    [vec![program], commands].concat()
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or("tonnage")
}

fn one(command: Option<&str>) -> Result<String> {
    let name = command.map_or("tonnage".to_owned(), |name| format!("tonnage-{name}"));
    let pages = pages();
    if let Some(page) = pages.iter().find(|page| page_name(page) == name) {
        return render(page);
    }
    let names: Vec<_> = pages
        .iter()
        .filter_map(|page| page_name(page).strip_prefix("tonnage-"))
        .collect();
    let asked = command.unwrap_or_default();
    Err(Error::Usage(match nearest(asked, &names) {
        Some(near) => format!("{asked:.40?} is not a command: did you mean {near}?"),
        None => format!(
            "{asked:.40?} is not a command: write one of {}",
            names.join(", ")
        ),
    }))
}

fn write_all(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)
        .map_err(|error| Error::io(format!("cannot write {}", dir.display()), error))?;
    for page in pages() {
        let path = dir.join(format!("{}.1", page_name(&page)));
        replace(&path, &render(&page)?, true)?;
    }
    Ok(())
}

fn render(command: &Command) -> Result<String> {
    let mut out = Vec::new();
    let page = Man::new(command.clone());
    page.render(&mut out)
        .map_err(|error| Error::io("cannot make the page", error))?;
    let mut text = String::from_utf8_lossy(&out).into_owned();
    if page_name(command) == "tonnage-ior" {
        text.push_str(&verbatim("OPTIONS OF IOR", &tonnage_ior::help::options()));
    }
    Ok(text)
}

/// Returns a section of a page with its lines unchanged.
fn verbatim(title: &str, text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines: String = text.lines().map(|line| format!("\\&{line}\n")).collect();
    format!(".SH \"{title}\"\n.nf\n{lines}.fi\n")
}

#[cfg(test)]
mod tests {
    use std::process::{Command as Program, Stdio};

    use clap::ValueEnum;

    use super::*;

    /// Runs a program on this text. Returns whether it succeeded, and its output. `None` if the program is not
    /// installed.
    fn read_by(program: &str, arguments: &[&str], text: &str) -> Option<(bool, String)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let output = Program::new(program)
            .args(arguments)
            .arg(file.path())
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                Some((
                    output.status.success(),
                    String::from_utf8_lossy(&said).into_owned(),
                ))
            }
            Err(_) => {
                println!(
                    "skip: {program} is not installed: what it says of {} is not checked",
                    &text[..8]
                );
                None
            }
        }
    }

    #[test]
    fn shells_complete_commands_and_options() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for part in ["tonnage", "transfer", "engine", "explain"] {
                assert!(script.contains(part), "{shell:?} {part}");
            }
        }
        if let Some((read, said)) = read_by("bash", &["-n"], &script(Shell::Bash)) {
            assert!(read && said.is_empty(), "{said}");
        }
    }

    #[test]
    fn bash_completes_words() {
        let script = format!(
            "{}\nCOMP_WORDS=(tonnage expl) COMP_CWORD=1\n_tonnage tonnage expl tonnage\necho \"${{COMPREPLY[@]}}\"\n",
            script(Shell::Bash)
        );
        if let Some((read, said)) = read_by("bash", &[], &script) {
            assert!(read && said.trim() == "explain", "{said}");
        }
    }

    #[test]
    fn pages_are_roff_without_errors() {
        let pages = pages();
        assert!(pages.len() > 9, "{}", pages.len());
        for page in &pages {
            let text = render(page).unwrap();
            assert!(
                text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"),
                "{text}"
            );
            let lint = read_by("mandoc", &["-T", "lint", "-W", "error"], &text);
            if let Some((read, said)) = lint {
                assert!(read, "{}: {said}", page_name(page));
            }
        }
    }

    #[test]
    fn a_page_is_found_by_the_name_of_its_command() {
        assert!(one(None).unwrap().contains("tonnage\\-transfer(1)"));
        assert!(one(Some("transfer")).unwrap().contains("\\-\\-engine"));
        let ior = one(Some("ior")).unwrap();
        assert!(
            ior.contains("\\-b SIZE") && ior.contains("\\-\\-ranks"),
            "{ior}"
        );
        let message = one(Some("tranfser")).unwrap_err().to_string();
        assert!(message.contains("did you mean transfer?"), "{message}");
    }

    #[test]
    fn all_pages_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("man/man1");
        write_all(&deep).unwrap();
        assert_eq!(fs::read_dir(&deep).unwrap().count(), pages().len());
        assert!(deep.join("tonnage-file.1").is_file());
    }
}
