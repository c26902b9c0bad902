//! Data of one call: every rank's input, and the output that follows from all inputs.

use tonnage_units::{Error, Result};

use super::hash::{DataKey, ElementRun, RUN};
use super::moved;
use super::plan::{DataPlan, ElementBuffer};
use super::spread::Orders;
use crate::{Collective, Reduction, Shape};

/// The largest supported number of ranks. Averages of float16 over more ranks are not normal numbers.
pub const RANKS_MAX: u32 = 1 << 18;

/// XOR mask between a byte of the output before and after the call. The mask does not flip all bits: -1 would become 0,
/// which the call can also produce if a rank's part is missing.
const POISON: u8 = 0xa5;

/// Data of one call.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    shape: Shape,
    reduction: Reduction,
    plan: Option<DataPlan>,
    orders: Orders,
    seed: u64,
    call: u64,
    key: DataKey,
}

/// Source of bytes of an output that are moved without being combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The rank that provides the bytes in its input.
    pub rank: u32,
    /// Index of the first element in this rank's input.
    pub element: u64,
    /// Number of elements that are contiguous in both the input and the output.
    pub elements: u64,
}

impl Data {
    /// Data of a call. `reduction` matters only for operations that reduce.
    ///
    /// # Errors
    /// If there are no ranks, or more than [`RANKS_MAX`].
    pub fn new(shape: &Shape, reduction: Reduction, seed: u64, call: u64) -> Result<Self> {
        if !(1..=RANKS_MAX).contains(&shape.ranks) {
            return Err(Error::Usage(format!(
                "{} ranks: the results of collectives can be checked only for 1 to {RANKS_MAX} ranks",
                shape.ranks
            )));
        }
        let plan = (shape.op.reduces()).then(|| DataPlan::new(shape.dtype, reduction, shape.ranks));
        Ok(Self {
            shape: *shape,
            reduction,
            plan,
            orders: Orders::new(shape.ranks),
            seed,
            call,
            key: DataKey::new(seed, call),
        })
    }

    /// Data of another call with the same shape.
    pub fn for_call(&self, call: u64) -> Self {
        Self {
            call,
            key: DataKey::new(self.seed, call),
            ..*self
        }
    }

    /// The call's number.
    pub fn call(&self) -> u64 {
        self.call
    }

    /// The call's shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Reduction of the call; `None` if the operation does not reduce.
    pub fn reduction(&self) -> Option<Reduction> {
        self.plan.map(|_| self.reduction)
    }

    /// Writes part of a rank's input, starting at element `first`.
    ///
    /// # Errors
    /// If `out` is not a whole number of elements, or extends beyond the input.
    pub fn input(&self, rank: u32, first: u64, out: &mut [u8]) -> Result<()> {
        self.check_range("input", self.shape.input(rank), first, out.len())?;
        match &self.plan {
            Some(plan) => self.each_run(first, out, |run, first, buffer, piece| {
                let place = self.orders.place(run, rank);
                plan.part((run, first), (rank, place), buffer, piece);
            }),
            None => self.write_given(rank, first, out),
        }
        Ok(())
    }

    /// Writes part of a rank's output after the call, starting at element `first`.
    ///
    /// # Errors
    /// If `out` is not a whole number of elements, or extends beyond the output.
    pub fn expected(&self, rank: u32, first: u64, out: &mut [u8]) -> Result<()> {
        self.check_range("output", self.shape.output(rank), first, out.len())?;
        if let Some(plan) = &self.plan {
            let first = self.reduced_element(rank, first);
            self.each_run(first, out, |run, place, buffer, piece| {
                plan.expected(run, place, buffer, piece);
            });
            return Ok(());
        }
        let (mut at, mut rest) = (first, out);
        while !rest.is_empty() {
            let origin = self.origin(rank, at).ok_or_else(|| self.no_output(rank))?;
            let bytes = (origin.elements * self.shape.dtype.bytes()).min(rest.len() as u64);
            let (piece, others) = rest.split_at_mut(bytes as usize);
            self.write_given(origin.rank, origin.element, piece);
            at += origin.elements;
            rest = others;
        }
        Ok(())
    }

    /// Writes part of the output buffer as it must be before the call. Every byte differs from the output after the
    /// call.
    ///
    /// # Errors
    /// As for [`expected`](Self::expected).
    pub fn poison(&self, rank: u32, first: u64, out: &mut [u8]) -> Result<()> {
        self.expected(rank, first, out)?;
        out.iter_mut().for_each(|byte| *byte ^= POISON);
        Ok(())
    }

    /// For an element of a rank's output: the index of the elements that are reduced to it. The index is the same in
    /// all inputs.
    pub fn reduced_element(&self, rank: u32, element: u64) -> u64 {
        match self.shape.op {
            Collective::ReduceScatter => u64::from(rank) * self.shape.block + element,
            _ => element,
        }
    }

    /// Source of an element of a rank's output; `None` for reductions, and for ranks without output.
    pub fn origin(&self, rank: u32, element: u64) -> Option<Origin> {
        let block = self.shape.block.max(1);
        let (part, within) = (element / block, element % block);
        let own = u64::from(rank) * block + within;
        let (from, at) = match self.shape.op {
            Collective::AllGather | Collective::Gather => (part as u32, within),
            Collective::AllToAll => (part as u32, own),
            Collective::Broadcast => (self.shape.root, element),
            Collective::Scatter => (self.shape.root, own),
            Collective::SendRecvPairs | Collective::SendRecvRing => {
                (self.shape.receives_from(rank)?, element)
            }
            Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::Reduce
            | Collective::Barrier => return None,
        };
        Some(Origin {
            rank: from,
            element: at,
            elements: block - within,
        })
    }

    /// The sum before averaging, for one element of the inputs.
    pub(super) fn undivided_sum(&self, element: u64) -> Option<f64> {
        let run = ElementRun::new(self.key, element / RUN as u64);
        let place = (element % RUN as u64) as u32;
        self.plan.map(|plan| plan.undivided_sum(&run, place))
    }

    fn write_given(&self, rank: u32, first: u64, out: &mut [u8]) {
        let key = self.key.part(u64::from(rank));
        let dtype = self.shape.dtype;
        moved::write(dtype, key, first * dtype.bytes(), out);
    }

    fn each_run(
        &self,
        first: u64,
        out: &mut [u8],
        mut write: impl FnMut(&ElementRun, u32, &mut ElementBuffer, &mut [u8]),
    ) {
        let (mut at, mut rest) = (first, out);
        let bytes = self.shape.dtype.bytes() as usize;
        let mut buffer = ElementBuffer::new();
        while !rest.is_empty() {
            let place = (at % RUN as u64) as usize;
            let length = ((RUN - place) * bytes).min(rest.len());
            let (piece, others) = rest.split_at_mut(length);
            let run = ElementRun::new(self.key, at / RUN as u64);
            write(&run, place as u32, &mut buffer, piece);
            at += (length / bytes) as u64;
            rest = others;
        }
    }

    fn check_range(&self, what: &str, elements: u64, first: u64, bytes: usize) -> Result<()> {
        let size = self.shape.dtype.bytes();
        let end = first.checked_add(bytes as u64 / size);
        if !(bytes as u64).is_multiple_of(size) || end.is_none_or(|end| end > elements) {
            return Err(Error::Failed(format!(
                "{bytes} bytes from element {first} on are not whole elements of an {what} of {elements} elements of \
                 {size} bytes"
            )));
        }
        Ok(())
    }

    fn no_output(&self, rank: u32) -> Error {
        Error::Failed(format!(
            "rank {rank} receives nothing in {}",
            self.shape.op.name()
        ))
    }
}
