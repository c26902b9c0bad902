//! Groups of aligned rows, common cells, and shortening of long text.

use tonnage_machine::devices::{PciFunction, PcieLink};
use tonnage_units::quantity::human::size;

/// Maximum number of names printed. The JSON has all of them.
const NAMES_SHOWN: usize = 6;

/// Maximum line width; longer lines are folded.
pub(super) const WIDTH: usize = 100;

/// Appends a heading and aligned rows. Leaves out a group without rows, because "Not here" lists it.
pub(super) fn group(page: &mut String, heading: &str, rows: &[DeviceRow]) {
    if rows.is_empty() {
        return;
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter(|row| row.len() > column + 1)
            .filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    page.push_str(&format!("\n{heading}\n"));
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        page.push_str(&folded(&format!("  {}", line.trim_end())));
    }
}

/// Folds a row that is too wide: breaks it at the last gap between cells or words that fits, and indents the rest.
pub(super) fn folded(line: &str) -> String {
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while rest.chars().count() > WIDTH {
        let end = rest
            .char_indices()
            .nth(WIDTH + 1)
            .map_or(rest.len(), |(at, _)| at);
        let indent = rest.len() - rest.trim_start().len();
        let body = rest.get(indent..end).unwrap_or_default();
        let Some(gap) = body.rfind("  ").or_else(|| body.rfind(' ')) else {
            break;
        };
        let (before, behind) = rest.split_at(indent + gap);
        lines.push(before.trim_end().to_owned());
        rest = format!("      {}", behind.trim_start());
    }
    lines.push(rest);
    lines.join("\n") + "\n"
}

pub(super) type DeviceRow = Vec<String>;

pub(super) fn row<const N: usize>(cells: [&str; N]) -> DeviceRow {
    cells.into_iter().map(str::to_owned).collect()
}

/// The first few names, and the number of remaining ones.
pub(super) fn shortened(names: &[&str]) -> String {
    let shown = names
        .iter()
        .take(NAMES_SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) fn free_of(free: Option<u64>, total: Option<u64>) -> String {
    match (free, total) {
        (Some(free), Some(total)) => format!("{}, {} free", size(total), size(free)),
        (None, Some(total)) => size(total),
        _ => "size unknown".to_owned(),
    }
}

/// NUMA node and PCIe link of a device, as two cells.
pub(super) fn place(pci: Option<&PciFunction>) -> [String; 2] {
    let numa = pci
        .and_then(|pci| pci.numa_node)
        .map(|node| format!("node {node}"));
    let link = pci.and_then(|pci| pci.link.as_ref()).map(pcie);
    [numa.unwrap_or_default(), link.unwrap_or_default()]
}

fn pcie(link: &PcieLink) -> String {
    let rate = link.bytes_per_s / 100_000_000;
    let now = format!(
        "PCIe {} x{}, {}.{} GB/s",
        link.generation,
        link.lanes,
        rate / 10,
        rate % 10
    );
    if !link.below_maximum {
        return now;
    }
    format!(
        "{now} (BELOW its maximum: PCIe {} x{})",
        link.generation_max, link.lanes_max
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_stands_out() {
        let mut link = PcieLink {
            generation: 4,
            lanes: 16,
            bytes_per_s: 31_507_692_304,
            generation_max: 4,
            lanes_max: 16,
            below_maximum: false,
        };
        assert_eq!(pcie(&link), "PCIe 4 x16, 31.5 GB/s");
        link.generation_max = 5;
        link.below_maximum = true;
        assert_eq!(
            pcie(&link),
            "PCIe 4 x16, 31.5 GB/s (BELOW its maximum: PCIe 5 x16)"
        );
    }
}
