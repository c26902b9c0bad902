//! Lists of numbers (CPUs, ranks) in the kernel's format, "0-3,8".

use crate::{Error, Result};

/// One above the largest accepted number. It covers every CPU that Linux supports, and the maximum number of ranks in a
/// run.
const NUMBERS: u32 = 1 << 16;

/// Parses a list such as "0-3,8". Returns its numbers in the written order, repeats included.
///
/// # Errors
/// [`Error::Usage`] that quotes the part which is not a number or a rising range. An empty list is also an error.
pub fn parse(text: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first, part, text)?, number(last, part, text)?);
        if first > last {
            return Err(Error::Usage(format!(
                "the list {text:?}: the range {part:?} goes down; write {last}-{first}"
            )));
        }
        cpus.extend(first..=last);
        if cpus.len() > NUMBERS as usize {
            return Err(Error::Usage(format!(
                "a list has more than {NUMBERS} entries; give each number once"
            )));
        }
    }
    Ok(cpus)
}

fn number(digits: &str, part: &str, text: &str) -> Result<u32> {
    let digits = digits.trim();
    // `parse` alone would accept "+3" too.
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits
        .parse::<u32>()
        .ok()
        .filter(|number| plain && *number < NUMBERS);
    number.ok_or_else(|| {
        Error::Usage(format!(
            "the list {text:?}: {part:?} is not a number below {NUMBERS} or a range of them; e.g. 0-3,8"
        ))
    })
}

/// Formats numbers as a list such as "0-3,8", sorted and without repeats; "" if there are none.
pub fn format(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .chunk_by(|a, b| *b == a.saturating_add(1))
        .filter_map(|range| Some((range.first()?, range.last()?)))
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_in_the_order_given() {
        assert_eq!(parse("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(parse(" 8 , 0 - 1 ").unwrap(), [8, 0, 1]);
        assert_eq!(parse("5").unwrap(), [5]);
    }

    #[test]
    fn an_invalid_list_is_refused_and_quoted() {
        for text in [
            "",
            ",",
            "1,",
            "a",
            "-1",
            "1-",
            "3-1",
            "1-2-3",
            "+3",
            "0x1",
            "4294967296",
            "0-65536",
        ] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, Error::Usage(_)), "{text:?}");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
        assert_eq!(parse("0-65535").unwrap().len(), 65_536);
        assert!(parse("0-65535,0").is_err());
        let many = ["0-65535"; 3].join(",");
        assert!(parse(&many).is_err());
    }

    #[test]
    fn lists_are_written_with_ranges() {
        assert_eq!(format(&[8, 3, 2, 1, 0, 0]), "0-3,8");
        assert_eq!(format(&[4, 5]), "4-5");
        assert_eq!(format(&[]), "");
    }

    proptest! {
        #[test]
        fn formatted_lists_parse_back(mut cpus in proptest::collection::vec(0..NUMBERS, 1..40)) {
            let read = parse(&format(&cpus)).unwrap();
            cpus.sort_unstable();
            cpus.dedup();
            prop_assert_eq!(read, cpus);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-0-9, +a]{0,30}") {
            let _ = parse(&text);
        }
    }
}
