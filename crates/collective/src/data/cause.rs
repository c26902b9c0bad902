//! Explanations of a wrong element: typical faults of a collective, each tested against the bytes found.

use std::fmt;

use tonnage_units::Result;

use super::call::Data;
use super::number::ElementValue;
use crate::{Dtype, Reduction};

/// How many earlier calls to try when explaining wrong data.
const CALLS_BACK_MAX: u64 = 4;
/// How many neighbouring elements on each side to try as the source of a wrong element.
const SHIFT_MAX: i64 = 256;

/// An explanation. Earlier variants are more likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WrongCause {
    /// The output is as it was before the call.
    Unwritten,
    /// The element has the result of an earlier call, this many calls ago.
    Call(u64),
    /// The result lacks this rank's part.
    Missing(u32),
    /// The result contains this rank's part twice.
    Twice(u32),
    /// The element has only this rank's part.
    Alone(u32),
    /// The bytes come from the input of this rank (first field) in the call this many calls ago (second field).
    Given(u32, u64),
    /// The bytes come from another block of the right rank's input.
    Block(u64),
    /// The element belongs at this distance from its position.
    Shifted(i64),
}

/// The bytes of an element.
pub type ElementBytes = [u8; 8];

/// One wrong element.
#[derive(Debug, Clone, Copy)]
pub struct WrongAt {
    /// The rank with the element in its output.
    pub rank: u32,
    /// Index of the element in this output.
    pub element: u64,
    /// Expected bytes, padded with 0.
    pub expected: ElementBytes,
    /// Bytes found, padded with 0.
    pub found: ElementBytes,
}

impl WrongCause {
    /// Returns all explanations that fit a wrong element.
    pub fn find_all(data: &Data, wrong: &WrongAt) -> Result<Vec<Self>> {
        let ranks = data.shape().ranks;
        let mut causes = vec![Self::Unwritten];
        causes.extend((1..=CALLS_BACK_MAX).map(Self::Call));
        if data.reduction().is_some() {
            causes.extend((0..ranks).map(Self::Missing));
            causes.extend((0..ranks).map(Self::Twice));
            causes.extend((0..ranks).map(Self::Alone));
        } else {
            causes.extend((0..ranks).map(|rank| Self::Given(rank, 0)));
            causes.extend((0..ranks).map(|rank| Self::Given(rank, 1)));
            causes.extend((0..ranks.into()).map(Self::Block));
        }
        let shifts = (1..=SHIFT_MAX).flat_map(|shift| [shift, -shift]);
        causes.extend(shifts.map(Self::Shifted));
        Self::narrow(data, wrong, &mut causes)?;
        Ok(causes)
    }

    /// Keeps the explanations that also fit another wrong element.
    pub fn narrow(data: &Data, wrong: &WrongAt, causes: &mut Vec<Self>) -> Result<()> {
        let mut failed = Ok(());
        causes.retain(|cause| match cause.fits(data, wrong) {
            Ok(fits) => fits,
            Err(error) => {
                failed = Err(error);
                false
            }
        });
        failed
    }

    fn fits(self, data: &Data, wrong: &WrongAt) -> Result<bool> {
        let dtype = data.shape().dtype;
        let size = dtype.bytes() as usize;
        let mut bytes: ElementBytes = [0; 8];
        let out = &mut bytes[..size];
        let (rank, element) = (wrong.rank, wrong.element);
        match self {
            Self::Unwritten => data.poison(rank, element, out)?,
            Self::Call(back) => match data.call().checked_sub(back) {
                Some(call) => data.for_call(call).expected(rank, element, out)?,
                None => return Ok(false),
            },
            Self::Missing(of) => return Self::is_missing(data, wrong, of),
            Self::Twice(of) => return Self::is_twice(data, wrong, of),
            Self::Alone(of) => data.input(of, data.reduced_element(rank, element), out)?,
            Self::Given(of, back) => {
                let origin = data.origin(rank, element);
                let call = data.call().checked_sub(back);
                let (Some(origin), Some(call)) = (origin, call) else {
                    return Ok(false);
                };
                if origin.element >= data.shape().input(of) {
                    return Ok(false);
                }
                data.for_call(call).input(of, origin.element, out)?;
            }
            Self::Block(block) => {
                let Some(origin) = data.origin(rank, element) else {
                    return Ok(false);
                };
                let length = data.shape().block.max(1);
                let place = block * length + origin.element % length;
                if place >= data.shape().input(origin.rank) {
                    return Ok(false);
                }
                data.input(origin.rank, place, out)?;
            }
            Self::Shifted(by) => {
                let place = element.checked_add_signed(by);
                let place = place.filter(|place| *place < data.shape().output(rank));
                match place {
                    Some(place) => data.expected(rank, place, out)?,
                    None => return Ok(false),
                }
            }
        }
        Ok(bytes == wrong.found)
    }

    fn is_missing(data: &Data, wrong: &WrongAt, of: u32) -> Result<bool> {
        let Some(reduced) = Reduced::new(data, wrong) else {
            return Ok(false);
        };
        let part = reduced.part(of)?;
        let Reduced {
            dtype, reduction, ..
        } = reduced;
        match reduction {
            Reduction::Sum | Reduction::Prod => {
                let again = reduced.found.combine(dtype, reduction, part);
                Ok(again == reduced.expected && reduced.counts(part))
            }
            Reduction::Avg => Ok(reduced.average(part, -1) == reduced.found),
            Reduction::Min | Reduction::Max => {
                if part != reduced.expected {
                    return Ok(false);
                }
                let mut others = (0..data.shape().ranks).filter(|rank| *rank != of);
                let Some(first) = others.next() else {
                    return Ok(false);
                };
                let first = reduced.part(first);
                let without = others.try_fold(first?, |so_far, rank| {
                    Ok::<_, tonnage_units::Error>(so_far.combine(
                        dtype,
                        reduction,
                        reduced.part(rank)?,
                    ))
                });
                Ok(without? == reduced.found)
            }
        }
    }

