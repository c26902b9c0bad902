//! Splits a table wider than the screen into blocks below each other. Each block starts with the key columns.

use super::text::WIDTH;

/// Line above each block after the first.
pub const FURTHER: &str = "further columns of the same rows:";

/// Spaces between two columns.
const GAP: usize = 2;

/// Role of a column when a table is too wide for one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnRole {
    /// Repeated in every block, because it identifies the rows.
    Key,
    /// In the first block only.
    First,
    /// In the first block with enough room.
    Figure,
    /// In the same block as the preceding figure.
    Attached,
}

/// Returns the column indices of each block. A block is wider than the screen only if a single figure, with its keys
/// and adjacent columns, does not fit. A table without keys is one block.
pub fn blocks(rows: &[Vec<String>], roles: &[ColumnRole]) -> Vec<Vec<usize>> {
    let widths: Vec<usize> = (0..roles.len()).map(|at| width(rows, at)).collect();
    let room = |places: &[usize]| -> usize {
        let columns = places.iter().filter_map(|at| widths.get(*at));
        columns.sum::<usize>() + GAP * places.len().saturating_sub(1)
    };
    let all: Vec<usize> = (0..roles.len()).collect();
    let of = |wanted: &[ColumnRole]| -> Vec<usize> {
        let places = all.iter().zip(roles);
        let places = places.filter(|(_, role)| wanted.contains(role));
        places.map(|(at, _)| *at).collect()
    };
    let keys = of(&[ColumnRole::Key]);
    if keys.is_empty() || room(&all) <= WIDTH {
        return vec![all];
    }
    let mut block = of(&[ColumnRole::Key, ColumnRole::First]);
    let mut blocks = Vec::new();
    let mut is_begun = false;
    for unit in figure_groups(roles) {
        let with_it = [&block[..], &unit].concat();
        if is_begun && room(&with_it) > WIDTH {
            blocks.push(std::mem::take(&mut block));
            block = [&keys[..], &unit].concat();
        } else {
            block = with_it;
        }
        is_begun = true;
    }
    blocks.push(block);
    blocks.iter_mut().for_each(|block| block.sort_unstable());
    blocks
}

/// Groups each figure with the columns that must stay next to it.
fn figure_groups(roles: &[ColumnRole]) -> Vec<Vec<usize>> {
    let mut units: Vec<Vec<usize>> = Vec::new();
    for (at, role) in roles.iter().enumerate() {
        match (role, units.last_mut()) {
            (ColumnRole::Figure, _) | (ColumnRole::Attached, None) => units.push(vec![at]),
            (ColumnRole::Attached, Some(unit)) => unit.push(at),
            (ColumnRole::Key | ColumnRole::First, _) => {}
        }
    }
    units
}

/// Width of a column. Headers can have several lines.
fn width(rows: &[Vec<String>], at: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(at));
    let lines = cells.flat_map(|cell| cell.lines());
    lines.map(|line| line.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::ColumnRole::{Attached, Figure, First, Key};
    use super::*;
    use proptest::prelude::*;

    /// A header and a row with cells of these widths.
    fn rows(widths: &[usize]) -> Vec<Vec<String>> {
        let row = |mark: &str| widths.iter().map(|width| mark.repeat(*width)).collect();
        vec![vec!["h\n(u)".to_owned(); widths.len()], row("x")]
    }

    #[test]
    fn columns_go_where_there_is_room_and_keys_are_everywhere() {
        let roles = [Key, Figure, Figure, Attached, Figure, First];
        let of = |widths: [usize; 6]| blocks(&rows(&widths), &roles);
        // Five gaps of two.
        assert_eq!(of([10, 20, 20, 20, 20, 20]), [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(
            of([10, 20, 20, 20, 21, 20]),
            [vec![0, 1, 2, 3, 5], vec![0, 4]]
        );
        assert_eq!(
            of([10, 20, 20, 50, 20, 20]),
            [vec![0, 1, 5], vec![0, 2, 3, 4]]
        );
        // A unit too wide for any block gets its own.
        assert_eq!(
            of([10, 20, 90, 90, 20, 20]),
            [vec![0, 1, 5], vec![0, 2, 3], vec![0, 4]]
        );
        // Figures also get a new block after columns of the first block that are too wide.
        assert_eq!(
            of([10, 20, 20, 20, 20, 120]),
            [vec![0, 1, 5], vec![0, 2, 3, 4]]
        );
        let no_keys = [Figure; 6];
        assert_eq!(blocks(&rows(&[50; 6]), &no_keys), [[0, 1, 2, 3, 4, 5]]);
    }

    proptest! {
        #[test]
        fn every_column_is_shown_once_and_keys_in_every_block(
            columns in prop::collection::vec((1usize..30, 0usize..4), 1..20)
        ) {
            let roles: Vec<_> = columns.iter().map(|(_, at)| [Key, First, Figure, Attached][*at]).collect();
            let widths: Vec<_> = columns.iter().map(|(width, _)| *width).collect();
            let blocks = blocks(&rows(&widths), &roles);
            for (at, role) in roles.iter().enumerate() {
                let shown = blocks.iter().filter(|block| block.contains(&at)).count();
                prop_assert_eq!(shown, if *role == Key { blocks.len() } else { 1 });
            }
            let figures = figure_groups(&roles);
            for block in blocks.iter().filter(|_| roles.contains(&Key)) {
                // The header is three wide.
                let columns: usize = block.iter().map(|at| widths[*at].max(3)).sum();
                let count = figures.iter().filter(|unit| block.contains(&unit[0])).count();
                prop_assert!(count <= 1 || columns + GAP * (block.len() - 1) <= WIDTH);
            }
        }
    }
}
