//! Memory of a rank: its elements, and the last accesses to each element.

use std::ops::Range;

use super::Case;
use super::clock::{Knowledge, Moment};
use super::value::{Contributions, Value};
use crate::steps::{Buffer, InPlace, Place};

/// An access to an element. Reaching either of these two moments proves that the access has ended.
#[derive(Debug, Clone, Copy)]
pub struct Access(pub [Moment; 2]);

impl Access {
    pub fn at(moment: Moment) -> Self {
        Self([moment; 2])
    }

    fn has_ended(&self, known: &Knowledge) -> bool {
        self.0.iter().any(|moment| known.includes(*moment))
    }
}

#[derive(Debug, Clone)]
struct Cell {
    value: Value,
    writer: Access,
    readers: Vec<Access>,
}

/// Elements of a rank's input, output, and both halves of its scratch.
#[derive(Debug)]
pub struct Memory {
    cells: Vec<Cell>,
    element_bytes: u64,
    input: Range<usize>,
    output: Range<usize>,
    scratch: [Range<usize>; 2],
}

impl Memory {
    pub fn new(case: &Case, rank: u32) -> Self {
        let element_bytes = case.shape.dtype.bytes();
        let elements = |bytes: u64| bytes.div_ceil(element_bytes) as usize;
        let range = |begin: usize, bytes: u64| begin..begin + elements(bytes);
        let (input, output) = (case.shape.input_bytes(rank), case.shape.output_bytes(rank));
        let (input, output, data) = match case.in_place {
            true => {
                let stretch = InPlace::for_rank(&case.shape, rank);
                let input = range(elements(stretch.input), input);
                let output = range(elements(stretch.output), output);
                (input, output, elements(stretch.bytes))
            }
            false => {
                let input = range(0, input);
                let output = range(input.end, output);
                let data = output.end;
                (input, output, data)
            }
        };
        let half = case.programs[rank as usize].scratch_bytes;
        let first = range(data, half);
        let second = range(first.end, half);
        let cell = Cell {
            value: None,
            writer: Access::at(Moment { rank, tick: 0 }),
            readers: Vec::new(),
        };
        Self {
            cells: vec![cell; second.end],
            element_bytes,
            input,
            output,
            scratch: [first, second],
        }
    }

    /// Returns the elements at a location during a call.
    pub fn range(&self, place: Place, bytes: u64, call: u32) -> Result<Range<usize>, String> {
        let buffer = match place.buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Scratch => &self.scratch[call as usize % 2],
        };
        let wrong = || {
            format!(
                "{bytes} bytes at {place:?} are outside of its {} elements",
                buffer.len()
            )
        };
        let whole = |bytes: u64| match bytes % self.element_bytes {
            0 => Ok((bytes / self.element_bytes) as usize),
            _ => Err(wrong()),
        };
        let begin = buffer.start + whole(place.offset)?;
        let end = begin + whole(bytes)?;
        match end <= buffer.end {
            true => Ok(begin..end),
            false => Err(wrong()),
        }
    }

    pub fn values(&self, range: Range<usize>) -> Vec<Value> {
        let cells = self.cells[range].iter();
        cells.map(|cell| cell.value).collect()
    }

    pub fn store(&mut self, range: Range<usize>, values: Vec<Value>) {
        for (cell, value) in self.cells[range].iter_mut().zip(values) {
            cell.value = value;
        }
    }

    /// Records a read by a rank that knows `known`. Fails if a write may still be in progress.
    pub fn read(
        &mut self,
        range: Range<usize>,
        access: Access,
        known: &Knowledge,
    ) -> Result<(), String> {
        for (index, cell) in range.clone().zip(&mut self.cells[range]) {
            if !cell.writer.has_ended(known) {
                return Err(format!(
                    "element {index} may still be written to ({:?}) when it is read",
                    cell.writer
                ));
            }
            let is_later = |last: &Access| {
                last.0.map(|moment| moment.rank) == access.0.map(|moment| moment.rank)
            };
            match cell
                .readers
                .last_mut()
                .filter(|last| is_later(last) && access.0[0] == access.0[1])
            {
                Some(last) => *last = access,
                None => cell.readers.push(access),
            }
        }
        Ok(())
    }

    /// Records a write by a rank that knows `known`. Fails if another access may still be in progress.
    pub fn write(
        &mut self,
        range: Range<usize>,
        access: Access,
        known: &Knowledge,
    ) -> Result<(), String> {
        for (index, cell) in range.clone().zip(&mut self.cells[range]) {
            if let Some(reader) = cell.readers.iter().find(|reader| !reader.has_ended(known)) {
                return Err(format!(
                    "element {index} is overwritten while it may still be read ({reader:?})"
                ));
            }
            if !cell.writer.has_ended(known) {
                return Err(format!(
                    "element {index} is written to twice at once ({:?})",
                    cell.writer
                ));
            }
            cell.writer = access;
            cell.readers.clear();
        }
        Ok(())
    }

    /// Prepares the memory for a call: fills the input and clears the output.
    pub fn enter(
        &mut self,
        rank: u32,
        call: u32,
        (moment, known): (Moment, &Knowledge),
    ) -> Result<(), String> {
        let data = 0..self.scratch[0].start;
        self.write(data.clone(), Access::at(moment), known)?;
        for cell in &mut self.cells[data] {
            cell.value = None;
        }
        for (element, cell) in (0..).zip(&mut self.cells[self.input.clone()]) {
            cell.value = Some(Contributions::from_one(rank, element, call));
        }
        Ok(())
    }

    /// Checks the memory after a call: the output must be as expected, and the rest of the input unchanged.
    pub fn leave(
        &mut self,
        rank: u32,
        call: u32,
        (moment, known): (Moment, &Knowledge),
        expected: impl Fn(u32) -> Value,
    ) -> Result<(), String> {
        let data = 0..self.scratch[0].start;
        self.read(data, Access::at(moment), known)?;
        for (element, cell) in (0..).zip(&self.cells[self.output.clone()]) {
            let expected = expected(element);
            if cell.value != expected {
                return Err(format!(
                    "element {element} is {:?} and not {expected:?}",
                    cell.value
                ));
            }
        }
        for (element, index) in (0..).zip(self.input.clone()) {
            let own = Some(Contributions::from_one(rank, element, call));
            if !self.output.contains(&index) && self.cells[index].value != own {
                return Err(format!("element {element} of the input has changed"));
            }
        }
        Ok(())
    }
}
