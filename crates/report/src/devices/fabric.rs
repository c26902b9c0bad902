//! Draws one table per libfabric library that this program can use. Libraries with equal rows share a table, and
//! domains of a provider with equal properties share a row.
//!
//! The tables leave out some properties; the JSON has them all.

use std::collections::BTreeSet;

use tonnage_machine::devices::{FabricLibrary, FabricOffer};
use tonnage_units::quantity::human::{link_speed, size};

use super::rows::{DeviceRow, row, shortened};

/// Orderings between messages, reads and writes of all kinds.
const ORDERS: [&str; 9] = [
    "RAR", "RAW", "RAS", "WAR", "WAW", "WAS", "SAR", "SAW", "SAS",
];

/// Heading of the table of libraries with equal rows.
pub fn heading(libraries: &[&FabricLibrary]) -> String {
    let one = |library: &&FabricLibrary| format!("libfabric {}, {}", library.version, library.path);
    let libraries: Vec<String> = libraries.iter().map(one).collect();
    format!("Fabric providers ({})", libraries.join("; the same in "))
}

/// Groups libraries whose rows are equal, with these rows. Libraries that offer nothing are left out.
pub fn tables(libraries: &[FabricLibrary]) -> Vec<(Vec<&FabricLibrary>, Vec<DeviceRow>)> {
    let mut tables: Vec<(Vec<&FabricLibrary>, Vec<DeviceRow>)> = Vec::new();
    for library in libraries {
        let rows = rows(library);
        match tables.iter_mut().find(|(_, known)| *known == rows) {
            Some((known, _)) => known.push(library),
            None if rows.is_empty() => (),
            None => tables.push((vec![library], rows)),
        }
    }
    tables
}

/// Rows of a library's table; empty if it offers nothing.
fn rows(library: &FabricLibrary) -> Vec<DeviceRow> {
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
        cells.insert(1, shortened(&domains.into_iter().collect::<Vec<_>>()));
        cells
    };
    let mut rows = vec![row([
        "provider",
        "devices",
        LINK,
        "depth",
        "copied",
        "GPUs",
        "order kept",
        "registration",
    ])];
    rows.extend(lines.into_iter().map(line));
    // The legend is a single cell, so that it does not widen the columns above.
    rows.push(row([
        "depth: operations in flight; copied: largest message whose buffer is free at once; GPUs: takes memory of GPUs",
    ]));
    let link = rows[0].iter().position(|head| head == LINK);
    if let Some(at) = link.filter(|&at| is_unknown(&rows[1..], at)) {
        let rows = rows.iter_mut().filter(|row| row.len() > at);
        rows.for_each(|row| drop(row.remove(at)));
    }
    rows
}

/// Whether no row has text in this column.
fn is_unknown(rows: &[DeviceRow], column: usize) -> bool {
    let mut cells = rows.iter().filter_map(|row| row.get(column));
    cells.all(String::is_empty)
}

/// Heading of the column of link speeds. Most providers do not report a speed, so the column may be left out.
const LINK: &str = "link";

/// The `mr_mode` bit of providers that accept GPU memory.
const GPU_MEMORY: &str = "hmem";

fn cells(provider: &str, offer: &FabricOffer) -> DeviceRow {
    let (gpu, bits): (Vec<&String>, Vec<&String>) =
        offer.mr_mode.iter().partition(|bit| *bit == GPU_MEMORY);
    let registration: Vec<&str> = bits.iter().map(|bit| registration(bit)).collect();
    let registration = match registration.is_empty() {
        true => "no conditions".to_owned(),
        false => registration.join(", "),
    };
    row([
        provider,
        &offer.link_bits_per_s.map_or_else(String::new, link_speed),
        &offer.tx_depth.to_string(),
        &size(offer.inject_bytes_max),
        if gpu.is_empty() { "no" } else { "yes" },
        &ordering(&offer.ordering),
        &registration,
    ])
}

/// Describes a condition on registered memory.
fn registration(bit: &str) -> &str {
    match bit {
        "virt-addr" => "virtual addresses",
        "prov-key" => "provider's keys",
        "local" => "local buffers too",
        "allocated" => "allocated pages",
        other => other,
    }
}

/// Lists the guaranteed orderings, or "all but" the missing ones if those are fewer. Orderings that hold only for RMA
/// are added at the end.
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
    fn libraries_that_offer_the_same_are_one_table() {
        let library = library();
        let mut page = String::new();
        let mut older = library.clone();
        older.version = "1.17".to_owned();
        let libraries = [library, older];
        let tables = tables(&libraries);
        assert_eq!(tables.len(), 1);
        let (libraries, rows) = &tables[0];
        group(&mut page, &heading(libraries), rows);
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
