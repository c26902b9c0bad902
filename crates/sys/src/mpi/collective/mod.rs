//! Groups of ranks: collectives, and messages between two ranks.
//!
//! | file | what lives there |
//! | --- | --- |
//! | here | groups, and the parts that all calls share |
//! | `kit` | element types and reductions; functions and handles of the loaded library |
//! | `sizes` | calls for more elements than a 32-bit count |
//! | `rootless`, `rooted`, `message` | the calls |
//!
//! All data are in an [`Arena`], addressed by offsets, and every range is checked before MPI gets it. All ranks of a
//! group must make the same call with the same type, reduction, root and number of elements. Otherwise calls hang, MPI
//! reports an error, or the elements are wrong. This module cannot check that.

mod kit;
mod message;
mod rooted;
mod rootless;
mod sizes;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::World;
use super::calls::Handle;
use crate::error::LibraryError;
use crate::mapping::Arena;
use kit::CollectiveKit;
use sizes::CallLimit;

pub use kit::{MpiReduction, MpiType};

/// An arena, and the byte offset of a call's first element.
pub type ArenaPlace<'a> = (&'a Arena, u64);

/// A group of ranks that make collective calls: all ranks, or a part from [`Communicator::split`].
#[derive(Debug)]
pub struct Communicator {
    world: Arc<World>,
    kit: Arc<CollectiveKit>,
    handle: Handle,
    rank: u32,
    size: u32,
    /// False for the group of all ranks, which MPI owns.
    is_own: bool,
    limit: CallLimit,
}

impl World {
    /// Returns the group of all ranks.
    ///
    /// # Errors
    /// A function or a handle that the library lacks, or a call from a thread other than MPI's.
    pub fn communicator(self: &Arc<Self>) -> Result<Communicator, LibraryError> {
        self.here()?;
        let loaded = &self.loaded;
        let kit = CollectiveKit::look_up(&loaded.library, loaded.dialect, &loaded.version)?;
        Ok(Communicator {
            world: Arc::clone(self),
            kit: Arc::new(kit),
            handle: loaded.constants.comm_world,
            rank: self.rank,
            size: self.size,
            is_own: false,
            limit: CallLimit::default(),
        })
    }
}

impl Communicator {
    /// This process's number in the group.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes in the group.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the element types that the library supports.
    pub fn types(&self) -> Vec<MpiType> {
        let has = |element: &MpiType| self.kit.type_of(*element).is_some();
        MpiType::ALL.into_iter().filter(has).collect()
    }

    /// Checks that the library supports a type and a reduction, before a call with them.
    ///
    /// # Errors
    /// The missing type or reduction, with the supported ones.
    pub fn check(
        &self,
        element: MpiType,
        reduction: Option<MpiReduction>,
    ) -> Result<(), LibraryError> {
        self.type_of(element)?;
        reduction.map_or(Ok(()), |reduction| self.reduction(reduction).map(drop))
    }

    /// Whether calls for more elements than a 32-bit count use functions with 64-bit counts. Otherwise such calls are
    /// split, use larger types, or are refused.
    pub fn has_large_calls(&self) -> bool {
        self.kit.large.is_some() && self.limit.large
    }

    /// Lowers the number of elements above which a call is large. `large` allows functions with 64-bit counts for large
    /// calls. All ranks of the group must do the same. Used for libraries with 64-bit functions that do not work, and
    /// for tests.
    ///
    /// # Errors
    /// A number that is 0 or does not fit into a 32-bit count.
    pub fn limit_calls(&mut self, elements_max: u64, large: bool) -> Result<(), LibraryError> {
        self.limit = CallLimit::new(elements_max, large)?;
        Ok(())
    }

    /// Splits the group by color, and returns the part with this rank's color. Its ranks are ordered by key; ranks with
    /// equal keys keep their order. Collective.
    ///
    /// # Errors
    /// MPI's description, or a number that MPI cannot represent.
    pub fn split(&self, color: u32, key: u32) -> Result<Self, LibraryError> {
        self.world.here()?;
        let (color, key) = (int("color", color)?, int("key", key)?);
        let mut handle: Handle = 0;
        // SAFETY: MPI runs and this is its thread, the group is this library's, and the result has a zeroed place.
        let code =
            unsafe { (self.kit.groups.comm_split)(self.handle, color, key, &raw mut handle) };
        self.world.check("MPI_Comm_split", code)?;
        let errors_return = self.world.loaded.constants.errors_return;
        // SAFETY: both handles are this library's.
        let code =
            unsafe { (self.world.loaded.functions.comm_set_errhandler)(handle, errors_return) };
        self.world.check("MPI_Comm_set_errhandler", code)?;
        let (rank, size) = self.world.rank_in(handle)?;
        Ok(Self {
            world: Arc::clone(&self.world),
            kit: Arc::clone(&self.kit),
            handle,
            rank,
            size,
            is_own: true,
            limit: self.limit,
        })
    }

    /// Frees the group, unless it is the group of all ranks. Collective, so a group that is only dropped stays
    /// allocated until MPI ends.
    ///
    /// # Errors
    /// MPI's description.
    pub fn free(mut self) -> Result<(), LibraryError> {
        self.world.here()?;
        if !self.is_own {
            return Ok(());
        }
        // SAFETY: MPI runs and this is its thread; the group is this value's own, which ends here.
        let code = unsafe { (self.kit.groups.comm_free)(&raw mut self.handle) };
        self.world.check("MPI_Comm_free", code)
    }

