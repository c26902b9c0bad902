//! Records of two sides: those of two files, or those of one file in which two sides took turns.

use std::collections::BTreeSet;

use tonnage_record::{Record, SideName};
use tonnage_units::{Error, Result};

/// Records of the first side and of the second.
pub type Sides<'a> = [Vec<&'a Record>; 2];

/// Divides the records of one file by the sides that they say.
///
/// # Errors
/// `Usage` where records say none, and where one side has none.
pub fn of_one_file<'a>(records: &'a [Record], name: &str) -> Result<Sides<'a>> {
    let of = |side: SideName| -> Vec<&Record> {
        let own = records.iter().filter(|record| {
            let said = record.side.as_ref();
            said.is_some_and(|said| said.name == side)
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
            "{name} cannot be compared by itself, because {which}: name a second file, or measure both sides with \
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
    Ok(sides)
}

/// Takes the records of two files as two sides, whatever sides they say themselves.
///
/// # Errors
/// `Usage` where both hold records of one run, such as a file and its copy.
pub fn of_two_files<'a>(files: [(&'a [Record], &str); 2]) -> Result<Sides<'a>> {
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
    Ok([first.iter().collect(), second.iter().collect()])
}

/// Number of runs among records.
pub fn runs(records: &[&Record]) -> usize {
    let ids: BTreeSet<&str> = records
        .iter()
        .map(|record| record.run_id.as_str())
        .collect();
    ids.len()
}
