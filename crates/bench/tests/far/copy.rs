//! Copying of the lying engine.

use tonnage_engine::Op;
use tonnage_engine::memory::Memory;
use tonnage_units::{Error, Result};

use super::lie::Lie;

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
