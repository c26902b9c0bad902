//! `tonnage report`: creates a page from record files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tonnage_judge::compare::Comparison;
use tonnage_page::{PageFile, PageRequest, page};
use tonnage_units::{Error, Result};

use super::atomic_file::{refuse_existing, replace};
use super::baseline::read as read_baseline;
use super::compare::{compared, refuse_one_file};
use super::record_files::{is_same_file, records_and_gaps, refuse_twice};
use crate::args::report::ReportArgs;

/// Writes the page.
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
    let mut read = files.iter().copied().chain(args.baseline.as_deref());
    if read.any(|file| is_same_file(file, &args.output)) {
        return Err(Error::Usage(format!(
            "{} is read and would be replaced: name another file for --output",
            args.output.display()
        )));
    }
    let baseline = args.baseline.as_deref().map(|path| {
        let baseline = read_baseline(path)?;
        Ok::<_, Error>((baseline, name_of(path)))
    });
    let baseline = baseline.transpose()?;
    let records = files
        .iter()
        .map(|file| page_file(file))
        .collect::<Result<Vec<_>>>()?;
    let comparison = comparison(args, &files, &records)?;
    let text = page(PageRequest {
        title: args.title.clone(),
        files: records,
        comparison,
        baseline,
        plain: args.plain,
    })?;
    replace(&args.output, &text, args.force)?;
    Ok(ExitCode::SUCCESS)
}

fn page_file(path: &Path) -> Result<PageFile> {
    let name = name_of(path);
    let (records, left_out) = records_and_gaps(path, &name)?;
    if let Some(left_out) = &left_out {
        log::warn!("{left_out}");
    }
    Ok(PageFile {
        name,
        records,
        left_out,
    })
}

/// Returns the name of a file without its folder.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Makes the requested comparison. The records were read before.
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
