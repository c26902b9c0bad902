//! `completions` and `man`: what clap makes of the command line for shells and for man.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `tonnage completions`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct CompletionsArgs {
    /// The shell that is to read it, such as by `source <(tonnage completions bash)`.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell that completes words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// Into ~/.local/share/bash-completion/completions/tonnage, or by `source`.
    Bash,
    /// Into a file _tonnage in a directory of $fpath.
    Zsh,
    /// Into ~/.config/fish/completions/tonnage.fish.
    Fish,
}

/// `tonnage man`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ManArgs {
    /// The command whose page is printed; the page of the program when it is left out.
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,

    /// Write all pages into this directory, which is made where it is missing, such as ~/.local/share/man/man1.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}
