//! The records of two sides: from two files, or from one file with records of both.

use std::collections::BTreeSet;

use tonnage_record::{Record, SideName};
use tonnage_units::{Error, Result};

/// Records of the first and second side.
#[derive(Debug)]
pub struct Sides<'a> {
    /// Records per side.
    pub records: [Vec<&'a Record>; 2],
    /// Whether the sides alternated on one machine. Differences in the surroundings then follow from the compared
    /// change.
    pub alternated: bool,
}

/// Splits the records of one file by their side marks.
///
/// # Errors
/// `Usage` if records are not marked, or if a side has none.
pub fn sides_of_one_file<'a>(records: &'a [Record], name: &str) -> Result<Sides<'a>> {
    let of = |side: SideName| -> Vec<&Record> {
        let own = records.iter().filter(|record| {
            let mark = record.side.as_ref();
            mark.is_some_and(|mark| mark.name == side)
        });
        own.collect()
    };
    let sides = [of(SideName::A), of(SideName::B)];
    let marked = sides[0].len() + sides[1].len();
    if marked < records.len() {
        let which = match marked {
            0 => "its records belong to no side".to_owned(),
            _ => format!(
                "{} of its records belong to no side",
                records.len() - marked
            ),
        };
        return Err(Error::Usage(format!(
            "{name} cannot be compared on its own: {which}. Name a second file, or measure both sides with \
             `tonnage ab`"
        )));
    }
    for (side, own) in SideName::ALL.into_iter().zip(&sides) {
        if own.is_empty() {
            return Err(Error::Usage(format!(
                "{name} has no records of side {}: `tonnage ab` was ended before its turn",
                side.letter()
            )));
        }
    }
    Ok(Sides {
        records: sides,
        alternated: true,
    })
}

/// Uses two files as the two sides and ignores any side marks in them.
///
/// # Errors
/// `Usage` if both hold records of the same run, such as a file and its copy, or if one file holds both sides.
pub fn sides_of_two_files<'a>(files: [(&'a [Record], &str); 2]) -> Result<Sides<'a>> {
    for (records, name) in files {
        let has = |side| {
            let mut mark = records.iter().filter_map(|record| record.side.as_ref());
            mark.any(|mark| mark.name == side)
        };
        if SideName::ALL.into_iter().all(has) {
            return Err(Error::Usage(format!(
                "{name} holds both sides of `tonnage ab` and cannot be one side: compare it on its own, with \
                 `tonnage compare {name}`"
            )));
        }
    }
    let [(first, first_name), (second, second_name)] = files;
    let runs = |records: &'a [Record]| -> BTreeSet<&str> {
        records
            .iter()
            .map(|record| record.run_id.as_str())
            .collect()
    };
    if let Some(run) = runs(first).intersection(&runs(second)).next() {
        return Err(Error::Usage(format!(
            "{first_name} and {second_name} both hold records of run {run}: a run cannot be compared with itself"
        )));
    }
    Ok(Sides {
        records: [first.iter().collect(), second.iter().collect()],
        alternated: false,
    })
}
