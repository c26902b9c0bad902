//! `--version`: the build of this program, and the libraries that are inside it.

use std::sync::OnceLock;

use tonnage_sys::libfabric::EMBEDDED_VERSION;

/// Version and revision: the words that `-V` prints behind the name.
pub const SHORT: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("TONNAGE_GIT_REVISION"),
    ")"
);

/// Words that `--version` prints behind the name. They stay for the life of the process, as clap wants it.
pub fn long() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let target = env!("TONNAGE_TARGET");
        format!(
            "{SHORT}\n\
             built for: {target}\n\
             inside: libfabric {EMBEDDED_VERSION} with the providers tcp, rxm and shm, for hosts that have none\n\
             not inside, but loaded where a run asks for them: libfabric, libibverbs, librdmacm, libmlx5, libpmix, MPI\n\
             licences: MIT or Apache-2.0; of libfabric BSD-2-Clause or GPL-2.0"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_sys::libfabric::Libfabric;

    #[test]
    fn the_long_version_names_revision_and_libraries() {
        let text = long();
        assert!(text.starts_with(SHORT), "{text}");
        // What the compiled library says of itself.
        let release = Libfabric::embedded().release();
        assert!(
            text.contains(&format!("inside: libfabric {release}.")),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        assert!(!SHORT.contains("()"), "{SHORT}");
    }
}
