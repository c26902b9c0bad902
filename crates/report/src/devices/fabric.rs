//! Draws one table per libfabric that this program can use. Domains of a provider with equal properties share a row.
//!
//! Only formatting is here. The JSON has the complete data.

use std::collections::BTreeSet;

use tonnage_machine::devices::{FabricLibrary, FabricOffer};
use tonnage_units::quantity::human::{link_speed, size};

use super::rows::{DeviceRow, row, shortened};

/// Larger limits are unreachable and count as unlimited.
const REACHABLE_BYTES_MAX: u64 = 1 << 50;

/// Orderings between messages, reads and writes of all kinds.
const ORDERS: [&str; 9] = [
    "RAR", "RAW", "RAS", "WAR", "WAW", "WAS", "SAR", "SAW", "SAS",
];

/// Heading of a library's table.
pub fn heading(library: &FabricLibrary) -> String {
    format!("libfabric {}: {}", library.version, library.path)
}

/// Rows of a library's table; empty if it offers nothing.
pub fn rows(library: &FabricLibrary) -> Vec<DeviceRow> {
    let mut lines: Vec<(DeviceRow, BTreeSet<&str>)> = Vec::new();
    for provider in &library.providers {
        for offer in &provider.offers {
            let cells = cells(&provider.name, offer);
            let domains = offer.domains.keys().map(String::as_str);
            // Offers that differ only in hidden properties share a row.
            match lines.iter_mut().find(|(known, _)| *known == cells) {
                Some((_, known)) => known.extend(domains),
                None => lines.push((cells, domains.collect())),
            }
        }
    }
    if lines.is_empty() {
        return Vec::new();
    }
    let line = |(mut cells, domains): (DeviceRow, BTreeSet<&str>)| {
        cells.push(shortened(&domains.into_iter().collect::<Vec<_>>()));
        cells
    };
    let mut rows = vec![row([
        "provider",
        "endpoint",
        "queue",
        "inject",
        "immediate",
        "message",
        "registration",
        "ordering",
        "progress",
        "threads",
        "link",
        "domains",
    ])];
    rows.extend(lines.into_iter().map(line));
    rows
}

fn cells(provider: &str, offer: &FabricOffer) -> DeviceRow {
    let message = match offer.message_bytes_max {
        REACHABLE_BYTES_MAX.. => "any".to_owned(),
        bytes => size(bytes),
    };
    let registration = match offer.mr_mode.as_slice() {
        [] => "as is".to_owned(),
        bits => bits.join("+"),
    };
    let progress = match (&offer.control_progress, &offer.data_progress) {
        (control, data) if control == data => data.clone(),
        (control, data) => format!("{control}/{data}"),
    };
    row([
        provider,
        &offer.endpoint,
        &offer.tx_depth.to_string(),
        &size(offer.inject_bytes_max),
        &size(offer.immediate_bytes),
        &message,
        &registration,
        &ordering(&offer.ordering),
        &progress,
        &offer.threading,
        &offer
            .link_bits_per_s
            .map_or_else(|| "?".to_owned(), link_speed),
    ])
}

/// Guaranteed orderings, or the missing ones if these are fewer. Orderings for RMA only are added unless they hold for
/// everything.
fn ordering(kept: &[String]) -> String {
    let is_kept = |order: &str| kept.iter().any(|kept| kept == order);
    let (all, lost): (Vec<&str>, Vec<&str>) = ORDERS.iter().partition(|order| is_kept(order));
    let mut words = match (all.as_slice(), lost.as_slice()) {
        (_, []) => vec!["all"],
        (all, lost) if lost.len() < all.len() => [&["all but"], lost].concat(),
        (all, _) => all.to_vec(),
    };
    let of_rma = |order: &&String| order.strip_prefix("RMA-").is_some_and(|all| !is_kept(all));
    words.extend(kept.iter().filter(of_rma).map(String::as_str));
    if words.is_empty() {
        words.push("none");
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::rows::group;
    use super::*;

    fn library() -> FabricLibrary {
        let text = r#"{
            "path": "/usr/lib/libfabric.so.1", "version": "1.22", "embedded": false, "parts": ["shm", "tcp", "verbs"],
            "providers": [
                { "name": "shm", "version": "122.0", "offers": [{
                    "endpoint": "rdm", "transfers": ["msg", "rma"], "tx_depth": 1024, "rx_depth": 1024,
                    "inject_bytes_max": 4096, "immediate_bytes": 8, "message_bytes_max": 18446744073709551615,
                    "mr_mode": ["virt-addr"], "ordering": ["SAS"], "control_progress": "manual",
                    "data_progress": "manual", "threading": "domain", "domains": { "shm": ["shm"] }
                }] },
                { "name": "tcp", "version": "122.0", "offers": [{
                    "endpoint": "rdm", "transfers": ["msg", "rma"], "tx_depth": 256, "rx_depth": 65536,
                    "inject_bytes_max": 128, "immediate_bytes": 8, "message_bytes_max": 18446744073709551615,
                    "mr_mode": [], "control_progress": "auto", "data_progress": "auto", "threading": "safe",
                    "ordering": ["RAR", "RAW", "RAS", "WAW", "WAS", "SAW", "SAS", "RMA-RAR", "RMA-RAW", "RMA-WAW"],
                    "domains": { "eth0": ["10.0.0.0/24", "fe80::/64"] }
                }, {
                    "endpoint": "rdm", "transfers": ["msg", "rma"], "tx_depth": 256, "rx_depth": 1024,
                    "inject_bytes_max": 128, "immediate_bytes": 8, "message_bytes_max": 18446744073709551615,
                    "mr_mode": [], "control_progress": "auto", "data_progress": "auto", "threading": "safe",
                    "ordering": ["RAR", "RAW", "RAS", "WAW", "WAS", "SAW", "SAS"],
                    "domains": { "eth0": ["10.0.0.0/24"], "lo": ["127.0.0.1/32"] }
                }] },
                { "name": "verbs;ofi_rxm", "version": "122.0", "offers": [{
                    "endpoint": "rdm", "transfers": ["msg", "rma"], "tx_depth": 2048, "rx_depth": 2048,
                    "inject_bytes_max": 64, "immediate_bytes": 4, "message_bytes_max": 1073741824,
                    "mr_mode": ["local", "prov-key"], "ordering": [], "control_progress": "auto",
                    "data_progress": "manual", "threading": "safe", "link_bits_per_s": 200000000000,
                    "domains": { "mlx5_0": ["IB-0xfe80000000000000"] }
                }] }
            ]
        }"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_library_is_a_table_of_what_differs() {
        let library = library();
        let mut page = String::new();
        group(&mut page, &heading(&library), &rows(&library));
        insta::assert_snapshot!(page);
    }

    #[test]
    fn orders_are_named_in_few_words() {
        let words = |orders: &[&str]| {
            let owned: Vec<String> = orders.iter().map(|&order| order.to_owned()).collect();
            ordering(&owned)
        };
        assert_eq!(words(&[]), "none");
        assert_eq!(words(&ORDERS), "all");
        assert_eq!(words(&ORDERS[1..]), "all but RAR");
        assert_eq!(words(&["SAS", "RMA-WAW"]), "SAS RMA-WAW");
        assert_eq!(words(&["WAW", "RMA-WAW"]), "WAW");
    }

    #[test]
    fn a_library_without_offers_has_no_lines() {
        let mut library = library();
        library.providers.clear();
        assert!(rows(&library).is_empty());
    }
}
