//! Compares our declarations in [`super::abi`] with the headers of the embedded libfabric.
//!
//! The C side of the comparison is `crates/libfabric-embedded/c/layout.c`: add new declarations to both.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_char;

use super::abi;
use crate::library::text;

/// A row of the table in C.
#[repr(C)]
struct Row {
    name: *const c_char,
    value: u64,
    size: u64,
}

unsafe extern "C" {
    /// Returns a row that lives as long as the program; null after the last.
    safe fn tonnage_libfabric_layout(row: usize) -> *const Row;
}

/// Offset or value, and size, by the declaration's name.
type StructLayout = BTreeMap<String, (u64, u64)>;

/// Structs that we allocate and a library reads or writes: their size must be that of the headers. All others are
/// allocated by the library, and declared only with their leading part.
const ALLOCATED_BY_US: [&str; 9] = [
    "fid",
    "fi_av_attr",
    "fi_cq_attr",
    "fi_cq_data_entry",
    "fi_cq_err_entry",
    "fi_mr_attr",
    "fi_mr_dmabuf",
    "fi_msg_rma",
    "fi_rma_iov",
];

/// Fields newer than the embedded release, at the end of a struct that we allocate.
const NEWER: [&str; 2] = ["fi_mr_attr.base_mr", "fi_mr_attr.sub_mr_cnt"];

/// The layout according to the C compiler.
fn of_the_headers() -> StructLayout {
    tonnage_libfabric_embedded::link();
    let mut layout = StructLayout::new();
    for index in 0.. {
        let row = tonnage_libfabric_layout(index);
        // SAFETY: null, or a row of a constant table.
        let Some(row) = (unsafe { row.as_ref() }) else {
            break;
        };
        // SAFETY: the names are constant NUL-terminated strings.
        let name = unsafe { text(row.name) }.unwrap();
        assert!(
            layout.insert(name.clone(), (row.value, row.size)).is_none(),
            "{name} is twice in layout.c"
        );
    }
    layout
}

/// The layout according to the Rust compiler.
fn of_our_declarations() -> StructLayout {
    let mut all = abi::layouts();
    all.extend(abi::values());
    all.into_iter().collect()
}

#[test]
fn both_tables_are_of_the_same_declarations() {
    let ours: BTreeSet<String> = of_our_declarations().into_keys().collect();
    assert!(ours.contains("fi_info.nic") && ours.contains("FI_ENABLE"));
    let mut in_c: BTreeSet<String> = of_the_headers().into_keys().collect();
    in_c.extend(NEWER.map(str::to_owned));
    let missing: Vec<_> = ours.symmetric_difference(&in_c).collect();
    assert!(missing.is_empty(), "layout.c and abi.rs: {missing:?}");
}

/// Fields and constants match the headers. Structs have the headers' size, or are their leading part.
#[test]
fn every_declaration_matches_the_headers() {
    let (ours, headers) = (of_our_declarations(), of_the_headers());
    let is_newer = |name: &str| NEWER.contains(&name);
    for (name, layout) in &ours {
        let Some(bare) = name.strip_prefix("struct ") else {
            assert!(
                is_newer(name) || headers.get(name) == Some(layout),
                "{name}: {layout:?}, not {:?}",
                headers.get(name)
            );
            continue;
        };
        let (size, of_header) = (layout.1, headers[name].1);
        let newer = NEWER
            .iter()
            .filter(|newer| newer.starts_with(&format!("{bare}.")));
        let end = newer.map(|newer| ours[*newer].0).min().unwrap_or(size);
        if ALLOCATED_BY_US.contains(&bare) {
            assert_eq!(end, of_header, "{name}");
        } else {
            assert!(size <= of_header, "{name}: {size} > {of_header}");
        }
    }
}