    fn is_twice(data: &Data, wrong: &WrongAt, of: u32) -> Result<bool> {
        let Some(reduced) = Reduced::new(data, wrong) else {
            return Ok(false);
        };
        let part = reduced.part(of)?;
        Ok(match reduced.reduction {
            Reduction::Min | Reduction::Max => false,
            Reduction::Avg => reduced.average(part, 1) == reduced.found,
            Reduction::Sum | Reduction::Prod => {
                let twice = reduced
                    .expected
                    .combine(reduced.dtype, reduced.reduction, part);
                twice == reduced.found
            }
        })
    }
}

/// A wrong element of a reduction, decoded to numbers.
struct Reduced<'a> {
    data: &'a Data,
    /// Index of the element in the inputs.
    element: u64,
    dtype: Dtype,
    reduction: Reduction,
    expected: ElementValue,
    found: ElementValue,
}

impl<'a> Reduced<'a> {
    fn new(data: &'a Data, wrong: &WrongAt) -> Option<Self> {
        let dtype = data.shape().dtype;
        Some(Self {
            data,
            element: data.reduced_element(wrong.rank, wrong.element),
            dtype,
            reduction: data.reduction()?,
            expected: ElementValue::read(dtype, &wrong.expected),
            found: ElementValue::read(dtype, &wrong.found),
        })
    }

    fn part(&self, rank: u32) -> Result<ElementValue> {
        let mut bytes: ElementBytes = [0; 8];
        let out = &mut bytes[..self.dtype.bytes() as usize];
        self.data.input(rank, self.element, out)?;
        Ok(ElementValue::read(self.dtype, &bytes))
    }

    /// Whether counting the part once more would change the result.
    fn counts(&self, part: ElementValue) -> bool {
        self.expected.combine(self.dtype, self.reduction, part) != self.expected
    }

    /// The average after adding the part `times` times to the sum.
    fn average(&self, part: ElementValue, times: i64) -> ElementValue {
        let sum = self.data.undivided_sum(self.element).unwrap_or_default();
        self.expected
            .average_of(self.dtype, self.data.shape().ranks, sum, part, times)
    }
}

/// Formats the explanations of the likeliest kind, if there are only a few of them.
#[derive(Debug, Clone, Copy)]
pub struct CauseText<'a> {
    /// Explanations that fit.
    pub causes: &'a [WrongCause],
    /// Number of bytes that the explanations fit. A few bytes can fit by chance.
    pub bytes: u64,
}

impl CauseText<'_> {
    /// The most explanations of one kind to list.
    const NAMED_MAX: usize = 3;
    /// The fewest bytes that an unlikely kind of explanation must fit. Hundreds of these explanations are tried, so one
    /// of them may fit fewer bytes by chance.
    const BYTES_MIN: u64 = 4;

    /// The explanations to list.
    fn named(&self) -> &[WrongCause] {
        let is_safe = self.bytes >= Self::BYTES_MIN;
        let mut by_kind = self.causes.chunk_by(|a, b| a.kind() == b.kind());
        let likeliest = by_kind.find(|same| is_safe || same[0].is_likely());
        let few = likeliest.filter(|same| same.len() <= Self::NAMED_MAX);
        few.unwrap_or_default()
    }
}

impl WrongCause {
    fn kind(self) -> std::mem::Discriminant<Self> {
        std::mem::discriminant(&self)
    }

    fn is_likely(self) -> bool {
        matches!(self, Self::Unwritten | Self::Missing(_) | Self::Twice(_))
    }

    /// Returns the part of the text that differs between explanations of the same kind, and the text around it.
    fn words(self) -> (&'static str, String, String) {
        let calls = |back| match back {
            1 => "the previous call".to_owned(),
            back => format!("{back} calls ago"),
        };
        match self {
            Self::Unwritten => ("", "nothing was written".into(), String::new()),
            Self::Call(back) => ("the result of ", calls(back), String::new()),
            Self::Missing(rank) => ("the part of rank ", rank.to_string(), " is missing".into()),
            Self::Twice(rank) => (
                "the part of rank ",
                rank.to_string(),
                " is counted twice".into(),
            ),
            Self::Alone(rank) => ("the part of rank ", rank.to_string(), " alone".into()),
            Self::Given(rank, 0) => ("bytes of rank ", rank.to_string(), String::new()),
            Self::Given(rank, back) => (
                "bytes of rank ",
                format!("{rank} of {}", calls(back)),
                String::new(),
            ),
            Self::Block(block) => ("bytes of block ", block.to_string(), String::new()),
            Self::Shifted(by) => (
                "the element ",
                match by {
                    1.. => format!("{by} further on"),
                    _ => format!("{} before", -by),
                },
                String::new(),
            ),
        }
    }
}

impl fmt::Display for CauseText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named();
        let Some(first) = named.first() else {
            return Ok(());
        };
        let (before, _, after) = first.words();
        let things: Vec<String> = named.iter().map(|cause| cause.words().1).collect();
        write!(f, " ({before}{}{after})", things.join(" or "))
    }
}
