//! Describes failures of ssh, of its script and of the remote program, and builds of the program that do not match.
//! Each message has the host, the failure and the next thing to try.

use super::command::Push;
use super::list::without_user;
use super::messages::{AgentHello, ProgramBuild};

/// Patterns in the output of ssh and the script (in lower case), with the failure and the next thing to try. The first
/// match counts.
const SIGNS: [(&[&str], &str, &str); 15] = [
    (
        &["identification has changed", "host key for", "offending"],
        "the host key has changed",
        "find out why: the connection may be intercepted. If the new key is right, run `ssh-keygen -R HOST`, then `ssh HOST` once",
    ),
    (
        &["host key verification failed", "host key is known"],
        "its host key is unknown",
        "check it once by hand with `ssh HOST`, or list it with `ssh-keyscan HOST` from a network that you trust",
    ),
    (
        &[
            "permission denied (",
            "too many authentication failures",
            "no supported authentication",
        ],
        "ssh was refused",
        "`ssh -o BatchMode=yes HOST true` must work without a password: ssh-copy-id HOST, or ssh-add your key",
    ),
    (
        &["could not resolve hostname", "name or service not known"],
        "the name cannot be resolved",
        "correct the name, or give it an address in DNS, /etc/hosts or ssh_config",
    ),
    (
        &["connection refused"],
        "no ssh server listens there",
        "start sshd on the host, or name its port with --ssh \"ssh -p PORT\"",
    ),
    (
        &[
            "timed out",
            "no route to host",
            "network is unreachable",
            "host is down",
        ],
        "the host does not answer",
        "is it up, and does a firewall let ssh through? Leave it out, or give it more time with --ssh \"ssh -o \
         ConnectTimeout=30\"",
    ),
    (
        &["no space left", "disk quota exceeded"],
        "the disk was full while the program was copied",
        "make room in ~/.cache there, or install the program at the same path",
    ),
    (
        &["read-only file system", "cannot create directory"],
        "the program cannot be copied",
        "make ~/.cache writable there, set XDG_CACHE_HOME, or install the program at the same path",
    ),
    (
        &["tonnage-absent"],
        "the program is not there, neither at the same path nor in PATH",
        "add --push to copy this one, or install it",
    ),
    (
        &[
            "unrecognized subcommand",
            "unexpected argument",
            "there is no command",
            "has no option",
        ],
        "another version of the program is there",
        "install this one, or add --push to copy it",
    ),
    (
        &["exec format error", "cannot execute binary file"],
        "the program there is for another architecture",
        "install one that was built for it, and leave --push out",
    ),
    (
        &["version `glibc", "glibc_"],
        "its C library is too old for the program",
        "build the program on the oldest of the hosts",
    ),
    (
        &[
            "cannot open shared object",
            "error while loading shared libraries",
        ],
        "a library of the program is missing there",
        "install it, or build the program on that host",
    ),
    (
        &["tonnage-lost"],
        "the program could not be copied",
        "look at ~/.cache there, or install the program at the same path",
    ),
    (
        &[
            "connection closed by",
            "connection reset by",
            "kex_exchange_identification",
        ],
        "sshd closed the connection",
        "it may be busy: start fewer at once with --ssh-parallel, or look at its log",
    ),
];

/// Maximum number of ssh's lines that a message quotes.
const LINES_MAX: usize = 3;

/// Describes why a host has no agent. `said` has the lines that ssh and the script printed. `ended` describes how ssh
/// ended.
pub(super) fn explain_missing_agent(host: &str, said: &[String], ended: &str) -> String {
    explain_known_pattern(host, said).unwrap_or_else(|| {
        let quoted = quote_output(said);
        format!(
            "{host}: ssh {ended} before the program there answered{quoted}: does `ssh -o BatchMode=yes {host} true` work?"
        )
    })
}

/// Describes why a copy of the program to a host is incomplete. `what` describes how far it got.
pub(super) fn explain_failed_copy(host: &str, said: &[String], what: &str) -> String {
    explain_known_pattern(host, said).unwrap_or_else(|| {
        let quoted = quote_output(said);
        format!(
            "{host}: {what}{quoted}: is its link slow, or its disk stuck? Install the program there, and leave --push out"
        )
    })
}

/// Returns the failure and the next thing to try, if the output has a known pattern.
fn explain_known_pattern(host: &str, said: &[String]) -> Option<String> {
    let lower = said.join("\n").to_lowercase();
    let (_, what, how) = SIGNS
        .iter()
        .find(|(signs, ..)| signs.iter().any(|sign| lower.contains(sign)))?;
    // Host keys are stored under names without the user.
    let alone = without_user(host);
    let how = how.replace("-R HOST", &format!("-R {alone}"));
    let how = how.replace("ssh-keyscan HOST", &format!("ssh-keyscan {alone}"));
    let how = how.replace("HOST", host);
    Some(format!("{host}: {what}{}: {how}", quote_output(said)))
}

