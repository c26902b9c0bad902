//! Cells of a sweep, one per combination of the options' values. A combination may be impossible although each of its
//! values is valid, such as 8 bytes of all-gather over 3 ranks. An impossible cell is recorded as skipped with its
//! reason, and all others are measured. If no cell is possible, the request is refused and no rank starts.

use crate::bounds::POINTS_MAX;
use crate::refuse::usage_error;
use tonnage_units::{Error, Result};

/// One cell: a point, and the reason why it cannot be measured, if there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell<P> {
    /// The point, with every value fixed. The point of an impossible cell may be incomplete.
    pub point: P,
    /// Why the point cannot be measured, worded as an error message. `None` if it can be measured.
    pub impossible: Option<String>,
}

impl<P> From<P> for Cell<P> {
    fn from(point: P) -> Self {
        Self {
            point,
            impossible: None,
        }
    }
}

/// Returns every combination of a point and a value. `set` puts the value into the point. The values vary fastest.
pub(crate) fn cross_product<P: Clone, V>(
    points: Vec<P>,
    values: &[V],
    set: impl Fn(&mut P, &V),
) -> Vec<P> {
    let with = |(point, value): (&P, &V)| {
        let mut point = point.clone();
        set(&mut point, value);
        point
    };
    let all = points
        .iter()
        .flat_map(|point| values.iter().map(move |value| (point, value)));
    all.map(with).collect()
}

/// Refuses an experiment with more than `points_max` points. `counts` has the number of values of each option.
pub(crate) fn check_total(counts: &[usize], points_max: usize, this: &str) -> Result<()> {
    let total = counts.iter().copied().fold(1, usize::saturating_mul);
    if total <= points_max {
        return Ok(());
    }
    usage_error(format!(
        "the plan has more than {POINTS_MAX} points, and this {this} alone has {total}: use coarser sweeps, or several plans"
    ))
}

/// The cells of one experiment.
#[derive(Debug)]
pub(crate) struct Cells<P>(Vec<Cell<P>>);

impl<P> Cells<P> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a cell. A usage error from its checks marks it as impossible; any other error is returned.
    pub(crate) fn add(&mut self, point: P, checked: Result<()>) -> Result<()> {
        let impossible = match checked {
            Ok(()) => None,
            Err(Error::Usage(why)) => Some(why),
            Err(other) => return Err(other),
        };
        self.0.push(Cell { point, impossible });
        Ok(())
    }

    /// Returns all cells. If none is possible, returns the first cell's reason as an error.
    pub(crate) fn all(mut self) -> Result<Vec<Cell<P>>> {
        if self.0.iter().all(|cell| cell.impossible.is_some())
            && let Some(why) = self.0.first_mut().and_then(|cell| cell.impossible.take())
        {
            return usage_error(why);
        }
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(why: &str) -> Result<()> {
        Err(Error::Usage(why.to_owned()))
    }

    #[test]
    fn impossible_cells_are_kept_among_possible_ones_and_refused_alone() {
        let mut cells = Cells::new();
        cells.add('a', refused("first")).unwrap();
        cells.add('b', Ok(())).unwrap();
        let all = cells.all().unwrap();
        let reasons: Vec<_> = all.iter().map(|cell| cell.impossible.as_deref()).collect();
        assert_eq!(reasons, [Some("first"), None]);
        let mut none = Cells::new();
        none.add('a', refused("first")).unwrap();
        none.add('b', refused("second")).unwrap();
        let error = none.all().unwrap_err();
        assert_eq!((error.exit_code(), error.to_string()), (2, "first".into()));
        let broken = Cells::new().add('a', Err(Error::Failed("broken".into())));
        assert!(broken.is_err());
        assert!(Cells::<char>::new().all().unwrap().is_empty());
    }
}
