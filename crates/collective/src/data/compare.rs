//! Comparison of an output with the expected output, and descriptions of wrong elements.
//!
//! Wrong elements with a common explanation form one mismatch. The missing part of any of several ranks may explain a
//! single wrong element. Usually the part of only one rank explains all of them.

use tonnage_units::Result;

use super::call::Data;
use super::cause::{CauseText, ElementBytes, WrongAt, WrongCause};
use super::number::ElementValue;

/// Bytes that are generated at a time, in a buffer on the stack.
const PIECE: usize = 4096;

/// The first differences that a check found, and the number of elements compared.
#[derive(Debug, Default)]
pub struct WrongElements {
    /// Elements compared.
    pub checked_elements: u64,
    /// Elements that differ.
    pub wrong_elements: u64,
    /// The first few mismatches.
    pub first: Vec<WrongGroup>,
}

/// A group of wrong elements with common explanations.
#[derive(Debug, Clone)]
pub struct WrongGroup {
    /// The rank with these elements in its output.
    pub rank: u32,
    /// Index of the first of these elements in the rank's output.
    pub element: u64,
    /// The expected value.
    pub expected: ElementValue,
    /// The value found.
    pub found: ElementValue,
    /// Explanations that fit all of these elements, the likeliest first.
    pub causes: Vec<WrongCause>,
    /// Number of elements on which the explanations were tried and which they fit.
    pub fitting: u64,
    tried: u64,
    size: u64,
}

impl WrongElements {
    /// Number of mismatches that are kept.
    const KEPT: usize = 4;
    /// The explanations of a mismatch are tried on this number of its elements. After these, they are tried only on the
    /// first wrong element of each piece.
    const TRIED: u64 = 64;

    /// Whether all compared elements were right.
    pub fn is_clean(&self) -> bool {
        self.wrong_elements == 0
    }

    /// One readable line: count, first elements, expected and found values, and explanations.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{} of {} elements are wrong",
            self.wrong_elements, self.checked_elements
        );
        for mismatch in &self.first {
            let words = CauseText {
                causes: &mismatch.causes,
                bytes: mismatch.fitting * mismatch.size,
            };
            text += &format!(
                "; rank {}, element {}: expected {}, found {}{words}",
                mismatch.rank, mismatch.element, mismatch.expected, mismatch.found,
            );
        }
        text
    }

    /// Compares part of a rank's output, starting at element `first`, and adds its differences from the expected
    /// output.
    ///
    /// # Errors
    /// If `found` is not a whole number of elements, or extends beyond the output.
    pub fn compare(&mut self, data: &Data, rank: u32, first: u64, found: &[u8]) -> Result<()> {
        let size = data.shape().dtype.bytes() as usize;
        let mut expected = [0; PIECE];
        for (index, piece) in found.chunks(PIECE).enumerate() {
            let first = first + (index * PIECE / size) as u64;
            let expected = &mut expected[..piece.len()];
            data.expected(rank, first, expected)?;
            self.checked_elements += (piece.len() / size) as u64;
            if expected != piece {
                self.add(data, (rank, first), expected, piece)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        data: &Data,
        (rank, first): (u32, u64),
        expected: &[u8],
        found: &[u8],
    ) -> Result<()> {
        let size = data.shape().dtype.bytes() as usize;
        let padded = |bytes: &[u8]| {
            let mut padded: ElementBytes = [0; 8];
            padded[..size].copy_from_slice(bytes);
            padded
        };
        let pairs = expected.chunks_exact(size).zip(found.chunks_exact(size));
        let wrong = pairs.zip(first..).filter(|((a, b), _)| a != b);
        let mut is_first = true;
        for ((expected, found), element) in wrong {
            self.wrong_elements += 1;
            let tried = self.first.last().map_or(0, |last| last.tried);
            if is_first || tried < Self::TRIED {
                self.explain(
                    data,
                    &WrongAt {
                        rank,
                        element,
                        expected: padded(expected),
                        found: padded(found),
                    },
                )?;
            }
            is_first = false;
        }
        Ok(())
    }

    /// Adds an element to the last mismatch if a common explanation remains. Otherwise adds a new mismatch.
    fn explain(&mut self, data: &Data, wrong: &WrongAt) -> Result<()> {
        if let Some(last) = self.first.last_mut()
            && last.rank == wrong.rank
        {
            last.tried += 1;
            let mut common = last.causes.clone();
            WrongCause::narrow(data, wrong, &mut common)?;
            if !common.is_empty() {
                last.fitting += 1;
                last.causes = common;
                return Ok(());
            }
        }
        if self.first.len() < Self::KEPT {
            let dtype = data.shape().dtype;
            self.first.push(WrongGroup {
                rank: wrong.rank,
                element: wrong.element,
                expected: ElementValue::read(dtype, &wrong.expected),
                found: ElementValue::read(dtype, &wrong.found),
                causes: WrongCause::find_all(data, wrong)?,
                fitting: 1,
                tried: 1,
                size: dtype.bytes(),
            });
        }
        Ok(())
    }
}
