//! The engine that needs a device: it is counted in the guest of `make test-rdma`.

use tonnage_engine::find;
use tonnage_engines::ENGINES;
use tonnage_machine::devices::RdmaDevice;
use tonnage_machine::kernel_files::Tree;
use tonnage_plan::transfer::Pacing;

use super::{OPERATIONS, nothing_by};

#[test]
fn a_stream_over_verbs_allocates_nothing() {
    if RdmaDevice::all(&Tree::host()).is_empty() {
        println!(
            "skip: this host has no RDMA device; `make test-rdma` runs this where there are two"
        );
        return;
    }
    let entry = find(ENGINES, "verbs:rc").unwrap();
    let stream = Pacing::Stream { window: 64 };
    nothing_by(entry, "verbs:rc", stream, &|_| OPERATIONS).unwrap();
}
