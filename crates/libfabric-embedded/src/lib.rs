//! A libfabric of our own for hosts that have none: core, tcp, rxm and shm, compiled from its source by a C compiler.
//!
//! What lives here: the build (`build.rs`, `c/config.h`), and a table of the sizes, offsets and values that its headers
//! declare (`c/layout.c`), which a test of `tonnage-sys` compares with its own declarations. What does not: any Rust
//! declaration of libfabric's functions, and any call of them; those are in `tonnage-sys`, the only crate with
//! `unsafe`.
//!
//! The licence of the C code is in docs/DEPENDENCIES.md.
#![forbid(unsafe_code)]

/// The release that is embedded, such as "1.22.0".
pub const VERSION: &str = env!("TONNAGE_LIBFABRIC_VERSION");

/// Does nothing but name this crate, without which the linker would not see the C library: whoever declares its
/// functions calls this once, anywhere.
pub fn link() {}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_that_of_the_source_tree_that_was_checked() {
        assert_eq!(super::VERSION, "1.22.0");
    }
}
