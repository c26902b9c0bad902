use super::*;
use crate::fixture::{Holds, cases, transfers};

const BASE: &str = "engine = 'shm'\nsizes = 8\nverify = true\n";

fn first(lines: &str) -> TransferPoint {
    transfers(&format!("{BASE}{lines}"), 2).unwrap().remove(0)
}

#[test]
fn a_local_order_is_in_the_point_only_if_it_differs() {
    let point = first("op = 'read'\nwindow = 1\naddresses = 'random'\nlocal-addresses = 'fixed'");
    assert_eq!(point.slots.orders(), (Addresses::Fixed, Addresses::Random));
    assert_eq!(point.slots.local_addresses, Some(Addresses::Fixed));
    let same = first("op = 'read'\naddresses = 'random'\nlocal-addresses = 'random'");
    assert_eq!(same, first("op = 'read'\naddresses = 'random'"));
    assert_eq!(same.slots.orders(), (Addresses::Random, Addresses::Random));
}

/// Points that may land different data in one slot at once, each with the expected advice.
const OVERLAPPING: [&str; 11] = [
    "op = 'read'; addresses = 'random'; local-addresses = 'fixed'; window = 12 => window 1",
    "op = 'write'; addresses = 'fixed'; local-addresses = 'sequential'; window = 2 => window 1",
    "op = 'send'; addresses = 'random'; local-addresses = 'sequential'; batch = 2 => batch 1",
    "op = 'write-imm'; local-addresses = 'random'; rate = '10k'; window = 2 => window 1",
    "op = 'write'; local-addresses = 'random'; batch = 8; footprint = 32 => batch 4 or less",
    "op = 'write'; local-addresses = 'random'; batch = 24; footprint = 32; workers = 4; batch-of = 'rank' => batch 16 or less",
    "op = 'write'; addresses = 'permuted'; local-addresses = 'sequential'; batch = 9; footprint = 96; workers = 2; batch-of = 'rank' => batch 8",
    "op = 'write'; local-addresses = 'random'; batch = 8; footprint = 32; batches-in-flight = 2 => batches-in-flight 1 and batch 4 or less",
    "op = 'write'; local-addresses = 'random'; batch = 4; footprint = 32; batches-in-flight = 2 => batches-in-flight 1",
    "op = 'write'; addresses = 'permuted'; local-addresses = 'sequential'; batch = 8; footprint = 96 => batch 6",
    "op = 'read'; addresses = 'sequential'; local-addresses = 'permuted'; window = 8 => window 1",
];

/// Points with known final data.
const KNOWN: &[&str] = &[
    "op = 'write'\naddresses = 'random'\nlocal-addresses = 'fixed'\nwindow = 12",
    "op = 'read'\naddresses = 'fixed'\nlocal-addresses = 'random'\nwindow = 12",
    "op = 'read'\naddresses = 'random'\nlocal-addresses = 'fixed'\nwindow = 1",
    "op = 'read'\naddresses = 'random'\nlocal-addresses = 'fixed'\nping-pong = true\nfootprint = 64",
    "op = 'write'\naddresses = 'fixed'\nlocal-addresses = 'random'\nwindow = 8\nfootprint = 8",
    "op = 'write'\naddresses = 'sequential'\nlocal-addresses = 'random'\nbatch = 8",
    "op = 'write'\naddresses = 'random'\nwindow = 64",
    "op = 'write'\nlocal-addresses = 'random'\nbatch = 16\nfootprint = 32\nworkers = 4\nbatch-of = 'rank'",
    "op = 'write'\naddresses = 'permuted'\nlocal-addresses = 'sequential'\nbatch = 7\nfootprint = 96\nworkers = 2\nbatch-of = 'rank'",
    "op = 'write'\naddresses = 'permuted'\nwindow = 64",
    "op = 'write'\naddresses = 'permuted'\nlocal-addresses = 'sequential'\nbatch = 8",
    "op = 'read'\naddresses = 'permuted'\nlocal-addresses = 'fixed'\nping-pong = true",
];

/// Reads land at the initiator, all other operations at the target. A fixed source slot always sends the same data.
#[test]
fn final_data_is_unknown_only_if_different_data_land_at_once() {
    for (lines, part) in cases(OVERLAPPING) {
        let refused = transfers(&format!("{BASE}{lines}"), 2)
            .unwrap_err()
            .to_string();
        refused.holds("landings overlap");
        refused.holds(&format!("write {part}, or leave verify out"));
    }
    for lines in KNOWN {
        first(lines);
    }
    let unverified = BASE.replace("verify = true\n", "");
    let lines = "op = 'read'\naddresses = 'random'\nlocal-addresses = 'fixed'\nwindow = 12";
    assert_eq!(
        transfers(&format!("{unverified}{lines}"), 2).unwrap().len(),
        1
    );
}
