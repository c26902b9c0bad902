//! The result block with `-O summaryFormat=CSV`.

use super::figures::{Figures, Pass};
use crate::ior::options::IorOptions;

/// A head and one line for each pass.
pub fn render(options: &IorOptions, figures: &Figures, tasks: u32) -> String {
    let mut out = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter\n"
        .to_owned();
    for pass in &figures.passes {
        out.push_str(&line(options, pass, tasks));
    }
    out
}

fn line(options: &IorOptions, pass: &Pass, tasks: u32) -> String {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let values = [
        pass.bandwidth_mib_per_s,
        pass.operations_per_s,
        pass.latency_s,
        kib(options.block_bytes),
        kib(options.transfer_bytes),
        pass.open_s,
        pass.transfer_s,
        pass.close_s,
        pass.total_s,
    ];
    let values = values.map(|value| format!("{value:.4}")).join(",");
    format!("{},{values},{tasks},{}\n", pass.access, pass.repetition)
}
