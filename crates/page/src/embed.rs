//! Embeds records in a page: each file is a link that holds the compressed content in its URL. A browser can save that
//! file, and [`records_of_page`] reads it back.
//!
//! The links work even if a viewer removes scripts and styles. Text from records cannot be mistaken for a link, because
//! everything else on the page is escaped.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use maud::{Markup, html};
use tonnage_record::Record;
use tonnage_record::checksum;
use tonnage_record::read::read_records_of;
use tonnage_units::{Error, Result};

use crate::bidi::without_direction_marks;

/// Start of every page.
pub const PAGE_BEGIN: &str = "<!DOCTYPE html>";

/// Start of a link to a file of records. No other text on the page contains it, because `<` is escaped there.
const LINK_BEGIN: &str = "<a class=\"records\" download=\"";

/// Start of a link's data URL, before the encoded content.
const DATA: &str = "data:application/gzip;base64,";

/// Text between a link's file name and its URL.
const HREF_BEGIN: &str = "\" href=\"";

/// Suffix of a saved file's name.
const SAVED_END: &str = ".gz";

/// Files with more records than this are compressed fast; smaller ones are compressed as small as possible.
const PACKED_SMALL_MAX: usize = 2000;

/// Maximum size of a decompressed file, so that an untrusted page cannot exhaust memory.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// Maximum length of a file name, in characters.
const NAME_CHARS_MAX: usize = 200;

/// The records of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct PageFile {
    /// File name without its directory.
    pub name: String,
    /// Records of the file, in order.
    pub records: Vec<Record>,
    /// Message about unreadable lines of the file, shown on the page.
    pub left_out: Option<String>,
}

/// A link with the compressed records of a file, one record per line. The number of records follows the link.
///
/// # Errors
/// If a record cannot be serialized.
pub(crate) fn link(file: &PageFile) -> Result<Markup> {
    let level = match file.records.len() > PACKED_SMALL_MAX {
        true => Compression::fast(),
        false => Compression::best(),
    };
    let cannot = |error| Error::io("cannot pack the records", error);
    let mut packer = GzEncoder::new(Vec::new(), level);
    for record in &file.records {
        let line = checksum::line_with_checksum(record)? + "\n";
        packer.write_all(line.as_bytes()).map_err(cannot)?;
    }
    let bytes = packer.finish().map_err(cannot)?;
    let mut href = DATA.to_owned();
    STANDARD.encode_string(bytes, &mut href);
    let safe = file.name.chars().filter(|it| !it.is_control());
    let name = without_direction_marks(&safe.take(NAME_CHARS_MAX).collect::<String>());
    let count = file.records.len();
    Ok(html! {
        a class="records" download={ (name) (SAVED_END) } href=(href) { (name) }
        " (" (count) @if count == 1 { " record)" } @else { " records)" }
    })
}

/// Whether a file starts like a page.
pub fn is_page(text: &[u8]) -> bool {
    text.starts_with(PAGE_BEGIN.as_bytes())
}

/// Extracts the files of records from a page. `path` appears only in error messages.
///
/// # Errors
/// `Usage` if the page has no records, was made by another program, or is damaged or truncated.
pub fn records_of_page(page: &str, path: &Path) -> Result<Vec<PageFile>> {
    let mut files = Vec::new();
    for link in page.split(LINK_BEGIN).skip(1) {
        let damaged = || damaged(path);
        let (name, rest) = link.split_once(HREF_BEGIN).ok_or_else(damaged)?;
        let rest = rest.strip_prefix(DATA).ok_or_else(damaged)?;
        let (base64, _) = rest.split_once('"').ok_or_else(damaged)?;
        let bytes = STANDARD.decode(base64).map_err(|_| damaged())?;
        let unpacked = unpacked(&bytes, path)?;
        let found = read_records_of(BufReader::new(unpacked.as_slice()), path)?;
        let name = name.strip_suffix(SAVED_END).unwrap_or(name);
        files.push(PageFile {
            name: unescaped(name),
            records: found.records,
            left_out: None,
        });
    }
    match files.is_empty() {
        true => Err(Error::Usage(format!(
            "{} is a page without records in it: pages of `tonnage report` have them, others do not",
            path.display()
        ))),
        false => Ok(files),
    }
}

fn damaged(path: &Path) -> Error {
    Error::Usage(format!(
        "{}: the records in this page are damaged or cut short: make it again with `tonnage report`",
        path.display()
    ))
}

fn unpacked(bytes: &[u8], path: &Path) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let mut limited = GzDecoder::new(bytes).take(UNPACKED_BYTES_MAX + 1);
    let read = limited.read_to_end(&mut unpacked);
    read.map_err(|_| damaged(path))?;
    match unpacked.len() as u64 > UNPACKED_BYTES_MAX {
        true => Err(Error::Usage(format!(
            "{}: the records in this page are more than 1 GiB: save them from the page and read them as a file",
            path.display()
        ))),
        false => Ok(unpacked),
    }
}

/// Reverses the escaping of an attribute.
fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&quot;", "\"").replace("&amp;", "&")
}
