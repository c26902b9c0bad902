//! `tonnage report`: a page of files of records.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tonnage_judge::compare::Comparison;
use tonnage_page::{PageFile, PageRequest, page};
use tonnage_units::{Error, Result};

use super::compare::{compared, refuse_one_file};
use super::readable::{is_same_file, records_of, refuse_twice};
use super::whole_file::{refuse_existing, replace};
use crate::args::report::ReportArgs;

/// Writes the page.
///
/// # Errors
/// A wrong request; files that cannot be read or written.
pub fn report(args: &ReportArgs) -> Result<ExitCode> {
    refuse_existing(&args.output, args.force)?;
    refuse_twice(&args.files)?;
    refuse_one_file(&args.compare)?;
    let mut files: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    for file in &args.compare {
        if !files.iter().any(|known| is_same_file(known, file)) {
            files.push(file);
        }
    }
    if files.iter().any(|file| is_same_file(file, &args.output)) {
        return Err(Error::Usage(format!(
            "{} is read and would be replaced: name another file for --output",
            args.output.display()
        )));
    }
    let records = files
        .iter()
        .map(|file| page_file(file))
        .collect::<Result<Vec<_>>>()?;
    let comparison = comparison(args, &files, &records)?;
    let text = page(PageRequest {
        title: args.title.clone(),
        files: records,
        comparison,
        plain: args.plain,
    })?;
    replace(&args.output, &text, args.force)?;
    Ok(ExitCode::SUCCESS)
}

fn page_file(path: &Path) -> Result<PageFile> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(PageFile {
        name: name.to_string_lossy().into_owned(),
        records: records_of(path)?,
    })
}

/// The comparison that was asked for, of records that were read before.
fn comparison(
    args: &ReportArgs,
    files: &[&Path],
    records: &[PageFile],
) -> Result<Option<(Comparison, [String; 2])>> {
    if args.compare.is_empty() {
        return Ok(None);
    }
    let of = |path: &Path| {
        let at = files.iter().position(|known| is_same_file(known, path));
        at.map_or(&[][..], |at| records[at].records.as_slice())
    };
    compared(&args.compare, of, &args.request()?).map(Some)
}
