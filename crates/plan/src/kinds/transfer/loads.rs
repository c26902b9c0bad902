//! Loads of pairs: the bytes that each rank moves to each other rank in one execution, and the files that define them.
//! `executions` combines the loads with other options.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use crate::refuse::usage_error;
use serde::{Deserialize, Serialize};
use tonnage_units::names::quote;
use tonnage_units::{Bytes, Error, Result};

/// Maximum number of ranks of a traffic file: about a million pairs.
const RANKS_MAX: usize = 1024;

/// Longest accepted file: enough for a million numbers of twenty digits and for comments.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Maximum bytes of all pairs together. Sums over many trials then fit into 64 bits.
const TOTAL_BYTES_MAX: u64 = 1 << 50;

/// Bytes that each rank (row) moves to each rank (column) in one execution. The matrix is square, its diagonal is zero,
/// and at least one value is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Vec<Vec<u64>>", into = "Vec<Vec<u64>>")]
#[cfg_attr(feature = "schema", schemars(with = "Vec<Vec<u64>>"))]
pub struct PairLoads(Arc<Vec<Vec<u64>>>);

impl TryFrom<Vec<Vec<u64>>> for PairLoads {
    type Error = Error;

    fn try_from(rows: Vec<Vec<u64>>) -> Result<Self> {
        let ranks = rows.len();
        if ranks > RANKS_MAX {
            return usage_error(format!(
                "{ranks} rows are too many: the most is {RANKS_MAX}"
            ));
        }
        if let Some((at, row)) = numbered_rows(&rows).find(|(_, row)| row.len() != ranks) {
            return usage_error(not_square(at, row.len(), ranks));
        }
        if ranks < 2 {
            return usage_error("it needs two rows at least, one for each rank: use 0 1M and 1M 0");
        }
        if let Some((at, row)) = numbered_rows(&rows).find(|(at, row)| row[at - 1] > 0) {
            return usage_error(format!(
                "number {at} of row {at} is {} from rank {from} to itself: use 0",
                Bytes(row[at - 1]),
                from = at - 1
            ));
        }
        let mut all = rows.iter().flatten();
        let total = all.try_fold(0u64, |sum, &bytes| sum.checked_add(bytes));
        match total {
            Some(0) => usage_error(
                "all numbers are 0, which would move nothing: use bytes for some pair, such as 1M",
            ),
            Some(total) if total <= TOTAL_BYTES_MAX => Ok(Self(Arc::new(rows))),
            _ => usage_error(format!(
                "all pairs together have too many bytes: the most is {}",
                Bytes(TOTAL_BYTES_MAX)
            )),
        }
    }
}

/// Returns the rows with their numbers, from 1.
fn numbered_rows(rows: &[Vec<u64>]) -> impl Iterator<Item = (usize, &Vec<u64>)> {
    (1..).zip(rows)
}

fn not_square(row: usize, numbers: usize, rows: usize) -> String {
    let (count, each) = (count_of(numbers, "number"), count_of(rows, "row"));
    format!(
        "row {row} has {count} and there are {each}: use {rows} numbers in each row, one for each rank"
    )
}

