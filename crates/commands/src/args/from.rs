//! `tonnage from`: another benchmark's command line.

use std::ffi::OsString;

use clap::Args;

/// `tonnage from`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct FromArgs {
    /// Command line of perftest, fabtests, iperf3, OSU, nccl-tests, IOR, fio, ucx_perftest or nixlbench, with or
    /// without quotes.
    #[arg(
        value_name = "LINE",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}
