//! Groups of ranks, and what they do together: collectives, and messages between two of them.
//!
//! | file | what lives there |
//! | --- | --- |
//! | here | groups, and what all their calls have in common |
//! | `kit` | types of elements and reductions; functions and handles of the loaded library |
//! | `sizes` | calls for more elements than one can count |
//! | `rootless`, `rooted`, `message` | the calls |
//!
//! Bytes are those of an [`Arena`], named by offsets, and every range is checked against it before MPI sees it. All
//! ranks of a group must make the same call with the same type, reduction, root and number of elements, or those that
//! made it wait, or MPI reports an error, or the elements are wrong. Nothing here can see to that.

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

/// An arena, and the offset in bytes where elements of a call begin.
pub type ArenaPlace<'a> = (&'a Arena, u64);

/// A group of ranks that call together: all of them, or a part that [`Communicator::split`] made.
#[derive(Debug)]
pub struct Communicator {
    world: Arc<World>,
    kit: Arc<CollectiveKit>,
    handle: Handle,
    rank: u32,
    size: u32,
    /// False for that of all ranks, which is MPI's.
    is_own: bool,
    limit: CallLimit,
}

impl World {
    /// The group of all ranks.
    ///
    /// # Errors
    /// A function or a handle that the library lacks, or a call from another thread than MPI's.
    pub fn communicator(self: &Arc<Self>) -> Result<Communicator, LibraryError> {
        self.here()?;
        let loaded = &self.loaded;
        let kit = CollectiveKit::of(&loaded.library, loaded.dialect, &loaded.version)?;
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

    /// Types of elements that the library has.
    pub fn types(&self) -> Vec<MpiType> {
        let has = |element: &MpiType| self.kit.type_of(*element).is_some();
        MpiType::ALL.into_iter().filter(has).collect()
    }

    /// Refuses what the library lacks, before a call with it.
    ///
    /// # Errors
    /// The type or the reduction that it lacks, with those that it has.
    pub fn check(
        &self,
        element: MpiType,
        reduction: Option<MpiReduction>,
    ) -> Result<(), LibraryError> {
        self.type_of(element)?;
        reduction.map_or(Ok(()), |reduction| self.reduction(reduction).map(drop))
    }

    /// Returns whether calls for more elements than a count of 32 bits can say go to functions with counts of 64 bits;
    /// they are taken apart otherwise, or use larger types, or are refused.
    pub fn has_large_calls(&self) -> bool {
        self.kit.large.is_some() && self.limit.large
    }

    /// Lowers the number of elements from which on a call counts as large, and says whether such a call may use the
    /// functions with counts of 64 bits. All ranks of the group must do the same. For libraries that cannot do what
    /// they declare, and for tests.
    ///
    /// # Errors
    /// A number that is 0 or that a count of 32 bits cannot say.
    pub fn limit_calls(&mut self, elements_max: u64, large: bool) -> Result<(), LibraryError> {
        self.limit = CallLimit::new(elements_max, large)?;
        Ok(())
    }

    /// Takes this rank into the group of those that give the same color; ranks there are in the order of their keys,
    /// those with the same key as they were. Collective.
    ///
    /// # Errors
    /// MPI's own words, or a number that MPI cannot take.
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

    /// Gives the group back to MPI; that of all ranks stays MPI's. Collective, so that a group that is only dropped
    /// stays with MPI until that ends.
    ///
    /// # Errors
    /// MPI's own words.
    pub fn free(mut self) -> Result<(), LibraryError> {
        self.world.here()?;
        if !self.is_own {
            return Ok(());
        }
        // SAFETY: MPI runs and this is its thread; the group is this value's own, which ends here.
        let code = unsafe { (self.kit.groups.comm_free)(&raw mut self.handle) };
        self.world.check("MPI_Comm_free", code)
    }

    /// Returns whether the library takes unsigned bytes for unsigned ones in a reduction that compares, by two that are
    /// reduced in this process alone: 200, which would be negative, and 100.
    ///
    /// # Errors
    /// MPI's own words.
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
        // SAFETY: MPI runs and this is its thread, both handles are this library's, and each of the two places has the
        // one byte that is asked for.
        let code = unsafe { (self.kit.groups.reduce_local)(from, to, 1, element, handle) };
        self.world.check("MPI_Reduce_local", code)?;
        Ok(got == [right])
    }

    /// Waits until all ranks of the group are here.
    ///
    /// # Errors
    /// MPI's own words.
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

    /// A rank of this group, as MPI wants it. Libraries need not check it themselves.
    #[inline]
    fn member(&self, what: &str, rank: u32) -> Result<c_int, LibraryError> {
        if rank < self.size {
            return int(what, rank);
        }
        Err(not_in_group(what, rank, self.size))
    }

    /// Bytes of so many elements from each of `ranks`.
    #[inline]
    fn bytes_of(&self, element: MpiType, elements: u64, ranks: u32) -> Result<u64, LibraryError> {
        let all = elements.checked_mul(u64::from(ranks));
        all.and_then(|all| all.checked_mul(element.bytes()))
            .ok_or_else(|| too_many(elements))
    }

    /// A place to give elements from, or MPI_IN_PLACE.
    #[inline]
    fn given(&self, place: Option<ArenaPlace<'_>>, bytes: u64) -> Result<Memory, LibraryError> {
        match place {
            Some(place) => Memory::of(place, bytes),
            None => Ok(Memory {
                at: self.kit.in_place(),
                bytes: 0,
                is_memory: false,
            }),
        }
    }
}

/// Memory as a call sees it.
#[derive(Debug, Clone, Copy)]
struct Memory {
    at: *mut c_void,
    bytes: u64,
    /// False for MPI_IN_PLACE, and for what is not looked at.
    is_memory: bool,
}

impl Memory {
    /// Stands for what a rank that is not the root neither gives nor gets.
    const NONE: Self = Self {
        at: ptr::null_mut(),
        bytes: 0,
        is_memory: false,
    };

    /// Bytes of an arena, which its borrow keeps during a call.
    #[inline]
    fn of((arena, offset): ArenaPlace<'_>, bytes: u64) -> Result<Self, LibraryError> {
        let at = arena.pointer(offset, bytes)?;
        Ok(Self {
            at: at.cast(),
            bytes,
            is_memory: true,
        })
    }

    /// The address so many bytes after the beginning, none of them beyond the end.
    #[inline]
    fn after(&self, bytes: u64) -> *mut c_void {
        if self.is_memory {
            self.at.cast::<u8>().wrapping_add(bytes as usize).cast()
        } else {
            self.at
        }
    }

    /// Refuses memory that a call would read and write at once, which MPI does not allow.
    #[inline]
    fn apart_from(&self, other: &Self) -> Result<(), LibraryError> {
        let (one, two) = (self.at.addr() as u64, other.at.addr() as u64);
        let overlap = one < two.saturating_add(other.bytes) && two < one.saturating_add(self.bytes);
        if overlap && self.is_memory && other.is_memory {
            return Err(LibraryError::argument(
                "elements to give and elements to get overlap: keep them apart, or call in place",
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
    LibraryError::argument(format!(
        "{elements} elements are beyond what can be addressed"
    ))
}

#[inline]
fn int(what: &str, number: u32) -> Result<c_int, LibraryError> {
    c_int::try_from(number)
        .map_err(|_| LibraryError::argument(format!("{what} {number} is beyond what MPI can name")))
}