    /// Whether the library treats unsigned bytes as unsigned in a comparing reduction. Reduces two bytes in this
    /// process: 200, which would be negative as a signed byte, and 100.
    ///
    /// # Errors
    /// MPI's description.
    pub fn orders_unsigned_bytes(&self, reduction: MpiReduction) -> Result<bool, LibraryError> {
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
        // SAFETY: MPI runs and this is its thread, both handles are this library's, and each of the two arrays has the
        // one byte that the call accesses.
        let code = unsafe { (self.kit.groups.reduce_local)(from, to, 1, element, handle) };
        self.world.check("MPI_Reduce_local", code)?;
        Ok(got == [right])
    }

    /// Waits until all ranks of the group have called this method.
    ///
    /// # Errors
    /// MPI's description.
    #[inline]
    pub fn barrier(&self) -> Result<(), LibraryError> {
        self.world.here()?;
        // SAFETY: MPI runs and this is its thread, and the group is this library's.
        let code = unsafe { (self.world.loaded.functions.barrier)(self.handle) };
        self.world.check("MPI_Barrier", code)
    }

    #[inline]
    fn type_of(&self, element: MpiType) -> Result<Handle, LibraryError> {
        self.kit
            .type_of(element)
            .ok_or_else(|| self.lacks_type(element))
    }

    #[inline]
    fn reduction(&self, reduction: MpiReduction) -> Result<Handle, LibraryError> {
        self.kit
            .reduction(reduction)
            .ok_or_else(|| lacks_reduction(reduction))
    }

    #[cold]
    fn lacks_type(&self, element: MpiType) -> LibraryError {
        let has: Vec<_> = self.types().into_iter().map(MpiType::name).collect();
        LibraryError::unsupported(format!(
            "{} ({}) has no type for {}; it has {}",
            self.world.path(),
            self.world.dialect().name(),
            element.name(),
            has.join(", ")
        ))
    }

    /// Checks that a rank is in this group, because libraries may not, and converts it for MPI.
    #[inline]
    fn member(&self, what: &str, rank: u32) -> Result<c_int, LibraryError> {
        if rank < self.size {
            return int(what, rank);
        }
        Err(not_in_group(what, rank, self.size))
    }

    /// Returns the bytes of `elements` elements from each of `ranks` ranks.
    #[inline]
    fn bytes_of(&self, element: MpiType, elements: u64, ranks: u32) -> Result<u64, LibraryError> {
        let all = elements.checked_mul(u64::from(ranks));
        all.and_then(|all| all.checked_mul(element.bytes()))
            .ok_or_else(|| too_many(elements))
    }

    /// Returns the memory to take elements from, or MPI_IN_PLACE.
    #[inline]
    fn given(&self, place: Option<ArenaPlace<'_>>, bytes: u64) -> Result<Memory, LibraryError> {
        match place {
            Some(place) => Memory::in_arena(place, bytes),
            None => Ok(Memory {
                at: self.kit.in_place(),
                bytes: 0,
                is_memory: false,
            }),
        }
    }
}

/// Memory as an argument of a call.
#[derive(Debug, Clone, Copy)]
struct Memory {
    at: *mut c_void,
    bytes: u64,
    /// False for MPI_IN_PLACE, and for ignored arguments.
    is_memory: bool,
}

impl Memory {
    /// Value of an argument that only the root uses, on all other ranks.
    const NONE: Self = Self {
        at: ptr::null_mut(),
        bytes: 0,
        is_memory: false,
    };

    /// Returns a range of an arena. The borrow keeps the arena alive during a call.
    #[inline]
    fn in_arena((arena, offset): ArenaPlace<'_>, bytes: u64) -> Result<Self, LibraryError> {
        let at = arena.pointer(offset, bytes)?;
        Ok(Self {
            at: at.cast(),
            bytes,
            is_memory: true,
        })
    }

    /// Returns the address `bytes` bytes after the beginning. The caller ensures that it is within the range.
    #[inline]
    fn after(&self, bytes: u64) -> *mut c_void {
        if self.is_memory {
            self.at.cast::<u8>().wrapping_add(bytes as usize).cast()
        } else {
            self.at
        }
    }

    /// Rejects overlapping input and output, which MPI does not allow.
    #[inline]
    fn apart_from(&self, other: &Self) -> Result<(), LibraryError> {
        let (one, two) = (self.at.addr() as u64, other.at.addr() as u64);
        let overlap = one < two.saturating_add(other.bytes) && two < one.saturating_add(self.bytes);
        if overlap && self.is_memory && other.is_memory {
            return Err(LibraryError::argument(
                "input and output overlap: use separate memory, or call in place",
            ));
        }
        Ok(())
    }
}

#[cold]
fn lacks_reduction(reduction: MpiReduction) -> LibraryError {
    let has = MpiReduction::MPI_HAS.map(MpiReduction::name);
    LibraryError::unsupported(format!(
        "MPI has no reduction {}; it has {}",
        reduction.name(),
        has.join(", ")
    ))
}

#[cold]
fn not_in_group(what: &str, rank: u32, size: u32) -> LibraryError {
    LibraryError::argument(format!(
        "{what} {rank} is not in the group, which has ranks 0 to {}",
        size.saturating_sub(1)
    ))
}

#[cold]
fn too_many(elements: u64) -> LibraryError {
    LibraryError::argument(format!("{elements} elements exceed the address space"))
}

#[inline]
fn int(what: &str, number: u32) -> Result<c_int, LibraryError> {
    c_int::try_from(number)
        .map_err(|_| LibraryError::argument(format!("{what} {number} is too large for MPI")))
}