/// Quotes the last lines of the output in brackets.
fn quote_output(said: &[String]) -> String {
    // The reason is in the last lines.
    let lines: Vec<&str> = said
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.starts_with("tonnage-") && !line.is_empty())
        .collect();
    match &lines[lines.len().saturating_sub(LINES_MAX)..] {
        [] => String::new(),
        last => format!(" ({})", last.join("; ")),
    }
}

/// Describes a host with a different build of the program.
pub(super) fn explain_other_build(host: &str, hello: &AgentHello, build: &ProgramBuild) -> String {
    let there = &hello.build;
    format!(
        "{host}: tonnage {} ({}) is there as {}, and this is {} ({}): install the same on both, or add --push to copy \
         this one",
        there.version, there.revision, hello.program, build.version, build.revision
    )
}

/// Returns why this program cannot run on a host. `found` has the host's `uname -m` and C library.
pub(super) fn explain_unrunnable(push: &Push, found: &str) -> Option<String> {
    let (architecture, c_library) = found.split_once(' ').unwrap_or((found, ""));
    if architecture != push.architecture {
        return Some(format!(
            "its architecture is {architecture}, and this program is for {}: install one that was built for it, and leave \
             --push out",
            push.architecture
        ));
    }
    let version = |text: &str| -> Option<Vec<u32>> {
        let last = text.split_whitespace().last()?;
        last.split('.').map(|part| part.parse().ok()).collect()
    };
    let lower = c_library.to_lowercase();
    let is_glibc = lower.contains("glibc") || lower.contains("gnu libc");
    let fits = is_glibc && version(c_library) >= version(&push.c_library);
    (!fits).then(|| {
        let there = if c_library.is_empty() { "unknown" } else { c_library };
        format!(
            "its C library is {there}, and this program runs with {} here, parts of which may not be there: build it on the \
             oldest of the hosts, and copy that with --push",
            push.c_library
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    /// Each row: the output of ssh, part of the reported failure, and part of the next thing to try.
    const SAID: &[&str] = &[
        "user@h1: Permission denied (publickey).|ssh was refused|ssh-copy-id h1",
        "No ED25519 host key is known for h1 and you have requested strict checking.\nHost key verification failed.|its host key is unknown|`ssh h1`",
        "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key for h1 has changed\nHost key verification failed.|has changed|ssh-keygen -R h1",
        "ssh: Could not resolve hostname h1: Name or service not known|cannot be resolved|correct the name",
        "ssh: connect to host h1 port 22: Connection refused|no ssh server listens|sshd",
        "ssh: connect to host h1 port 22: Connection timed out|does not answer|firewall",
        "ssh: connect to host h1 port 22: No route to host|does not answer|is it up",
        "head: error writing 'standard output': No space left on device\ntonnage-lost|disk was full|make room",
        "tonnage-absent|is not there|--push",
        "error: unrecognized subcommand 'host-agent'|another version|--push",
        "/bin/sh: 1: exec: /opt/tonnage: Exec format error|another architecture|built for it",
        "/opt/tonnage: /lib/libc.so.6: version `GLIBC_2.39' not found|C library is too old|oldest",
        "what is this|ssh ended|BatchMode",
    ];

    #[test]
    fn known_ssh_failures_get_advice() {
        for row in SAID {
            let parts: Vec<&str> = row.split('|').collect();
            let said: Vec<String> = parts[0].lines().map(str::to_owned).collect();
            let message = explain_missing_agent("h1", &said, "ended with code 255");
            assert!(message.starts_with("h1: "), "{message}");
            says(&message, &parts[1..]);
            let has_own_words = ["tonnage-", "HOST`"].map(|word| message.contains(word));
            assert_eq!(has_own_words, [false; 2], "{message}");
        }
    }

    #[test]
    fn a_stalled_copy_is_reported_with_the_hosts_output() {
        let took = |said: &str| explain_failed_copy("h1", &[said.to_owned()], "took 7 bytes");
        let silent = took("tonnage-wanted x86_64 glibc 2.36");
        assert!(silent.starts_with("h1: took 7 bytes: "), "{silent}");
        let full = took("head: error writing 'standard output': No space left on device");
        assert!(full.starts_with("h1: the disk was full"), "{full}");
    }

    #[test]
    fn a_program_is_copied_only_to_hosts_where_it_can_run() {
        let push = Push {
            build: "b".into(),
            bytes: 1,
            architecture: "x86_64".into(),
            c_library: "glibc 2.36".into(),
        };
        for fits in [
            "x86_64 glibc 2.36",
            "x86_64 glibc 2.40",
            "x86_64 ldd (GNU libc) 2.39",
        ] {
            assert_eq!(explain_unrunnable(&push, fits), None, "{fits}");
        }
        for (found, parts) in [
            ("aarch64 glibc 2.40", ["aarch64", "x86_64"]),
            ("x86_64 glibc 2.9", ["glibc 2.9", "glibc 2.36"]),
            ("x86_64 musl libc (x86_64)", ["musl", "glibc 2.36"]),
            ("x86_64", ["unknown", "glibc 2.36"]),
        ] {
            let why = explain_unrunnable(&push, found).unwrap();
            says(&why, &parts);
        }
    }
}
