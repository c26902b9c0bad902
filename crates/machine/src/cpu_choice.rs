//! Choice of the CPUs that workers are pinned to, as `--cpus` says it. Workers are placed by it in
//! [`super::placement`].

use std::str::FromStr;

use tonnage_units::{Error, Result, number_list};

/// A rule for placing workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CpuChoice {
    /// By the own rules of [`place_workers`](super::place_workers).
    #[default]
    Auto,
    /// Nothing is pinned; the kernel decides.
    None,
    /// These CPUs in this order: rank 0's workers, then rank 1's, starting again when the list is used up.
    List(Vec<u32>),
}

/// Reads "none" or a list, which is not empty and has no CPU twice.
impl FromStr for CpuChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::None);
        }
        let cpus = number_list::parse(text)?;
        match cpus
            .iter()
            .enumerate()
            .find(|(at, cpu)| cpus[..*at].contains(cpu))
        {
            Some((_, cpu)) => Err(Error::Usage(format!(
                "the list {text:?} has CPU {cpu} twice"
            ))),
            None => Ok(Self::List(cpus)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_ranges_and_numbers_in_order() {
        assert_eq!(
            "8,0-3".parse::<CpuChoice>().unwrap(),
            CpuChoice::List(vec![8, 0, 1, 2, 3])
        );
        assert_eq!("none".parse::<CpuChoice>().unwrap(), CpuChoice::None);
        for (text, part) in [
            ("", "the list \"\": \"\" is not a number"),
            ("3-1", "goes down"),
            ("0-3,2", "has CPU 2 twice"),
            ("0-4294967295", "is not a number below 65536"),
            ("+1", "is not a number below 65536"),
            ("0-", "is not a number below 65536"),
        ] {
            let message = text.parse::<CpuChoice>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
