//! Units of headers, and the other units of the same quantity.

/// A unit, and the factor that converts a value from the unit of CSV to this unit.
pub type Unit = (&'static str, f64);

pub(crate) const GIBI: f64 = (1u64 << 30) as f64;
pub(crate) const MEBI: f64 = (1u64 << 20) as f64;

/// Units of bandwidth.
pub const BANDWIDTHS: &[Unit] = &[
    ("GB/s", 1e-9),
    ("MB/s", 1e-6),
    ("Gb/s", 8e-9),
    ("Mb/s", 8e-6),
    ("GiB/s", 1.0 / GIBI),
    ("MiB/s", 1.0 / MEBI),
    ("Gib/s", 8.0 / GIBI),
];

/// Units of time, from the smallest on.
pub const TIMES: &[Unit] = &[("ns", 1.0), ("us", 1e-3), ("ms", 1e-6), ("s", 1e-9)];

const FAMILIES: &[&[Unit]] = &[
    BANDWIDTHS,
    TIMES,
    &[("op/s", 1.0), ("kop/s", 1e-3), ("Mop/s", 1e-6)],
];

/// Returns all units of the quantity that `unit` measures.
pub fn units_like(unit: &str) -> Option<&'static [Unit]> {
    let mut families = FAMILIES.iter();
    families
        .find(|family| factor(family, unit).is_some())
        .copied()
}

/// Looks up the factor of `unit` in `units`.
pub fn factor(units: &[Unit], unit: &str) -> Option<f64> {
    let found = units.iter().find(|(name, _)| *name == unit);
    found.map(|(_, factor)| *factor)
}

/// Splits a header into its name and its unit.
pub fn split_header(header: &str) -> (&str, &str) {
    let unit = header
        .rsplit_once(" (")
        .and_then(|(stem, unit)| Some((stem, unit.strip_suffix(')')?)));
    unit.unwrap_or((header, ""))
}
