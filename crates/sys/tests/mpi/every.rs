//! Makes every call with every type and reduction, and checks the result.
//!
//! It also checks that calls do not change the memory before and after the result.

use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_sys::mpi::{ArenaPlace, Communicator, MpiReduction, MpiType};

use super::elements::{bytes, given, reduced};

/// Bytes before and after the range that a call writes.
const GUARD: u64 = 64;
const POISON: u8 = 0xa5;

/// A rank of a group, with input and output memory.
pub struct Group<'a> {
    pub comm: &'a Communicator,
    /// Elements of one block.
    pub elements: u64,
    /// False to leave out reduce-scatter, because it is refused for this many elements.
    pub scatters: bool,
    input: Arena,
    output: Arena,
}

/// Variant of a call. Each kind of call uses only some of the fields.
#[derive(Clone, Copy)]
struct Case {
    element: MpiType,
    reduction: Option<MpiReduction>,
    in_place: bool,
    root: u32,
}

impl<'a> Group<'a> {
    pub fn new(comm: &'a Communicator, elements: u64) -> Self {
        let bytes = (elements * u64::from(comm.size()) * 8 + 2 * GUARD) as usize;
        let arena = || Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
        Self {
            comm,
            elements,
            scatters: true,
            input: arena(),
            output: arena(),
        }
    }

    /// Makes all calls with all reductions, with elements of these types.
    pub fn every_call(&self, types: &[MpiType]) {
        let roots = [0, self.comm.size() - 1];
        for &element in types {
            for in_place in [false, true] {
                let case = Case {
                    element,
                    reduction: None,
                    in_place,
                    root: 0,
                };
                for reduction in MpiReduction::MPI_HAS {
                    let case = Case {
                        reduction: Some(reduction),
                        ..case
                    };
                    self.all_reduce(case, reduction);
                    if self.scatters {
                        self.reduce_scatter(case, reduction);
                    }
                    for root in roots {
                        self.reduce(Case { root, ..case }, reduction);
                    }
                }
                self.all_gather(case);
                self.all_to_all(case);
                for root in roots {
                    let case = Case { root, ..case };
                    self.gather(case);
                    self.scatter(case);
                    if !in_place {
                        self.broadcast(case);
                    }
                }
            }
            self.message(element);
        }
        self.comm.barrier().unwrap();
    }

    fn all(&self) -> u64 {
        self.elements * u64::from(self.comm.size())
    }

    /// Returns a rank's input elements.
    fn gift(&self, case: Case, rank: u32, range: std::ops::Range<u64>) -> Vec<u8> {
        let one = |index| given(case.element, case.reduction, rank, index);
        range
            .flat_map(|index| bytes(case.element, one(index)))
            .collect()
    }

    /// Returns the reduction of all ranks' input.
    fn sum(&self, case: Case, reduction: MpiReduction, range: std::ops::Range<u64>) -> Vec<u8> {
        let one = |index| {
            let ranks = 0..self.comm.size();
            let all = ranks.map(|rank| given(case.element, case.reduction, rank, index));
            bytes(case.element, reduced(reduction, all))
        };
        range.flat_map(one).collect()
    }

    /// Block `index` of elements.
    fn block(&self, index: u32) -> std::ops::Range<u64> {
        let first = self.elements * u64::from(index);
        first..first + self.elements
    }

    fn poisoned(&self) {
        let poison = vec![POISON; self.output.len()];
        self.output.write(0, &poison).unwrap();
        self.input.write(0, &poison).unwrap();
    }

