//! The records inside of a page: each file as a link that holds it whole, packed, so that a reader without this program
//! can save it, and [`records_of_page`] reads it back.
//!
//! A link survives where scripts and styles are taken away. Text of records never looks like one, because everything
//! else in a page is escaped.

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

use crate::bidi::in_order;

/// Beginning of every page.
pub const PAGE_BEGIN: &str = "<!DOCTYPE html>";

/// Beginning of the link to a file of records; it is nowhere else, because `<` is escaped in text.
const LINK_BEGIN: &str = "<a class=\"records\" download=\"";

/// Beginning of an address that holds what it is of.
const DATA: &str = "data:application/gzip;base64,";

/// Text between the file's name and its address.
const HREF_BEGIN: &str = "\" href=\"";

/// End of the name of a saved file.
const SAVED_END: &str = ".gz";

/// Records above which packing is quick instead of small.
const PACKED_SMALL_MAX: usize = 2000;

/// Greatest length of an unpacked file: a page from elsewhere must not fill the memory.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// Longest name of a file that is kept, in characters.
const NAME_CHARS_MAX: usize = 200;

/// Records of one file, with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct PageFile {
    /// The file's name, without its folder.
    pub name: String,
    /// Its records, in order.
    pub records: Vec<Record>,
    /// Words about lines of the file that could not be read, which the page tells.
    pub left_out: Option<String>,
}

/// The link to a file, in which its records are packed, a line for each; and beside it their number.
///
/// # Errors
/// When a record cannot be written as JSON.
pub(crate) fn link(file: &PageFile) -> Result<Markup> {
    let level = match file.records.len() > PACKED_SMALL_MAX {
        true => Compression::fast(),
        false => Compression::best(),
    };
    let cannot = |error| Error::io("cannot pack the records", error);
    let mut packer = GzEncoder::new(Vec::new(), level);
    for record in &file.records {
        let line = checksum::line(record)? + "\n";
        packer.write_all(line.as_bytes()).map_err(cannot)?;
    }
    let bytes = packer.finish().map_err(cannot)?;
    let mut href = DATA.to_owned();
    STANDARD.encode_string(bytes, &mut href);
    let safe = file.name.chars().filter(|it| !it.is_control());
    let name = in_order(&safe.take(NAME_CHARS_MAX).collect::<String>());
    let count = file.records.len();
    Ok(html! {
        a class="records" download={ (name) (SAVED_END) } href=(href) { (name) }
        " (" (count) @if count == 1 { " record)" } @else { " records)" }
    })
}

/// Returns whether a file begins as a page does.
pub fn is_page(text: &[u8]) -> bool {
    text.starts_with(PAGE_BEGIN.as_bytes())
}

/// The files of records inside of a page; `path` is its name in messages.
///
/// # Errors
/// `Usage` for a page without records, one of another program, or one that is damaged or cut short.
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

/// Text of an attribute as it was before it was escaped.
fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&quot;", "\"").replace("&amp;", "&")
}
