//! Lies of the test engine about one operation: the options that request them, and how each lie changes the movement of
//! bytes and words.

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
    about: "number of the operation of each thread that is lied about, from 0",
};

/// A lie about an operation. "The operation" is the one with the requested number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// One byte of the operation is changed.
    Flip,
    /// One byte of the operation is changed, and one byte of each later operation.
    FlipAll,
    /// The operation completes, but its bytes don't move, and the target is not notified.
    Drop,
    /// The operation completes twice, or the target is notified twice.
    Double,
    /// The operation carries the bytes of another slot.
    Swap,
    /// Only the operation's first half moves.
    Truncate,
    /// The operation moves only when its lane is released.
    Late,
    /// The operation lands one slot further.
    Elsewhere,
    /// The target is notified a second time when it is idle.
    Echo,
    /// The target is notified as if the next rank had sent it.
    Stranger,
    /// No operation before this one moves any bytes. If each slot is then used exactly once more, only the last
    /// operation on each slot moves its bytes.
    LastVisits,
    /// The operation and the next one exchange their bytes; write-imms exchange their immediates.
    Exchange,
    /// The operation is delivered a second time, over the next operation on its slot. With write-imms, four consecutive
    /// immediates become two of the first and two of the last one. Their number and sum stay the same.
    Again,
    /// Half of the operation moves at first. The other half moves after another operation was posted.
    Short,
}

impl Lie {
    /// Returns the lie with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = LIES.iter();
        all.find(|(known, _)| *known == name).map(|(_, lie)| *lie)
    }

    /// Returns whether the lie involves several operations, and treats them differently.
    pub fn is_of_several(self) -> bool {
        matches!(self, Self::Exchange | Self::Again | Self::Short)
    }

    /// Returns whether the lie concerns operation `this`. The lie begins with operation `first`.
    pub fn is_of<T: PartialOrd>(self, this: T, first: T) -> bool {
        match self {
            Self::FlipAll => this >= first,
            Self::LastVisits => this < first,
            _ => this == first,
        }
    }
}

/// Moves bytes from one memory to another, through the owners of both.
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
        // Slots are adjacent, so the other slot is the next or the previous one.
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

/// Locked while a word is changed, so that words change one at a time over all ranks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Changes a word. Possible lies are a wrong old value, a missing old value, another word, and no change at all.
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
    let answer = old ^ u64::from(lie == Some(Lie::Flip));
    if lie != Some(Lie::Truncate) {
        own.write(landing, &answer.to_ne_bytes())?;
    }
    Ok(())
}

fn word(memory: &dyn Memory, offset: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
