//! Facts about a run that the block shows and no record or option holds.

/// Facts about the run that the block shows and that are in neither record nor options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The words of the command line, the program's name first.
    pub command: Vec<String>,
    /// Nanoseconds since 1970 when the run began.
    pub began_unix_ns: u64,
    /// Version of tonnage.
    pub version: String,
}
