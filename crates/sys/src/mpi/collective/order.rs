//! Order in which the library sees bytes: MPICH 4.0.2 takes MPI_UINT8_T for a signed type where it compares.

use std::ffi::c_void;

use super::{Communicator, MpiReduction, MpiType};

impl Communicator {
    /// Returns whether the library takes unsigned bytes for unsigned ones in a reduction that compares, by two that are
    /// reduced in this process alone: 200, which would be negative, and 100.
    ///
    /// # Errors
    /// MPI's own words.
    pub fn orders_unsigned_bytes(&self, reduction: MpiReduction) -> Result<bool, String> {
        let right = match reduction {
            MpiReduction::Min => 100,
            MpiReduction::Max => 200,
            MpiReduction::Sum | MpiReduction::Prod | MpiReduction::Avg => return Ok(true),
        };
        self.world.here()?;
        let (element, handle) = (self.type_of(MpiType::Uint8)?, self.reduction(reduction)?);
        let (given, mut got) = ([200u8], [100u8]);
        let from: *const c_void = given.as_ptr().cast();
        let to: *mut c_void = got.as_mut_ptr().cast();
        // SAFETY: MPI runs and this is its thread, both handles are this library's, and each of the two places has the
        // one byte that is asked for.
        let code = unsafe { (self.kit.groups.reduce_local)(from, to, 1, element, handle) };
        self.world.check("MPI_Reduce_local", code)?;
        Ok(got == [right])
    }
}
