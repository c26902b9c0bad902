//! How much of the moved data a transfer compares, and options that cannot be combined with comparing every operation.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::options::Transfer;
use super::point::{CqMode, Pacing, TransferApi, TransferPoint};
use super::slots::TargetFootprint;
use crate::point::BoundChoice;
use crate::refuse::usage_error;
use crate::skipping;
use tonnage_engine::{Entry, Lists, Verb, split_name};
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

/// Operations with verified data. Records and plans write `false`, `true` and `"each"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verification {
    /// No operation.
    #[default]
    Off,
    /// The last operation in each slot, after each trial and outside its measured interval.
    Last,
    /// Every operation, before its slot is used again and inside the measured interval.
    Each,
}

impl Verification {
    /// Returns whether anything is compared.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    /// Returns whether every operation is compared.
    pub fn is_each(self) -> bool {
        self == Self::Each
    }
}

impl FromStr for Verification {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "last" => Ok(Self::Last),
            "each" => Ok(Self::Each),
            _ => usage_error(format!(
                "{} is not a verification: use last or each",
                quote(text)
            )),
        }
    }
}

impl Serialize for Verification {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Off | Self::Last => serializer.serialize_bool(self.is_on()),
            Self::Each => serializer.serialize_str("each"),
        }
    }
}

impl<'de> Deserialize<'de> for Verification {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(VerificationVisitor)
    }
}

struct VerificationVisitor;

impl Visitor<'_> for VerificationVisitor {
    type Value = Verification;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, \"last\" or \"each\"")
    }

    fn visit_bool<E: de::Error>(self, is_on: bool) -> std::result::Result<Self::Value, E> {
        Ok(if is_on {
            Verification::Last
        } else {
            Verification::Off
        })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Verification {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Verification".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Operations with compared data: none, the last one in each slot, or every one.",
            "enum": [false, true, "each"],
        })
    }
}

/// Returns why an engine cannot carry the messages by which both ends compare every operation. Returns `None` if it can
/// carry them.
fn lacks_messages(entry: &Entry, engine: &str) -> Option<&'static str> {
    let (_, variant) = split_name(engine);
    let is_carried = entry
        .variant
        .is_some_and(|known| known.one_sided.contains(&variant));
    match () {
        () if !entry.moves_bytes => Some("moves no bytes"),
        () if entry.device_memory.is_some() => {
            Some("moves memory of a device, and the CPU has to read each operation's data")
        }
        () if is_carried => Some("carries out whole trials, not single operations"),
        () if !entry.verbs.contains(&Verb::Write) => Some("has no op write to report results by"),
        () => None,
    }
}

/// Returns whether every operation of an engine can be compared, if the CPU can address the memory.
pub fn compares_each(entry: &Entry, engine: &str) -> bool {
    lacks_messages(entry, engine).is_none()
}

/// Refuses comparing every operation if the engine or a memory does not support it.
pub(super) fn check_engine(
    transfer: &Transfer,
    point: &TransferPoint,
    entry: &Entry,
    lists: &Lists,
) -> Result<()> {
    if !point.verify.is_each() || point.op.is_atomic() {
        return Ok(());
    }
    let engine = &point.engine;
    if let Some(why) = lacks_messages(entry, engine) {
        let instead = if entry.moves_bytes {
            "use --verify=last"
        } else {
            "leave --verify out"
        };
        return usage_error(format!(
            "--verify=each is not possible with --engine {engine}, which {why}: {instead}, or another engine such \
             as shm"
        ));
    }
    for name in point.memories.names() {
        if let Some(memory) = skipping::memory(lists, name, &transfer.skipping)?
            && !memory.host_addressable
        {
            return usage_error(format!(
                "--verify=each reads each operation's data by the CPU, which cannot address memory {}: use \
                 --verify=last, or --memory host",
                memory.name
            ));
        }
    }
    Ok(())
}

