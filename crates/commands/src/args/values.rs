//! Parses values that exist only on the command line. `tonnage_plan` and `tonnage_units` parse values that plans have
//! too. `tonnage_machine` parses CPUs, `tonnage_bench` the NUMA node, and `tonnage_report` formats.

use std::str::FromStr;

use tonnage_units::names::quote;
use tonnage_units::number_list;
use tonnage_units::{BytesPerSecond, Count};
use tonnage_units::{Error, Result};

/// Maximum length of a DNS host name.
const HOST_BYTES_MAX: usize = 253;

/// GPU numbers, in the order in which ranks get them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuList(pub Vec<u32>);

impl FromStr for GpuList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        number_list::parse(text).map(Self)
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
                // Without brackets, the last group of an IPv6 address would be taken for the port.
                None if host.contains(':') => return None,
                None => host,
            };
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|&port| digits && port > 0)?;
            let is_name = !host.is_empty() && host.len() <= HOST_BYTES_MAX;
            is_name.then(|| Self {
                host: host.to_owned(),
                port,
            })
        };
        read().ok_or_else(|| {
            Error::Usage(format!(
                "{} is not a host and a port: write something like node1:29500, 10.0.0.1:29500 or [fd00::1]:29500",
                quote(text)
            ))
        })
    }
}

/// Parses a number of ranks. The plan checks the lower bound.
pub fn ranks(text: &str) -> Result<u32> {
    let Count(count) = text.parse()?;
    u32::try_from(count).map_err(|_| {
        Error::Usage(format!(
            "{count} ranks are far too many: write a number like 2"
        ))
    })
}

/// Returns a value as text, or an error if it is not Unicode.
pub fn unicode(value: &std::ffi::OsStr) -> Result<&str> {
    value.to_str().ok_or_else(|| {
        Error::Usage(format!(
            "{} is not Unicode, which --hosts cannot pass on: write it otherwise",
            value.to_string_lossy()
        ))
    })
}

/// Parses the factor of `--scale`. The range is checked when the factor is applied.
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

/// Parses a library's name and file.
pub fn library(text: &str) -> std::result::Result<(String, std::path::PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err("write NAME=PATH, such as libfabric=embedded".to_owned()),
    }
}

/// Parses the name and value of an environment variable.
pub fn variable(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, such as FI_SHM_TX_SIZE=64".to_owned()),
    }
}

/// Parses the devices of one rank.
pub fn devices_of(text: &str) -> std::result::Result<(u32, Vec<String>), String> {
    let wrong = || {
        format!(
            "{} is not a rank with its devices: write RANK=NAMES, such as 1=eth0,eth1",
            quote(text)
        )
    };
    let (rank, names) = text.split_once('=').ok_or_else(wrong)?;
    let is_number = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
    let rank = rank.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    if names.iter().any(String::is_empty) {
        Err(wrong())
    } else {
        Ok((rank, names))
    }
}

/// Parses the speed of a link to bytes per second.
pub fn link_speed(text: &str) -> std::result::Result<u64, String> {
    match text.parse() {
        Ok(BytesPerSecond(speed)) if speed >= 1.0 && speed.is_finite() => Ok(speed as u64),
        _ => Err(format!(
            "{} is not the speed of a link: write a bandwidth such as 100Gb/s or 12.5GB/s",
            quote(text)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn small_values_name_accepted_forms() {
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
