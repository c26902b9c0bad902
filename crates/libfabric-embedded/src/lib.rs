//! An embedded libfabric for hosts without one: core, tcp, rxm and shm, built from source with a C compiler.
//!
//! The crate holds the build (`build.rs`, `c/config.h`) and a table of the sizes, offsets and values that libfabric's
//! headers declare (`c/layout.c`). A test of `tonnage-sys` compares the table with its own declarations. Rust
//! declarations of libfabric's functions, and all calls of them, are in `tonnage-sys`, the only crate with `unsafe`.
//!
//! The licence of the C code is in docs/DEPENDENCIES.md.
#![forbid(unsafe_code)]

/// The release that is embedded, such as "1.22.0".
pub const VERSION: &str = env!("TONNAGE_LIBFABRIC_VERSION");

/// Does nothing, but a reference to this crate makes the linker include the C library. A crate that declares
/// libfabric's functions must call this once, anywhere.
pub fn link() {}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_that_of_the_source_tree_that_was_checked() {
        assert_eq!(super::VERSION, "1.22.0");
    }
}
