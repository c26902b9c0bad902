//! The result block for `-O summaryFormat=CSV`.

use tonnage_plan::files::FilePoint;

use super::figures::{BlockFigures, Pass};

pub(super) const HEAD: &str = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter\n";

/// Returns a header and one line per pass.
pub fn render(point: &FilePoint, figures: &BlockFigures) -> String {
    let mut out = HEAD.to_owned();
    for pass in &figures.passes {
        out.push_str(&line(point, pass));
    }
    out
}

fn line(point: &FilePoint, pass: &Pass) -> String {
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    let values = [
        pass.bandwidth_mib_per_s,
        pass.operations_per_s,
        pass.latency_s,
        kib(point.block_bytes),
        kib(point.transfer_bytes),
        pass.open_s,
        pass.transfer_s,
        pass.close_s,
        pass.total_s,
    ];
    let values = values.map(|value| format!("{value:.4}")).join(",");
    format!(
        "{},{values},{},{}\n",
        pass.access, point.ranks, pass.repetition
    )
}
