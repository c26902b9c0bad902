use super::*;
use crate::fixture::{Holds, cases, transfers};

const BASE: &str = "engine = 'shm'\nsizes = 8\nverify = true\n";

fn first(lines: &str) -> TransferPoint {
    transfers(&format!("{BASE}{lines}"), 2).unwrap().remove(0)
}

#[test]
fn a_local_order_is_in_the_point_only_if_it_differs() {
    let point = first("op = 'read'\ndepth = 1\naccess = 'random'\nlocal-access = 'fixed'");
    assert_eq!(point.slots.orders(), (Access::Fixed, Access::Random));
    assert_eq!(point.slots.local_access, Some(Access::Fixed));
    let same = first("op = 'read'\naccess = 'random'\nlocal-access = 'random'");
    assert_eq!(same, first("op = 'read'\naccess = 'random'"));
    assert_eq!(same.slots.orders(), (Access::Random, Access::Random));
}

/// Points in which different data may land in one slot at once, each with the expected advice.
const OVERLAPPING: [&str; 11] = [
    "op = 'read'; access = 'random'; local-access = 'fixed'; depth = 12 => depth 1",
    "op = 'write'; access = 'fixed'; local-access = 'sequential'; depth = 2 => depth 1",
    "op = 'send'; access = 'random'; local-access = 'sequential'; batch = 2 => batch 1",
    "op = 'write-imm'; local-access = 'random'; rate = '10k'; depth = 2 => depth 1",
    "op = 'write'; local-access = 'random'; batch = 8; footprint = 32 => batch 4 or less",
    "op = 'write'; local-access = 'random'; batch = 24; footprint = 32; threads = 4; batch-of = 'rank' => batch 16 or less",
    "op = 'write'; access = 'permuted'; local-access = 'sequential'; batch = 9; footprint = 96; threads = 2; batch-of = 'rank' => batch 8",
    "op = 'write'; local-access = 'random'; batch = 8; footprint = 32; batches-in-flight = 2 => batches-in-flight 1 and batch 4 or less",
    "op = 'write'; local-access = 'random'; batch = 4; footprint = 32; batches-in-flight = 2 => batches-in-flight 1",
    "op = 'write'; access = 'permuted'; local-access = 'sequential'; batch = 8; footprint = 96 => batch 6",
    "op = 'read'; access = 'sequential'; local-access = 'permuted'; depth = 8 => depth 1",
];

/// Points with known final data.
const KNOWN: &[&str] = &[
    "op = 'write'\naccess = 'random'\nlocal-access = 'fixed'\ndepth = 12",
    "op = 'read'\naccess = 'fixed'\nlocal-access = 'random'\ndepth = 12",
    "op = 'read'\naccess = 'random'\nlocal-access = 'fixed'\ndepth = 1",
    "op = 'read'\naccess = 'random'\nlocal-access = 'fixed'\nping-pong = true\nfootprint = 64",
    "op = 'write'\naccess = 'fixed'\nlocal-access = 'random'\ndepth = 8\nfootprint = 8",
    "op = 'write'\naccess = 'sequential'\nlocal-access = 'random'\nbatch = 8",
    "op = 'write'\naccess = 'random'\ndepth = 64",
    "op = 'write'\nlocal-access = 'random'\nbatch = 16\nfootprint = 32\nthreads = 4\nbatch-of = 'rank'",
    "op = 'write'\naccess = 'permuted'\nlocal-access = 'sequential'\nbatch = 7\nfootprint = 96\nthreads = 2\nbatch-of = 'rank'",
    "op = 'write'\naccess = 'permuted'\ndepth = 64",
    "op = 'write'\naccess = 'permuted'\nlocal-access = 'sequential'\nbatch = 8",
    "op = 'read'\naccess = 'permuted'\nlocal-access = 'fixed'\nping-pong = true",
];

/// Reads land at the initiator, all other operations at the target. A fixed source slot always sends the same data.
#[test]
fn final_data_is_unknown_only_if_different_data_land_at_once() {
    for (lines, part) in cases(OVERLAPPING) {
        let refused = transfers(&format!("{BASE}{lines}"), 2)
            .unwrap_err()
            .to_string();
        refused.holds("landings overlap");
        refused.holds(&format!("use {part}, or leave verify out"));
    }
    for lines in KNOWN {
        first(lines);
    }
    let unverified = BASE.replace("verify = true\n", "");
    let lines = "op = 'read'\naccess = 'random'\nlocal-access = 'fixed'\ndepth = 12";
    assert_eq!(
        transfers(&format!("{unverified}{lines}"), 2).unwrap().len(),
        1
    );
}