/// Refuses options that cannot be combined with comparing every operation.
pub(super) fn check_each(transfer: &Transfer, point: &TransferPoint) -> Result<()> {
    if !point.verify.is_each() {
        return Ok(());
    }
    let copies = !point.op.is_atomic();
    let marked = point.op == Verb::Write && point.pacing == Pacing::PingPong;
    let refused = match () {
        () if transfer
            .measure
            .bound
            .is_some_and(|bound| bound != BoundChoice::None) =>
        {
            Some((
                "bound",
                "its bandwidth contains the comparisons",
                "leave --bound out",
            ))
        }
        () if !transfer.measure.published.is_empty() => Some((
            "published",
            "its figures are not compared with others",
            "leave --published out",
        )),
        () if point.background.is_some() => Some((
            "background",
            "a load that waits for comparisons is not a load",
            "leave --background out",
        )),
        () if copies && point.cq == CqMode::Event => Some((
            "cq event",
            "targets poll memory for messages, which wake no sleeping thread",
            "use --cq busy",
        )),
        () if copies && point.api != TransferApi::Engine => Some((
            "api",
            "the library has no lane for the messages of both ends",
            "use --api engine",
        )),
        () if copies && point.slots.target_footprint == TargetFootprint::Shared => Some((
            "target-footprint shared",
            "a target changes its data before each read",
            "use --target-footprint own",
        )),
        () if marked && point.slots.size_bytes < 2 => Some((
            "sizes 1",
            "the only byte of a written ping is its signal",
            "use --sizes 2",
        )),
        () => None,
    };
    match refused {
        Some((option, why, instead)) => usage_error(format!(
            "--verify=each and --{option} do not go together, because {why}: {instead}, or use --verify=last"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, transfers};

    #[test]
    fn plans_write_a_switch_or_the_compared_operations() {
        for (text, expected) in [
            ("false", Verification::Off),
            ("true", Verification::Last),
            ("'last'", Verification::Last),
            ("'each'", Verification::Each),
        ] {
            let lines = format!("engine = 'shm'\nop = 'write'\nsizes = 8\nverify = {text}");
            let found = transfers(&lines, 4).unwrap().remove(0).verify;
            assert_eq!(found, expected, "{text}");
            let json = serde_json::to_string(&found).unwrap();
            assert_eq!(serde_json::from_str::<Verification>(&json).unwrap(), found);
        }
        let refused = transfers("engine = 'shm'\nop = 'write'\nsizes = 8\nverify = 'all'", 4);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("use last or each"), "{refused}");
    }

    #[test]
    fn each_is_refused_with_the_nearest_choice() {
        for (lines, part) in cases([
            "engine = 'null'; op = 'write'; sizes = 8 => moves no bytes: leave verify out",
            "engine = 'shm'; memory = 'cuda'; op = 'write'; sizes = 8 => use verify=last, or memory host",
            "engine = 'shm'; cq = 'event'; op = 'write'; sizes = 8 => use cq busy",
            "engine = 'shm'; api = 'poll'; op = 'write'; sizes = 8 => use api engine",
            "engine = 'shm'; bound = '1GB/s'; op = 'write'; sizes = 8 => leave bound out",
            "engine = 'shm'; ping-pong = true; sizes = 1; op = 'write' => use sizes 2",
            "engine = 'shm'; rate = 1000; background = 'op=write,size=1k,depth=1'; op = 'write'; sizes = 8 => leave background out",
            "engine = 'shm'; op = 'read'; traffic = 'fan-in'; target-footprint = 'shared'; sizes = 8 => use target-footprint own",
        ]) {
            transfers(&format!("{lines}\nverify = 'each'"), 4).refused(part);
        }
    }

    /// Operations that could land in one slot at once wait for each other. Otherwise, their final data would be
    /// unknown.
    #[test]
    fn each_is_possible_in_any_order_and_pacing() {
        for lines in [
            "access = 'random'\nlocal-access = 'sequential'\ndepth = 8",
            "batch = 16\nbatches-in-flight = 2",
            "rate = 1000",
            "ping-pong = true",
            "bidirectional = true\nthreads = 2",
            "traffic = 'all-to-all'\nmemory = 'huge'",
        ] {
            let lines =
                format!("engine = 'shm'\nop = 'write-imm'\nsizes = 8\nverify = 'each'\n{lines}");
            let found = transfers(&lines, 4).unwrap_or_else(|error| panic!("{lines}: {error}"));
            assert!(found.iter().all(|point| point.verify.is_each()));
        }
    }
}
