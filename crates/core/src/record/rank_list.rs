//! Lists of ranks as records write them: "0-3,8".

use crate::{Error, Result};

/// More ranks than any run has; a list that names more is refused.
const RANKS_MAX: usize = 1 << 20;

/// Writes ranks, in any order and with repetitions, as ascending ranges: `[8, 0, 1, 2, 3]` becomes "0-3,8".
pub fn compress(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
        .chunk_by(|left, right| left + 1 == *right)
        .map(|range| match range {
            [first, .., last] => format!("{first}-{last}"),
            _ => range.iter().map(u32::to_string).collect(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// The ranks of a list such as "0-3,8", as they stand there. An empty list has none.
///
/// # Errors
/// [`Error::Usage`] when it is not such a list, or names more than 2²⁰ ranks.
pub fn expand(list: &str) -> Result<Vec<u32>> {
    let mut ranks = Vec::new();
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(list, first)?..=number(list, last)?;
        if range.is_empty() {
            return Err(invalid(list, &format!("{part:?} runs backwards")));
        }
        if (range.end() - range.start()) as usize >= RANKS_MAX - ranks.len() {
            return Err(invalid(
                list,
                &format!("it names more than {RANKS_MAX} ranks"),
            ));
        }
        ranks.extend(range);
    }
    Ok(ranks)
}

fn number(list: &str, text: &str) -> Result<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|_| digits);
    value.ok_or_else(|| invalid(list, &format!("{text:?} is not a rank")))
}

fn invalid(list: &str, why: &str) -> Error {
    Error::Usage(format!("{list:?} is no list of ranks such as 0-3,8: {why}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_ranges() {
        for (ranks, list) in [
            (&[][..], ""),
            (&[7], "7"),
            (&[0, 1], "0-1"),
            (&[8, 0, 1, 2, 3, 3], "0-3,8"),
            (&[1, 3, 5], "1,3,5"),
            (&[u32::MAX, u32::MAX - 1], "4294967294-4294967295"),
        ] {
            assert_eq!(compress(ranks), list);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in [
            ",",
            "1,",
            "a",
            "3-1",
            "1-2-3",
            "-1",
            "1-",
            "+1",
            " 1",
            "4294967296",
            "0-4294967295",
        ] {
            let error = expand(list).unwrap_err();
            assert!(matches!(error, Error::Usage(_)), "{list:?}");
            assert!(error.to_string().contains(list), "{error}");
        }
        assert!(expand("0-1048575").is_ok());
        assert!(expand("0-1048575,0").is_err());
    }

    proptest! {
        #[test]
        fn a_compressed_list_expands_to_itself(mut ranks in prop::collection::vec(0..200u32, 0..80)) {
            let expanded = expand(&compress(&ranks)).unwrap();
            ranks.sort_unstable();
            ranks.dedup();
            prop_assert_eq!(expanded, ranks);
        }

        #[test]
        fn no_text_panics(text in "[-,0-9 ]{0,30}") {
            let _ = expand(&text);
        }
    }
}
