//! `mpi`: collectives by MPI's own calls. It uses the MPI library that fits the launcher.
//!
//! [`crate::mpi_world`] chooses the library and checks that it knows the ranks of this run. The calls themselves are in
//! `tonnage_sys::mpi`.

use tonnage_collective::{Collective, Dtype, Reduction};
use tonnage_engine::backend::{BackendEntry, BackendVariant, GroupCall, GroupCalls, OpenGroup};
use tonnage_engine::{EngineReport, Facts};
use tonnage_sys::error::LibraryError;
use tonnage_sys::mpi::{ArenaPlace, Communicator, MpiReduction, MpiType};
use tonnage_units::{Error, Result};

use crate::mpi_world::{MPI_LIBRARY, MPI_LIFECYCLE, MpiUser, MpiWorld};

/// This backend's row in the list of backends.
pub const BACKEND: BackendEntry = BackendEntry {
    name: "mpi",
    about: "MPI's own collectives, by the MPI library of the launcher that started the ranks",
    needs: "ranks started by mpirun or srun, and its MPI library",
    variant: BackendVariant::Nothing,
    usual: &[],
    needs_launcher: true,
    ops: &Collective::ALL,
    // MPI has no bfloat16, and only some libraries have float16.
    dtypes: &[
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Float16,
        Dtype::Int8,
        Dtype::Uint8,
        Dtype::Int32,
        Dtype::Int64,
    ],
    reductions: &[
        Reduction::Sum,
        Reduction::Prod,
        Reduction::Min,
        Reduction::Max,
    ],
    // MPI_Bcast has a single buffer for input and output.
    in_place_always: &[Collective::Broadcast],
    has_algorithms: false,
    libraries: &[MPI_LIBRARY],
    lifecycle: MPI_LIFECYCLE,
    open: Some(open),
};

fn open(request: &OpenGroup<'_>) -> Result<Box<dyn GroupCalls>> {
    let user = MpiUser {
        what: "backend mpi",
        instead: "use backend native:shm",
    };
    let mpi = MpiWorld::start_for_ranks(user, request.libraries, (request.rank, request.ranks))?;
    let everyone = mpi.world.communicator().map_err(lacking)?;
    let own = (request.groups > 1).then(|| everyone.split(request.group, request.rank));
    let own = own
        .transpose()
        .map_err(|error| Error::Failed(error.into()))?;
    Ok(Box::new(MpiGroupCalls {
        mpi,
        everyone,
        own,
        ready: None,
    }))
}

fn lacking(why: LibraryError) -> Error {
    Error::Unavailable {
        what: "backend mpi".to_owned(),
        why: why.into(),
        how: "With --mpi, name the MPI library that belongs to the mpirun of this run, or choose another --backend"
            .to_owned(),
    }
}

/// The calls of one rank.
struct MpiGroupCalls {
    mpi: MpiWorld,
    everyone: Communicator,
    /// This rank's group; `None` if there is only one group.
    own: Option<Communicator>,
    ready: Option<Ready>,
}

/// Refuses a call that ends the process in some libraries: <https://github.com/pmodels/mpich/issues/6540>, fixed in
/// MPICH 4.1.2. Short messages are not affected, because they take another code path.
fn refuse_broken(call: &GroupCall, version: &str) -> Result<()> {
    const SHORT_BYTES: u64 = 2048;
    let number = version.strip_prefix("MPICH Version:").map(str::trim);
    let is_broken =
        number.is_some_and(|it| it.starts_with("4.0") || ["4.1", "4.1.1"].contains(&it));
    let shape = call.shape;
    let is_struck = shape.op == Collective::Reduce && call.in_place && shape.root > 0;
    match number.filter(|_| is_broken && is_struck && shape.block_bytes() > SHORT_BYTES) {
        None => Ok(()),
        Some(number) => Err(Error::Unavailable {
            what: format!("reduce in place to root {} by MPICH {number}", shape.root),
            why: "it reads from a null address, which ends the process (MPICH issue 6540)"
                .to_owned(),
            how: "Use --root 0, leave --in-place out, or use MPICH 4.1.2 or later".to_owned(),
        }),
    }
}

