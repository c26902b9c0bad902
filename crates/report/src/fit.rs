//! Chooses the columns of a table for a screen. Columns that do not fit are left out, the least important ones first.

use super::column::Column;
use super::grid::{align, total_width, width};

/// Columns as text, each with its header first.
pub struct FittedTable {
    /// Text of the columns that are printed.
    pub columns: Vec<Vec<String>>,
    /// For each printed column, whether it is right-aligned.
    pub right: Vec<bool>,
    /// Names of the columns that do not fit.
    pub dropped: Vec<String>,
}

/// Columns of words are not cut below this width.
const WORDS_MIN: usize = 8;

/// Drops the least important columns until the rest fits into lines of `most` characters. If the columns that must stay
/// are still too wide, cuts the words in the widest one.
pub fn fit(columns: Vec<(&Column, Vec<String>)>, most: usize) -> FittedTable {
    let mut groups = groups(columns);
    let mut dropped = Vec::new();
    while room(&groups) > most {
        let droppable = groups.iter().enumerate();
        let droppable = droppable.filter_map(|(at, group)| Some((group.keep?, at)));
        let Some((_, at)) = droppable.min_by_key(|(keep, at)| (*keep, usize::MAX - at)) else {
            break;
        };
        dropped.push((groups[at].place, groups.remove(at).name));
    }
    dropped.sort_unstable();
    let excess = room(&groups).saturating_sub(most);
    if excess > 0 {
        cut_words(&mut groups, excess);
    }
    let (right, columns) = groups.into_iter().flat_map(|group| group.columns).unzip();
    FittedTable {
        columns,
        right,
        dropped: dropped.into_iter().map(|(_, name)| name).collect(),
    }
}

/// Columns that are printed together or not at all.
struct Group {
    place: usize,
    name: String,
    keep: Option<u8>,
    /// Whether a column is right-aligned, and its text.
    columns: Vec<(bool, Vec<String>)>,
}

fn groups(columns: Vec<(&Column, Vec<String>)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (place, (column, mut text)) in columns.into_iter().enumerate() {
        if column.is_right() {
            align(&mut text);
        }
        let one = (column.is_right(), text);
        match groups.last_mut().filter(|_| column.is_attached) {
            Some(group) => group.columns.push(one),
            None => groups.push(Group {
                place,
                name: column.bare_name().to_owned(),
                keep: column.keep,
                columns: vec![one],
            }),
        }
    }
    groups
}

fn room(groups: &[Group]) -> usize {
    let columns = groups.iter().flat_map(|group| &group.columns);
    let widths: Vec<usize> = columns.map(|(_, text)| width(text)).collect();
    total_width(&widths)
}

/// Cuts the widest column of words.
fn cut_words(groups: &mut [Group], excess: usize) {
    let columns = groups.iter_mut().flat_map(|group| &mut group.columns);
    let words = columns.filter(|(right, _)| !right).map(|(_, text)| text);
    let Some(widest) = words.max_by_key(|text| width(text)) else {
        return;
    };
    let most = width(widest).saturating_sub(excess).max(WORDS_MIN);
    for cell in widest.iter_mut().filter(|cell| cell.chars().count() > most) {
        let kept: String = cell.chars().take(most - 1).collect();
        *cell = kept + "…";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A column with one cell of this width.
    fn column(keep: Option<u8>, cells: usize) -> (Column, Vec<String>) {
        let cells = vec!["h".to_owned(), "x".repeat(cells)];
        let mut column = Column::words(format!("{keep:?}"), vec![cells[1].clone()], keep.is_some());
        column.keep = keep;
        (column, cells)
    }

    fn fitted(columns: &[(Column, Vec<String>)], most: usize) -> FittedTable {
        let columns = columns.iter();
        let columns = columns.map(|(column, text)| (column, text.clone()));
        fit(columns.collect(), most)
    }

    #[test]
    fn the_least_important_columns_drop_first() {
        let columns = [(None, 5), (Some(9), 5), (Some(1), 5), (Some(9), 5)];
        let columns = columns.map(|(keep, width)| column(keep, width));
        let dropped = |most| fitted(&columns, most).dropped;
        assert!(dropped(26).is_empty());
        assert_eq!(dropped(25), ["Some(1)"]);
        let narrow = fitted(&columns, 18);
        assert_eq!(
            narrow.dropped,
            ["Some(9)", "Some(1)"].map(str::to_owned)[1..]
                .iter()
                .cloned()
                .chain(["Some(9)".to_owned()])
                .collect::<Vec<_>>()
        );
        assert_eq!(narrow.columns.len(), 2);
    }

    #[test]
    fn attached_columns_go_with_theirs() {
        let mut columns =
            [(None, 5), (Some(5), 5), (Some(5), 5)].map(|(keep, width)| column(keep, width));
        columns[2].0.is_attached = true;
        assert_eq!(fitted(&columns, 18).columns.len(), 1);
    }

    proptest! {
        #[test]
        fn lines_fit_or_only_identifying_numbers_are_left(
            columns in prop::collection::vec((1usize..30, prop::option::of(0u8..4)), 1..20), most in 20usize..200
        ) {
            let columns: Vec<_> = columns.iter().map(|(width, keep)| column(*keep, *width)).collect();
            let fitted = fitted(&columns, most);
            let widths: Vec<usize> = fitted.columns.iter().map(|text| width(text)).collect();
            let identifying = columns.iter().filter(|(column, _)| column.keep.is_none()).count();
            prop_assert!(total_width(&widths) <= most || fitted.columns.len() == identifying);
            prop_assert_eq!(fitted.columns.len() + fitted.dropped.len(), columns.len());
        }
    }
}
