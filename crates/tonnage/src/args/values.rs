//! Values that only the command line has. Those that plans have too are read in `tonnage_plan` and `tonnage_units`.

use std::str::FromStr;

use tonnage_units::Count;
use tonnage_units::{Error, Result, number_list};

/// The CPUs that workers are pinned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// Workers are not pinned.
    Unpinned,
    /// These, given out in this order. Never empty, and none twice.
    List(Vec<u32>),
}

impl FromStr for Cpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::Unpinned);
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

/// Address of rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

impl FromStr for Master {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let (host, port) = text.rsplit_once(':')?;
            let bracketed = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            let host = match bracketed {
                Some(host) => host,
                // An address of IPv6 without brackets would lose its end to the port.
                None if host.contains(':') => return None,
                None => host,
            };
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|&port| digits && port > 0)?;
            (!host.is_empty()).then(|| Self {
                host: host.to_owned(),
                port,
            })
        };
        read().ok_or_else(|| {
            Error::Usage(format!(
                "{text:?} is not a host and a port: write something like node1:29500, 10.0.0.1:29500 or [fd00::1]:29500"
            ))
        })
    }
}

/// The NUMA node of the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Numa {
    /// The node of the worker's CPU.
    #[default]
    Auto,
    /// Nodes that the system chooses.
    Unbound,
    /// This node.
    Node(u32),
}

impl FromStr for Numa {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Unbound),
            // `parse` alone would take "+3" too.
            _ if text.bytes().all(|byte| byte.is_ascii_digit())
                && text.len() < 6
                && !text.is_empty() =>
            {
                text.parse().map(Self::Node).map_err(|_| not_a_node(text))
            }
            _ => Err(not_a_node(text)),
        }
    }
}

fn not_a_node(text: &str) -> Error {
    Error::Usage(format!(
        "{text:?} is not a NUMA node: write auto, none or a number"
    ))
}

/// Reads a number of ranks. Whether there are enough of them is checked with the plan.
///
/// # Errors
/// `Usage` for what is not a count or does not fit.
pub fn ranks(text: &str) -> Result<u32> {
    let Count(count) = text.parse()?;
    u32::try_from(count).map_err(|_| {
        Error::Usage(format!(
            "{count} ranks are far too many: write a number like 2"
        ))
    })
}

/// Reads the factor of `--scale`. Its range is checked where it is applied.
///
/// # Errors
/// `Usage` for what is not a finite number above 0.
pub fn scale(text: &str) -> Result<f64> {
    let factor = text
        .parse::<f64>()
        .ok()
        .filter(|factor| factor.is_finite() && *factor > 0.0);
    factor.ok_or_else(|| {
        Error::Usage(format!(
            "{text:?} is not a factor: write a number above 0, such as 0.1 or 10"
        ))
    })
}

/// A library's name and file.
///
/// # Errors
/// When one of them is missing.
pub fn library(text: &str) -> std::result::Result<(String, std::path::PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err("write NAME=PATH, such as libfabric=embedded".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_ranges_and_numbers_in_order() {
        assert_eq!(
            "8,0-3".parse::<Cpus>().unwrap(),
            Cpus::List(vec![8, 0, 1, 2, 3])
        );
        assert_eq!("none".parse::<Cpus>().unwrap(), Cpus::Unpinned);
        for (text, part) in [
            ("", "the list \"\": \"\" is not a number"),
            ("3-1", "goes down"),
            ("0-3,2", "has CPU 2 twice"),
            ("0-4294967295", "is not a number below 65536"),
            ("+1", "is not a number below 65536"),
            ("0-", "is not a number below 65536"),
        ] {
            let message = text.parse::<Cpus>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn numa_is_automatic_none_or_a_node() {
        assert_eq!("auto".parse::<Numa>().unwrap(), Numa::Auto);
        assert_eq!("none".parse::<Numa>().unwrap(), Numa::Unbound);
        assert_eq!("1".parse::<Numa>().unwrap(), Numa::Node(1));
        let message = "first".parse::<Numa>().unwrap_err().to_string();
        assert_eq!(
            message,
            "\"first\" is not a NUMA node: write auto, none or a number"
        );
    }

    #[test]
    fn a_master_is_a_host_and_a_port() {
        let read = |text: &str| {
            text.parse::<Master>()
                .map(|master| (master.host, master.port))
        };
        assert_eq!(read("a:7").unwrap(), ("a".to_owned(), 7));
        assert_eq!(read("10.0.0.1:65535").unwrap().1, 65535);
        assert_eq!(read("[fd00::1]:7").unwrap(), ("fd00::1".to_owned(), 7));
        for wrong in [
            "",
            "a",
            ":7",
            "a:",
            "a:0",
            "a:65536",
            "a:+7",
            "fd00::1:7",
            "[]:7",
        ] {
            let message = read(wrong).unwrap_err().to_string();
            assert!(message.contains("node1:29500"), "{wrong}: {message}");
        }
    }

    #[test]
    fn small_values_say_what_they_accept() {
        assert_eq!(ranks("2").unwrap(), 2);
        assert!(
            ranks("5000000000")
                .unwrap_err()
                .to_string()
                .contains("far too many")
        );
        assert_eq!(scale("0.1").unwrap(), 0.1);
        for wrong in ["0", "-1", "nan", "inf", "tenth"] {
            assert!(
                scale(wrong)
                    .unwrap_err()
                    .to_string()
                    .contains("such as 0.1 or 10")
            );
        }
    }
}
