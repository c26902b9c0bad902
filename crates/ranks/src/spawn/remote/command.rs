//! The command line of ssh, and the script that it runs on the other host.
//!
//! Nothing here is secret, because all users of both hosts can read it. The user's login shell is unknown. So it gets
//! only a single quoted word to execute, and `/bin/sh` interprets the rest.

use std::path::Path;

use tonnage_units::{Error, Result};

/// Options of every ssh. If an option is given twice, ssh uses the first one, so the user's own options take
/// precedence.
const OPTIONS: [&str; 7] = [
    "BatchMode=yes",
    // A host key that was not checked is never accepted, regardless of ssh_config.
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=4",
    // With these two options, a host that is silent for six seconds counts as gone.
    "ServerAliveInterval=2",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "LogLevel=ERROR",
];

/// Word that the script prints if the program was not found.
pub const ABSENT: &str = "tonnage-absent";
/// Word that the script prints when it waits for the program. The architecture and the C library follow.
pub const WANTED: &str = "tonnage-wanted";
/// The command of this program that the script starts.
pub const AGENT: &str = "host-agent";
/// Option of that command: print the build and exit.
pub const BUILD_OPTION: &str = "--build";

/// Runs the program that is at the same path, or else the one in PATH. `$1` is the path.
const FIND: &str = "for q in \"$1\" \"$(command -v tonnage)\"; do if [ -x \"$q\" ]; then exec \"$q\" host-agent; fi; \
                    done; echo; echo tonnage-absent; exit 127";

/// Runs the program if the host has this build, and otherwise reads it from standard input. `$1` is the path, `$2` the
/// build, `$3` the program's size in bytes. A copy gets its final name only when it is complete. Until then its name
/// contains the host's name, because several hosts may share a home directory. `echo` ends a line that a login script
/// may have left unfinished.
const PUSH: &str = "d=${XDG_CACHE_HOME:-$HOME/.cache}/tonnage/$2; c=$d/tonnage; \
     for q in \"$c\" \"$1\" \"$(command -v tonnage)\"; do \
     if [ -x \"$q\" ] && if [ \"$q\" = \"$c\" ]; then [ \"$(wc -c <\"$c\")\" -eq \"$3\" ]; \
     else [ \"$(\"$q\" host-agent --build 2>/dev/null)\" = \"$2\" ]; fi; \
     then exec \"$q\" host-agent; fi; done; \
     echo; echo \"tonnage-wanted $(uname -m) $(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1)\"; \
     read -r go || exit 1; t=$c.$(uname -n).$$; \
     if ( umask 077; mkdir -p \"$d\" && head -c \"$3\" >\"$t\" && [ \"$(wc -c <\"$t\")\" -eq \"$3\" ] && chmod 700 \"$t\" && \
     mv -f \"$t\" \"$c\" ); then exec \"$c\" host-agent; fi; rm -f \"$t\"; echo tonnage-lost; exit 1";

/// This program, to be copied to hosts that lack it.
#[derive(Debug, Clone)]
pub struct Push {
    /// Hash of the program's content.
    pub build: String,
    pub bytes: u64,
    /// Architecture that the program needs, as `uname -m` names it.
    pub architecture: String,
    /// C library that the program needs, such as "glibc 2.36".
    pub c_library: String,
}

/// Splits the value of `--ssh` into words, as a shell does.
pub fn split_words(text: &str) -> Result<Vec<String>> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(Error::Usage(format!(
            "--ssh {text:?} is not a command: write it as for a shell, such as --ssh \"ssh -p 2222\""
        ))),
    }
}

/// Returns the program and arguments of the ssh that connects to one host.
pub fn ssh_command(
    words: &[String],
    destination: &str,
    program: &Path,
    push: Option<&Push>,
) -> Result<Vec<String>> {
    let mut line = words.to_vec();
    for option in OPTIONS {
        line.extend(["-o".to_owned(), option.to_owned()]);
    }
    line.extend(["-T".to_owned(), destination.to_owned()]);
    line.push(remote_command(program, push)?);
    Ok(line)
}

/// Returns the command that the user's login shell on the host executes.
fn remote_command(program: &Path, push: Option<&Push>) -> Result<String> {
    let path = program
        .to_str()
        .filter(|path| !path.contains(['\n', '\r', '\0']));
    let path = path.ok_or_else(|| {
        Error::Usage(format!(
            "the path of this program, {}, cannot be written in a command line: move it",
            program.display()
        ))
    })?;
    let (script, rest) = match push {
        None => (FIND, String::new()),
        Some(push) => (PUSH, format!(" {} {}", push.build, push.bytes)),
    };
    Ok(format!(
        "exec /bin/sh -c {} tonnage {}{rest}",
        quoted(script),
        quoted(path)
    ))
}

/// Puts a word in single quotes, which all shells interpret in the same way.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn the_users_options_come_first_and_the_destination_is_not_an_option() {
        let own = split_words("ssh -p 2222 -o 'ConnectTimeout=9'").unwrap();
        let line = ssh_command(&own, "user@h1", Path::new("/opt/a b/tonnage"), None).unwrap();
        assert_eq!(line[..5], ["ssh", "-p", "2222", "-o", "ConnectTimeout=9"]);
        let wanted = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ConnectTimeout=4",
        ];
        assert!(
            wanted
                .iter()
                .all(|option| line.iter().any(|word| word == option)),
            "{line:?}"
        );
        assert_eq!(line[line.len() - 2], "user@h1");
        assert!(line[line.len() - 1].ends_with("tonnage '/opt/a b/tonnage'"));
        assert!(split_words("").is_err() && split_words("ssh 'x").is_err());
    }

    #[test]
    fn scripts_have_no_characters_that_shells_interpret_differently() {
        for script in [FIND, PUSH] {
            assert!(!script.contains(['\'', '!', '\n']), "{script}");
            assert!(script.contains(AGENT));
        }
        assert!(FIND.contains(ABSENT) && PUSH.contains(WANTED) && PUSH.contains(BUILD_OPTION));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused() {
        assert_eq!(
            remote_command(Path::new("/a\nb"), None)
                .unwrap_err()
                .exit_code(),
            2
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_shell_reads_what_was_quoted(word in "[ -~äé]{0,40}") {
            let said = Command::new("/bin/sh").arg("-c").arg(format!("printf %s {}", quoted(&word))).output().unwrap();
            prop_assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
        }
    }
}