fn count_of(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

impl From<PairLoads> for Vec<Vec<u64>> {
    fn from(loads: PairLoads) -> Self {
        Arc::unwrap_or_clone(loads.0)
    }
}

impl PairLoads {
    /// Number of ranks, 2 or more.
    pub fn ranks(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the bytes from one rank to another; 0 if a rank does not exist.
    pub fn operations_of_pair(&self, from: u32, to: u32) -> u64 {
        let row = self.0.get(from as usize);
        row.and_then(|row| row.get(to as usize))
            .copied()
            .unwrap_or(0)
    }

    /// Returns the pairs that have bytes, and the bytes of each, ordered by initiator and target.
    pub fn pairs(&self) -> impl Iterator<Item = ((u32, u32), u64)> {
        let row = |(from, row): (u32, &Vec<u64>)| {
            let of_row: Vec<_> = (0u32..).zip(row.iter().copied()).collect();
            of_row
                .into_iter()
                .map(move |(to, bytes)| ((from, to), bytes))
        };
        let all = (0u32..).zip(self.0.iter()).flat_map(row);
        all.filter(|(_, bytes)| *bytes > 0)
    }

    /// Bytes of all pairs.
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    /// Returns the greatest common divisor of all loads.
    pub fn common_divisor(&self) -> u64 {
        let divisor = |mut one: u64, mut other: u64| {
            while other > 0 {
                (one, other) = (other, one % other);
            }
            one
        };
        self.0.iter().flatten().copied().fold(0, divisor)
    }
}

/// Loads of pairs as text: a row of sizes for each rank; `#` begins a comment. A command line or a plan gives the name
/// of a file. A plan may also contain the rows themselves, as text of several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficFile {
    /// Loads in the file.
    pub loads: PairLoads,
}

impl FromStr for TrafficFile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.contains('\n') {
            return Ok(Self {
                loads: parse_rows(text)?,
            });
        }
        let loads = read(Path::new(text)).and_then(|text| parse_rows(&text));
        let named = |error: Error| match error {
            Error::Usage(why) => Error::Usage(format!("{}: {why}", quote(text))),
            other => other,
        };
        loads.map(|loads| Self { loads }).map_err(named)
    }
}

fn read(path: &Path) -> Result<String> {
    const HOW: &str = "name a file with a row of sizes for each rank";
    let unreadable =
        |why: &dyn fmt::Display| Error::Usage(format!("it cannot be read, {why}: {HOW}"));
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        let why = format!("it is not a file of at most {}", Bytes(FILE_BYTES_MAX));
        return Err(unreadable(&why));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(&error))
}

fn parse_rows(text: &str) -> Result<PairLoads> {
    let mut rows: Vec<Vec<u64>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let said = line.split('#').next().unwrap_or_default();
        let words = said.split(|c: char| c.is_whitespace() || c == ',');
        let sizes = words.filter(|word| !word.is_empty());
        let row: Vec<u64> = sizes
            .map(|word| size(word, number))
            .collect::<Result<_>>()?;
        if row.is_empty() {
            continue;
        }
        if row.len() > RANKS_MAX || rows.len() == RANKS_MAX {
            return usage_error(format!(
                "line {number} is for more than {RANKS_MAX} ranks, which is the most"
            ));
        }
        if let Some(first) = rows.first().filter(|first| first.len() != row.len()) {
            let (here, above) = (count_of(row.len(), "number"), first.len());
            return usage_error(format!(
                "line {number} has {here} and the first row {above}: use the same number in each row, one for each \
                 rank"
            ));
        }
        rows.push(row);
    }
    rows.try_into()
}

fn size(word: &str, line: usize) -> Result<u64> {
    if word.starts_with('-') {
        return usage_error(format!(
            "line {line}: {} is negative: use 0 or more bytes",
            quote(word)
        ));
    }
    match word.parse() {
        Ok(Bytes(bytes)) => Ok(bytes),
        Err(Error::Usage(why)) => usage_error(format!("line {line}: {why}")),
        Err(other) => Err(other),
    }
}

