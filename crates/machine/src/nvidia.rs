//! The kernel driver of NVIDIA.

use super::kernel_files::Tree;

/// The version of NVIDIA's kernel driver, where it is loaded.
pub(super) fn nvidia_driver(tree: &Tree) -> Option<String> {
    tree.text("sys/module/nvidia/version").or_else(|| {
        let text = tree.text("proc/driver/nvidia/version")?;
        let words = text.lines().next()?.split_whitespace();
        let number = |word: &&str| {
            word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        };
        words.into_iter().find(number).map(str::to_owned)
    })
}
