//! Names of engines and memories as users write them: a row's name and, after a colon, a variant.
//!
//! Looking a name up in a list is in `lists`.

/// The part of an engine's or a memory's name after a colon.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its meaning, in capitals, for help and messages.
    pub what: &'static str,
    /// Values that every machine has.
    pub everywhere: &'static [&'static str],
    /// Values that a machine with the right device has.
    pub with_device: &'static [&'static str],
    /// Values with which only reads and writes can be had.
    pub one_sided: &'static [&'static str],
    /// True when the name means nothing without one.
    pub required: bool,
}

impl Variant {
    /// Names of an engine or a memory with each of these values, which are examples.
    pub fn examples(&self, name: &str) -> Vec<String> {
        let all = self.everywhere.iter().chain(self.with_device);
        all.map(|value| format!("{name}:{value}")).collect()
    }
}

/// Splits what `--engine` or `--memory` was given into name and variant; the variant of "shm" is empty.
pub fn split_name(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or((name, ""))
}