/// Writes the rows, which read back as the same loads.
impl fmt::Display for TrafficFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.loads.0.iter() {
            let sizes: Vec<String> = row.iter().map(|&bytes| Bytes(bytes).to_string()).collect();
            writeln!(f, "{}", sizes.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates traffic files of a few ranks.
    pub(crate) fn files() -> impl Strategy<Value = TrafficFile> {
        let sizes = prop_oneof![Just(0), 1u64..100_000, (1u64..5000).prop_map(|k| k << 20)];
        let rows = (2usize..6).prop_flat_map(move |ranks| {
            let row = proptest::collection::vec(sizes.clone(), ranks);
            proptest::collection::vec(row, ranks)
        });
        rows.prop_map(|mut rows| {
            (0..rows.len()).for_each(|at| rows[at][at] = 0);
            rows[0][1] += 8;
            let loads = rows.try_into().unwrap();
            TrafficFile { loads }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(file in files()) {
            let back: TrafficFile = file.to_string().parse().unwrap();
            prop_assert_eq!(&back, &file);
            let json = serde_json::to_string(&file.loads).unwrap();
            let loads: PairLoads = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&loads, &file.loads);
            let sum: u64 = loads.pairs().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(sum, loads.total());
            let divisor = loads.common_divisor();
            prop_assert!(loads.pairs().all(|(_, bytes)| bytes.is_multiple_of(divisor)));
        }

        #[test]
        fn any_text_is_read_or_refused_as_usage(text in "(?s)\n[0-9kM#., \n-]{0,60}") {
            if let Err(error) = text.parse::<TrafficFile>() {
                prop_assert_eq!(error.exit_code(), 2);
            }
        }
    }

    #[test]
    fn comments_commas_and_units_are_read() {
        let text = "# from rank 0\n\n0 4k, 1M # to 1 and 2\n1.5k 0 100kB\n  0,0,0\n";
        let file: TrafficFile = text.parse().unwrap();
        let pairs: Vec<_> = file.loads.pairs().collect();
        let expected = [
            ((0, 1), 4096),
            ((0, 2), 1 << 20),
            ((1, 0), 1536),
            ((1, 2), 100_000),
        ];
        assert_eq!(pairs, expected);
        assert_eq!(
            (
                file.loads.operations_of_pair(1, 2),
                file.loads.operations_of_pair(7, 9)
            ),
            (100_000, 0)
        );
        assert_eq!(file.loads.common_divisor(), 32);
    }

    #[test]
    fn a_wrong_matrix_is_refused_with_the_nearest_valid_one() {
        let many = "0 ".repeat(1025) + "\n";
        for (text, part) in [
            ("0 1\n1 0 0\n", "line 2 has 3 numbers and the first row 2"),
            ("0 1 2\n1 0 0\n", "row 1 has 3 numbers and there are 2 rows"),
            ("0 -1\n1 0\n", "line 1: \"-1\" is negative: use 0 or more"),
            (
                "0 1\n# b\n1 x\n",
                "line 3: \"x\" is not a number of bytes: e.g. 8",
            ),
            (
                "0 1\n1 5k\n",
                "number 2 of row 2 is 5k from rank 1 to itself: use 0",
            ),
            ("0 0\n0 0\n", "all numbers are 0, which would move nothing"),
            ("0\n", "it needs two rows at least"),
            ("\n\n", "it needs two rows at least"),
            ("0 1024T\n1 0\n", "the most is 1024T"),
            ("0 16777215T\n16777215T 0\n", "the most is 1024T"),
            (&many, "more than 1024 ranks"),
        ] {
            let error = text.parse::<TrafficFile>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_name_is_a_file_and_is_in_the_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.txt");
        let name = path.to_str().unwrap();
        let missing = name.parse::<TrafficFile>().unwrap_err().to_string();
        assert!(
            missing.contains("m.txt") && missing.contains("name a file with a row"),
            "{missing}"
        );
        std::fs::write(&path, "0 1M\n0 0\n").unwrap();
        let file: TrafficFile = name.parse().unwrap();
        assert_eq!(file.to_string(), "0 1M\n0 0\n");
        std::fs::write(&path, "0 1M\n").unwrap();
        let wrong = name.parse::<TrafficFile>().unwrap_err().to_string();
        assert!(wrong.contains("m.txt\": row 1 has 2 numbers"), "{wrong}");
        let folder = dir
            .path()
            .to_str()
            .unwrap()
            .parse::<TrafficFile>()
            .unwrap_err();
        assert!(folder.to_string().contains("not a file"), "{folder}");
    }
}
