//! Lies that the engine of tests tells about one operation, the options that ask for them, and how bytes and words move
//! under each.

use std::sync::Mutex;

use tonnage_engine::memory::Memory;
use tonnage_engine::{EngineOption, Op, OptionKind, Verb};
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

const LIES: [(&str, Lie); 14] = [
    ("flip", Lie::Flip),
    ("flip-all", Lie::FlipAll),
    ("drop", Lie::Drop),
    ("double", Lie::Double),
    ("swap", Lie::Swap),
    ("truncate", Lie::Truncate),
    ("late", Lie::Late),
    ("elsewhere", Lie::Elsewhere),
    ("echo", Lie::Echo),
    ("stranger", Lie::Stranger),
    ("last-visits", Lie::LastVisits),
    ("exchange", Lie::Exchange),
    ("again", Lie::Again),
    ("short", Lie::Short),
];

/// "none", and the names of all lies.
const NAMES: [&str; LIES.len() + 1] = {
    let mut names = ["none"; LIES.len() + 1];
    let mut at = 0;
    while at < LIES.len() {
        names[at + 1] = LIES[at].0;
        at += 1;
    }
    names
};

pub const LIE: EngineOption = EngineOption {
    name: "lie",
    kind: OptionKind::Choice(&NAMES),
    variants: &[],
    about: "the lie about one operation, which completes as if nothing were wrong",
};

pub const AT: EngineOption = EngineOption {
    name: "at",
    kind: OptionKind::Number {
        min: 0,
        max: 1 << 20,
        default: 0,
    },
    variants: &[],
    about: "number of the operation of each worker that is lied about, from 0",
};

/// A lie about one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// One of its bytes is changed.
    Flip,
    /// One of its bytes is changed, and one of each operation after it.
    FlipAll,
    /// Its bytes stay where they are, and nobody is notified.
    Drop,
    /// It completes twice, or the target is notified twice.
    Double,
    /// It carries the bytes of another slot.
    Swap,
    /// Only its first half moves.
    Truncate,
    /// It moves when its lane is given back.
    Late,
    /// It lands one slot further.
    Elsewhere,
    /// The target is notified again once it has nothing else to do.
    Echo,
    /// The target is notified as if the rank after this one had sent it.
    Stranger,
    /// No operation before it moves anything: with one for each slot left, only the last visit of each does.
    LastVisits,
    /// It and the next one are exchanged: their bytes, or of write-imms their immediates.
    Exchange,
    /// It is delivered again with the next visit of its slot, over that; of write-imms the immediates of four in a row
    /// become those of the first and the last, twice, so that their number and sum stay.
    Again,
    /// Half of it moves, and the other half when another operation has been handed over.
    Short,
}

impl Lie {
    /// The lie of this name.
    pub fn of(name: &str) -> Option<Self> {
        let mut all = LIES.iter();
        all.find(|(known, _)| *known == name).map(|(_, lie)| *lie)
    }

    /// Returns whether it is about more than one operation, each in a way of its own.
    pub fn is_of_several(self) -> bool {
        matches!(self, Self::Exchange | Self::Again | Self::Short)
    }

    /// Returns whether it is told about this operation, where it begins with that one.
    pub fn is_of<T: PartialOrd>(self, this: T, first: T) -> bool {
        match self {
            Self::FlipAll => this >= first,
            Self::LastVisits => this < first,
            _ => this == first,
        }
    }
}

/// Moves bytes from one memory to another as their owners do it.
pub fn carry(
    op: &Op,
    lie: Option<Lie>,
    from: (&dyn Memory, u64),
    to: (&dyn Memory, u64),
) -> Result<()> {
    if lie == Some(Lie::LastVisits) {
        return Ok(());
    }
    let len = u64::from(op.len);
    let source = match lie {
        // Slots are next to each other.
        Some(Lie::Swap) if (from.1 / len).is_multiple_of(2) => from.1 + len,
        Some(Lie::Swap) => from.1 - len,
        _ => from.1,
    };
    let mut bytes = vec![0; op.len as usize];
    from.0.read(source, &mut bytes)?;
    if bytes.len() >= 8 && bytes.iter().all(|&byte| byte == 0) {
        return Err(Error::Failed("a payload of zeros".into()));
    }
    match lie {
        Some(Lie::Flip | Lie::FlipAll) => bytes[0] ^= 1,
        Some(Lie::Truncate) => bytes.truncate(op.len as usize / 2),
        _ => {}
    }
    let further = if lie == Some(Lie::Elsewhere) { len } else { 0 };
    to.0.write(to.1 + further, &bytes)
}

/// Words change one at a time, for all ranks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Changes a word. The lies: an old value that was another's, one that does not come, another word, no change at all.
pub fn change_word(
    op: &Op,
    verb: Verb,
    lie: Option<Lie>,
    far: &dyn Memory,
    own: &dyn Memory,
) -> Result<()> {
    let _one = lock(&ONE_AT_A_TIME);
    let elsewhere = matches!(lie, Some(Lie::Elsewhere | Lie::Swap));
    let at = op.remote + if elsewhere { 64 } else { 0 };
    let old = word(far, at)?;
    let (new, landing) = if verb == Verb::FetchAdd {
        (old + u64::from(op.imm), op.local)
    } else {
        let [expected, new] = [word(own, op.local)?, word(own, op.local + 8)?];
        (if old == expected { new } else { old }, op.local + 16)
    };
    if lie != Some(Lie::FlipAll) {
        far.write(at, &new.to_ne_bytes())?;
    }
    let told = old ^ u64::from(lie == Some(Lie::Flip));
    if lie != Some(Lie::Truncate) {
        own.write(landing, &told.to_ne_bytes())?;
    }
    Ok(())
}

fn word(memory: &dyn Memory, offset: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