/// Refuses a call with wrong results in some libraries: MPICH 4.0.2 compares unsigned bytes as signed ones. `tried`
/// tests the library. The version would not suffice, because distributions patch their packages, and derived libraries
/// have inherited the bug.
fn refuse_signed(
    call: &GroupCall,
    version: &str,
    tried: impl FnOnce(MpiReduction) -> Result<bool, LibraryError>,
) -> Result<()> {
    let asked = call.reduction.filter(|_| call.shape.dtype == Dtype::Uint8);
    let compares = |it: &Reduction| matches!(it, Reduction::Min | Reduction::Max);
    let Some(asked) = asked.filter(compares) else {
        return Ok(());
    };
    match tried(reduction(asked)).map_err(|error| Error::Failed(error.into()))? {
        true => Ok(()),
        false => Err(Error::Unavailable {
            what: format!("{asked} of uint8 by {}", version.replace('\t', " ")),
            why: "it compares unsigned bytes as signed ones, so 200 is less than 100".to_owned(),
            how: "Choose another --dtype, or start the ranks with the mpirun of another MPI and name its library with \
                  --mpi"
                .to_owned(),
        }),
    }
}

/// Everything that stays the same between the repetitions of a call.
struct Ready {
    call: GroupCall,
    element: MpiType,
    reduction: MpiReduction,
}

impl GroupCalls for MpiGroupCalls {
    fn prepare(&mut self, call: GroupCall) -> Result<u64> {
        let element = element(call.shape.dtype);
        let asked = call.reduction.map(reduction);
        self.group().check(element, asked).map_err(lacking)?;
        let version = self.mpi.world.version();
        refuse_broken(&call, version)?;
        refuse_signed(&call, version, |it| self.group().orders_unsigned_bytes(it))?;
        // In place, MPI writes a rank's result to the start of the buffer, and not to the offset of the rank's block.
        let output = match (call.shape.op, call.in_place) {
            (Collective::ReduceScatter, true) => call.input,
            _ => call.output,
        };
        self.ready = Some(Ready {
            call: GroupCall { output, ..call },
            element,
            reduction: asked.unwrap_or(MpiReduction::Sum),
        });
        Ok(output)
    }

    fn align(&mut self) -> Result<()> {
        self.everyone
            .barrier()
            .map_err(|error| Error::Failed(error.into()))
    }

    fn call(&mut self) -> Result<()> {
        let none = || Error::Failed("no call was prepared".into());
        let ready = self.ready.as_ref().ok_or_else(none)?;
        ready
            .call(self.group())
            .map_err(|error| Error::Failed(error.into()))
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: BACKEND.name.to_owned(),
            library: Some(self.mpi.library()),
            facts: self.facts(),
            ..EngineReport::default()
        }
    }
}

impl MpiGroupCalls {
    #[inline]
    fn group(&self) -> &Communicator {
        self.own.as_ref().unwrap_or(&self.everyone)
    }

    fn facts(&self) -> Facts {
        let facts = self.mpi.facts();
        facts.with_fact("counts_of_64_bits", self.group().has_large_calls())
    }
}

impl Ready {
    /// Makes the call. In place, MPI gets no separate input buffer if the input is part of the output.
    #[inline]
    fn call(&self, group: &Communicator) -> Result<(), LibraryError> {
        let GroupCall {
            shape, in_place, ..
        } = self.call;
        let (element, reduction, block, root) =
            (self.element, self.reduction, shape.block, shape.root);
        let memory = &*self.call.memory;
        let (input, output): (ArenaPlace<'_>, ArenaPlace<'_>) =
            ((memory, self.call.input), (memory, self.call.output));
        let is_root = group.rank() == root;
        let given = (!in_place).then_some(input);
        let given_to_root = (!(in_place && is_root)).then_some(input);
        let got_by_root = is_root.then_some(output);
        match shape.op {
            Collective::AllReduce => group.all_reduce(element, reduction, given, output, block),
            Collective::ReduceScatter => {
                group.reduce_scatter_block(element, reduction, given, output, block)
            }
            Collective::AllGather => group.all_gather(element, given, output, block),
            Collective::AllToAll => group.all_to_all(element, given, output, block),
            Collective::Broadcast => group.broadcast(element, root, output, block),
            Collective::Reduce => {
                let (from, to) = (given_to_root, got_by_root);
                group.reduce(element, reduction, root, from, to, block)
            }
            Collective::Gather => group.gather(element, root, given_to_root, got_by_root, block),
            Collective::Scatter => {
                let to = (!(in_place && is_root)).then_some(output);
                group.scatter(element, root, is_root.then_some(input), to, block)
            }
            Collective::Barrier => group.barrier(),
            Collective::SendRecvRing => {
                let neighbors = (
                    shape.sends_to(group.rank()),
                    shape.receives_from(group.rank()),
                );
                let (Some(next), Some(last)) = neighbors else {
                    return Ok(());
                };
                group.send_receive(element, (next, input), (last, output), block)
            }
            Collective::SendRecvPairs => {
                if let Some(peer) = shape.sends_to(group.rank()) {
                    group.send(element, peer, input, block)?;
                }
                match shape.receives_from(group.rank()) {
                    Some(peer) => group.receive(element, peer, output, block),
                    None => Ok(()),
                }
            }
        }
    }
}