    fn input(&self, bytes: &[u8]) -> ArenaPlace<'_> {
        self.input.write(GUARD, bytes).unwrap();
        (&self.input, GUARD)
    }

    fn output(&self) -> ArenaPlace<'_> {
        (&self.output, GUARD)
    }

    /// Compares the output with `expected`, and the bytes after it with the poison.
    #[track_caller]
    fn assert_output(&self, call: &str, case: Case, expected: &[u8]) {
        self.assert_output_of(call, case, expected, expected.len());
    }

    /// Like `assert_output`, for a call that may write up to `written` bytes.
    #[track_caller]
    fn assert_output_of(&self, call: &str, case: Case, expected: &[u8], written: usize) {
        let mut found = vec![0; self.output.len()];
        self.output.read(0, &mut found).unwrap();
        let (before, rest) = found.split_at(GUARD as usize);
        let (result, after) = rest.split_at(expected.len());
        let after = after.get(written - expected.len()..).unwrap();
        let (me, of) = (self.comm.rank(), self.comm.size());
        let Case {
            element, reduction, ..
        } = case;
        let what = format!(
            "{call} {element:?} {reduction:?} in place: {}, root {}, rank {me} of {of}",
            case.in_place, case.root
        );
        assert!(result == expected, "{what}: {result:?} for {expected:?}");
        let clean = |bytes: &[u8]| bytes.iter().all(|&byte| byte == POISON);
        assert!(clean(before) && clean(after), "{what}: wrote too much");
    }

    fn all_reduce(&self, case: Case, reduction: MpiReduction) {
        self.poisoned();
        let range = 0..self.elements;
        let mine = self.gift(case, self.comm.rank(), range.clone());
        let send = self.send(case.in_place, 0, &mine);
        self.comm
            .all_reduce(case.element, reduction, send, self.output(), self.elements)
            .unwrap();
        let expected = self.sum(case, reduction, range);
        self.assert_output("all-reduce", case, &expected);
    }

    /// Writes the input elements, and returns their memory. For an in-place call, they are in the output, and `None` is
    /// returned.
    fn send(&self, in_place: bool, at: u64, bytes: &[u8]) -> Option<ArenaPlace<'_>> {
        if in_place {
            self.output.write(GUARD + at, bytes).unwrap();
            return None;
        }
        Some(self.input(bytes))
    }

    fn reduce_scatter(&self, case: Case, reduction: MpiReduction) {
        self.poisoned();
        let mine = self.gift(case, self.comm.rank(), 0..self.all());
        let send = self.send(case.in_place, 0, &mine);
        self.comm
            .reduce_scatter_block(case.element, reduction, send, self.output(), self.elements)
            .unwrap();
        let expected = self.sum(case, reduction, self.block(self.comm.rank()));
        // In place, the blocks after the result are undefined.
        let written = if case.in_place { &mine } else { &expected }.len();
        self.assert_output_of("reduce-scatter", case, &expected, written);
    }

    fn reduce(&self, case: Case, reduction: MpiReduction) {
        self.poisoned();
        let range = 0..self.elements;
        let mine = self.gift(case, self.comm.rank(), range.clone());
        let (root, is_root) = (case.root, self.comm.rank() == case.root);
        let send = self.send(case.in_place && is_root, 0, &mine);
        let recv = is_root.then(|| self.output());
        self.comm
            .reduce(case.element, reduction, root, send, recv, self.elements)
            .unwrap();
        let expected = self.sum(case, reduction, if is_root { range } else { 0..0 });
        self.assert_output("reduce", case, &expected);
    }

    fn gifts(&self, case: Case) -> Vec<u8> {
        (0..self.comm.size())
            .flat_map(|rank| self.gift(case, rank, 0..self.elements))
            .collect()
    }

    fn all_gather(&self, case: Case) {
        self.poisoned();
        let mine = self.gift(case, self.comm.rank(), 0..self.elements);
        let at = mine.len() as u64 * u64::from(self.comm.rank());
        let send = self.send(case.in_place, at, &mine);
        self.comm
            .all_gather(case.element, send, self.output(), self.elements)
            .unwrap();
        let expected = self.gifts(case);
        self.assert_output("all-gather", case, &expected);
    }

    fn all_to_all(&self, case: Case) {
        self.poisoned();
        let me = self.comm.rank();
        let mine = self.gift(case, me, 0..self.all());
        let send = self.send(case.in_place, 0, &mine);
        self.comm
            .all_to_all(case.element, send, self.output(), self.elements)
            .unwrap();
        let expected: Vec<u8> = (0..self.comm.size())
            .flat_map(|rank| self.gift(case, rank, self.block(me)))
            .collect();
        self.assert_output("all-to-all", case, &expected);
    }

    fn gather(&self, case: Case) {
        self.poisoned();
        let mine = self.gift(case, self.comm.rank(), 0..self.elements);
        let is_root = self.comm.rank() == case.root;
        let at = mine.len() as u64 * u64::from(case.root);
        let send = self.send(case.in_place && is_root, at, &mine);
        let recv = is_root.then(|| self.output());
        self.comm
            .gather(case.element, case.root, send, recv, self.elements)
            .unwrap();
        let expected = if is_root {
            self.gifts(case)
        } else {
            Vec::new()
        };
        self.assert_output("gather", case, &expected);
    }

    fn scatter(&self, case: Case) {
        self.poisoned();
        let is_root = self.comm.rank() == case.root;
        let all = self.gift(case, case.root, 0..self.all());
        let send = is_root.then(|| self.input(&all));
        let in_place = case.in_place && is_root;
        let recv = (!in_place).then(|| self.output());
        self.comm
            .scatter(case.element, case.root, send, recv, self.elements)
            .unwrap();
        let block = self.block(self.comm.rank());
        let expected = self.gift(case, case.root, if in_place { 0..0 } else { block });
        self.assert_output("scatter", case, &expected);
    }

    fn broadcast(&self, case: Case) {
        self.poisoned();
        let expected = self.gift(case, case.root, 0..self.elements);
        if self.comm.rank() == case.root {
            self.send(true, 0, &expected);
        }
        self.comm
            .broadcast(case.element, case.root, self.output(), self.elements)
            .unwrap();
        self.assert_output("broadcast", case, &expected);
    }

    /// Sends each rank's elements to the next rank of the ring: by two calls, then by one call that sends and receives.
    fn message(&self, element: MpiType) {
        let (me, size) = (self.comm.rank(), self.comm.size());
        if size == 1 {
            return;
        }
        self.poisoned();
        let case = Case {
            element,
            reduction: None,
            in_place: false,
            root: 0,
        };
        let (next, last) = ((me + 1) % size, (me + size - 1) % size);
        let mine = self.gift(case, me, 0..self.elements);
        let from = self.input(&mine);
        let send = || self.comm.send(element, next, from, self.elements).unwrap();
        // One rank receives first, because MPI's send may wait for the receiver.
        if me != 0 {
            send();
        }
        self.comm
            .receive(element, last, self.output(), self.elements)
            .unwrap();
        if me == 0 {
            send();
        }
        let expected = self.gift(case, last, 0..self.elements);
        self.assert_output("send-recv-pairs", case, &expected);
        self.poisoned();
        let (from, to) = (self.input(&mine), self.output());
        self.comm
            .send_receive(element, (next, from), (last, to), self.elements)
            .unwrap();
        self.assert_output("send-recv-ring", case, &expected);
    }
}
