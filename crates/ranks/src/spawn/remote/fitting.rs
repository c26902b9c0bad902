//! Programs that are there already, and this one where it may be copied to.

use super::command::PushedProgram;
use super::words::{AgentHello, Build};

/// This program, for hosts that lack it.
#[derive(Debug, Clone)]
pub struct Push {
    /// Its content's hash and its length.
    pub program: PushedProgram,
    /// Its architecture, as `uname -m` names it.
    pub architecture: String,
    /// Its C library, such as "glibc 2.36".
    pub c_library: String,
}

/// Describes a program that is not this one.
pub(super) fn other_build(host: &str, hello: &AgentHello, build: &Build) -> String {
    let there = &hello.build;
    format!(
        "{host}: tonnage {} ({}) is there as {}, and this is {} ({}): install the same on both, or add --push to copy \
         this one",
        there.version, there.revision, hello.program, build.version, build.revision
    )
}

/// Reason why this program cannot run where `uname -m` and the C library are these.
pub(super) fn cannot_run(push: &Push, found: &str) -> Option<String> {
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
    let is_glibc = |text: &str| {
        let lower = text.to_lowercase();
        lower.contains("glibc") || lower.contains("gnu libc")
    };
    let fits = is_glibc(c_library) && version(c_library) >= version(&push.c_library);
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

    #[test]
    fn a_program_is_copied_only_where_it_can_run() {
        let push = Push {
            program: PushedProgram {
                build: "b".into(),
                bytes: 1,
            },
            architecture: "x86_64".into(),
            c_library: "glibc 2.36".into(),
        };
        for fits in [
            "x86_64 glibc 2.36",
            "x86_64 glibc 2.40",
            "x86_64 ldd (GNU libc) 2.39",
        ] {
            assert_eq!(cannot_run(&push, fits), None, "{fits}");
        }
        for (found, parts) in [
            ("aarch64 glibc 2.40", ["aarch64", "x86_64"]),
            ("x86_64 glibc 2.9", ["glibc 2.9", "glibc 2.36"]),
            ("x86_64 musl libc (x86_64)", ["musl", "glibc 2.36"]),
            ("x86_64", ["unknown", "glibc 2.36"]),
        ] {
            let why = cannot_run(&push, found).unwrap();
            assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        }
    }
}
