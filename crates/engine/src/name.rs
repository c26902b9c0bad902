//! Names of engines and memories as users write them: a row's name and, after a colon, a variant.
//!
//! Looking up a name in a list is in `lists`.

/// The part of an engine's or a memory's name after a colon.
#[derive(Debug, Clone, Copy)]
pub struct NameVariant {
    /// Placeholder for the variant, in capitals, for help and messages.
    pub what: &'static str,
    /// Values that exist on every machine.
    pub everywhere: &'static [&'static str],
    /// Values that exist on a machine with the right device.
    pub with_device: &'static [&'static str],
    /// Values that support only reads and writes.
    pub one_sided: &'static [&'static str],
    /// True if the name needs a variant.
    pub required: bool,
}

impl NameVariant {
    /// Full names with each of these values, as examples.
    pub fn examples(&self, name: &str) -> Vec<String> {
        let all = self.everywhere.iter().chain(self.with_device);
        all.map(|value| format!("{name}:{value}")).collect()
    }
}

/// Splits the value of `--engine` or `--memory` into name and variant. Without a colon, the variant is empty.
pub fn split_name(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or((name, ""))
}
