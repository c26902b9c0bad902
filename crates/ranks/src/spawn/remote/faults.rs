//! Failures of ssh, of its script and of the program there: a message with the host and the next thing to try.

use std::time::Duration;

use super::list::without_user;

/// Signs in what ssh and the script said, in lower case, the failure that each means, and the next thing to try. The
/// first that fits counts.
const SIGNS: [(&[&str], &str, &str); 15] = [
    (
        &["identification has changed", "host key for", "offending"],
        "the host key has changed",
        "find out why, for somebody may stand in between; if it is right, run `ssh-keygen -R HOST`, then `ssh HOST` once",
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
        "no such name is known",
        "correct the name, or give it an address in DNS, /etc/hosts or ssh_config",
    ),
    (
        &["connection refused"],
        "nobody listens for ssh there",
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
        &["unrecognized subcommand", "unexpected argument"],
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

/// Most lines of ssh that a message repeats.
const LINES_MAX: usize = 3;

/// Describes why there is no agent on a host: `said` are lines of ssh and of the script, `ended` is how ssh ended.
pub(super) fn no_agent(host: &str, said: &[String], ended: &str) -> String {
    known(host, said).unwrap_or_else(|| {
        let quoted = quoted(said);
        format!(
            "{host}: ssh {ended} before the program there answered{quoted}: does `ssh -o BatchMode=yes {host} true` work?"
        )
    })
}

/// Describes a host that took only so many bytes of the program in a time.
pub(super) fn not_copied(host: &str, said: &[String], bytes: u64, time: Duration) -> String {
    not_whole(
        host,
        said,
        &format!("took only {bytes} bytes of the program in {time:.1?}"),
    )
}

/// Describes a host that took so many bytes of the program, and then none for a time.
pub(super) fn stopped_copying(host: &str, said: &[String], bytes: u64, time: Duration) -> String {
    let what = format!("took {bytes} bytes of the program and then none for {time:.1?}");
    not_whole(host, said, &what)
}

fn not_whole(host: &str, said: &[String], what: &str) -> String {
    known(host, said).unwrap_or_else(|| {
        let quoted = quoted(said);
        format!(
            "{host}: {what}{quoted}: is its link slow, or its disk stuck? Install the program there, and leave --push out"
        )
    })
}

/// The failure that a sign in what was said means, and the next thing to try; `None` where no sign is known.
fn known(host: &str, said: &[String]) -> Option<String> {
    let lower = said.join("\n").to_lowercase();
    let found = SIGNS
        .iter()
        .find(|(signs, ..)| signs.iter().any(|sign| lower.contains(sign)));
    let (_, what, how) = found?;
    // Keys of hosts are kept without users.
    let alone = without_user(host);
    let how = how.replace("-R HOST", &format!("-R {alone}"));
    let how = how.replace("ssh-keyscan HOST", &format!("ssh-keyscan {alone}"));
    let quoted = quoted(said);
    Some(format!(
        "{host}: {what}{quoted}: {}",
        how.replace("HOST", host)
    ))
}

/// The last lines of what was said, in brackets.
fn quoted(said: &[String]) -> String {
    let is_ours = |line: &&String| line.starts_with("tonnage-");
    // The last ones say why.
    let lines: Vec<&str> = said
        .iter()
        .filter(|line| !is_ours(line) && !line.trim().is_empty())
        .map(|line| line.trim())
        .collect();
    let last = lines
        .get(lines.len().saturating_sub(LINES_MAX)..)
        .unwrap_or_default();
    match last.is_empty() {
        true => String::new(),
        false => format!(" ({})", last.join("; ")),
    }
}

/// Describes why a host was not asked while there was time.
pub(super) fn passed_over(host: &str, waited: Duration) -> String {
    format!(
        "{host}: was not reached in {waited:.1?} behind others: raise --ssh-parallel or --budget"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &[(&str, &str, &str)] = &[
        (
            "user@h1: Permission denied (publickey).",
            "ssh was refused",
            "ssh-copy-id h1",
        ),
        (
            "No ED25519 host key is known for h1 and you have requested strict checking.\nHost key verification failed.",
            "its host key is unknown",
            "`ssh h1`",
        ),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key for h1 has changed\nHost key verification failed.",
            "has changed",
            "ssh-keygen -R h1",
        ),
        (
            "ssh: Could not resolve hostname h1: Name or service not known",
            "no such name",
            "correct the name",
        ),
        (
            "ssh: connect to host h1 port 22: Connection refused",
            "nobody listens",
            "sshd",
        ),
        (
            "ssh: connect to host h1 port 22: Connection timed out",
            "does not answer",
            "firewall",
        ),
        (
            "ssh: connect to host h1 port 22: No route to host",
            "does not answer",
            "is it up",
        ),
        (
            "head: error writing 'standard output': No space left on device\ntonnage-lost",
            "disk was full",
            "make room",
        ),
        ("tonnage-absent", "is not there", "--push"),
        (
            "error: unrecognized subcommand 'host-agent'",
            "another version",
            "--push",
        ),
        (
            "/bin/sh: 1: exec: /opt/tonnage: Exec format error",
            "another architecture",
            "built for it",
        ),
        (
            "/opt/tonnage: /lib/libc.so.6: version `GLIBC_2.39' not found",
            "C library is too old",
            "oldest",
        ),
        ("what is this", "ssh ended", "BatchMode"),
    ];

    #[test]
    fn words_of_ssh_get_the_next_thing_to_try() {
        for (said, what, how) in SAID {
            let said: Vec<String> = said.lines().map(str::to_owned).collect();
            let message = no_agent("h1", &said, "ended with code 255");
            assert!(
                message.starts_with("h1: ") && message.contains(what) && message.contains(how),
                "{message}"
            );
            assert!(
                !message.contains("tonnage-") && !message.contains("HOST`"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_copy_that_does_not_go_on_is_told_with_its_bytes_and_what_the_host_says() {
        let took = |said: &str| {
            let said: Vec<String> = said.lines().map(str::to_owned).collect();
            not_copied("h1", &said, 65536, Duration::from_secs(30))
        };
        let silent = took("tonnage-wanted x86_64 glibc 2.36");
        assert!(
            silent.starts_with("h1: took only 65536 bytes of the program in 30.0s: "),
            "{silent}"
        );
        let full = took("head: error writing 'standard output': No space left on device");
        assert!(full.starts_with("h1: the disk was full"), "{full}");
    }
}