fn element(dtype: Dtype) -> MpiType {
    match dtype {
        Dtype::Float32 => MpiType::Float32,
        Dtype::Float64 => MpiType::Float64,
        Dtype::Float16 => MpiType::Float16,
        Dtype::Bfloat16 => MpiType::Bfloat16,
        Dtype::Int8 => MpiType::Int8,
        Dtype::Uint8 => MpiType::Uint8,
        Dtype::Int32 => MpiType::Int32,
        Dtype::Int64 => MpiType::Int64,
    }
}

fn reduction(reduction: Reduction) -> MpiReduction {
    match reduction {
        Reduction::Sum => MpiReduction::Sum,
        Reduction::Prod => MpiReduction::Prod,
        Reduction::Min => MpiReduction::Min,
        Reduction::Max => MpiReduction::Max,
        Reduction::Avg => MpiReduction::Avg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tonnage_collective::Shape;
    use tonnage_sys::mapping::{Arena, Pages, Sharing};

    fn called((op, root): (Collective, u32), ranks: u32, dtype: Dtype, bytes: u64) -> GroupCall {
        let arena = Arena::allocate(1, Pages::Normal, Sharing::Private, None);
        GroupCall {
            shape: Shape::from_size((op, root), ranks, dtype, bytes),
            reduction: Some(Reduction::Sum),
            in_place: false,
            memory: Arc::new(arena.unwrap()),
            input: 0,
            output: 0,
        }
    }

    #[test]
    fn only_the_broken_call_is_refused_and_only_for_broken_libraries() {
        let call = |op, root, in_place, bytes| GroupCall {
            in_place,
            ..called((op, root), 4, Dtype::Int8, bytes)
        };
        let broken = "MPICH Version:\t4.0.2";
        let refused = |call: &GroupCall, version| refuse_broken(call, version).is_err();
        let struck = call(Collective::Reduce, 1, true, 4096);
        assert!(refused(&struck, broken) && refused(&struck, "MPICH Version:      4.1.1"));
        for sound in [
            "MPICH Version: 4.1.2",
            "MPICH Version: 3.4",
            "Open MPI v4.0.2",
        ] {
            assert!(!refused(&struck, sound), "{sound}");
        }
        for other in [
            call(Collective::Reduce, 0, true, 4096),
            call(Collective::Reduce, 1, false, 4096),
            call(Collective::Reduce, 1, true, 2048),
            call(Collective::AllReduce, 0, true, 4096),
        ] {
            assert!(!refused(&other, broken));
        }
    }

    #[test]
    fn a_library_that_compares_bytes_as_signed_is_refused_for_comparisons() {
        let call = |dtype, reduction| GroupCall {
            reduction,
            ..called((Collective::AllReduce, 0), 2, dtype, 64)
        };
        let struck = call(Dtype::Uint8, Some(Reduction::Max));
        let said = refuse_signed(&struck, "MPICH Version:\t4.0.2", |_| Ok(false)).unwrap_err();
        assert!(matches!(said, Error::Unavailable { .. }), "{said}");
        let said = said.to_string();
        for part in [
            "max of uint8 by MPICH Version: 4.0.2",
            "as signed",
            "--dtype",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(refuse_signed(&struck, "", |_| Ok(true)).is_ok());
        // Calls that do not compare unsigned bytes are not tested.
        for (dtype, reduction) in [
            (Dtype::Uint8, Some(Reduction::Sum)),
            (Dtype::Uint8, None),
            (Dtype::Int8, Some(Reduction::Max)),
        ] {
            let never = |_| panic!("{dtype} was tried");
            assert!(refuse_signed(&call(dtype, reduction), "", never).is_ok());
        }
    }
}
