//! `--version`: the build of this program, and the embedded libraries.

use std::sync::OnceLock;

use crate::build;
use tonnage_sys::libfabric::EMBEDDED_VERSION;

/// Returns the version and the revision, which `-V` prints after the program's name. clap requires a static text.
pub fn short() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), build().revision))
}

/// Returns the text that `--version` prints after the program's name.
pub fn long() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let (short, target) = (short(), build().target);
        format!(
            "{short}\n\
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
        assert!(text.starts_with(short()), "{text}");
        // The compiled library reports its own release.
        let release = Libfabric::embedded().release();
        assert!(
            text.contains(&format!("inside: libfabric {release}.")),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
