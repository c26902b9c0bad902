//! List options that are repeated on the command line.

use clap::CommandFactory;
use tonnage_plan::KINDS;

use super::super::*;
use super::{experiment, parse, verify};

/// A line with repeated options must mean the same as a line with lists joined by commas.
#[test]
fn a_list_that_is_repeated_is_joined() {
    for (repeated, joined) in [
        (
            "transfer --engine shm --engine null --op write --op read,send --sizes 8 --sizes 64..256,1k",
            "transfer --engine shm,null --op write,read,send --sizes 8,64..256,1k",
        ),
        (
            "transfer --engine shm --op write --sizes 8 --depth 4 --engine-option a=b --depth 8 --label x,y",
            "transfer --engine shm --op write --sizes 8 --depth 4,8 --engine-option a=b --label x,y",
        ),
        (
            "transfer --engine shm --op write --sizes 8 --batch 1..4 --rate 5k --batch 7 --bound 1GB/s --latency off",
            "transfer --engine shm --op write --sizes 8 --batch 1..4,7 --rate 5k --bound 1GB/s --latency off",
        ),
        (
            "file --path a,b --path c --engine posix --engine uring --phases write --phases read --block 1m --block 2m \
             --transfer 4k --transfer 8k --depth 1 --depth 2 --hint a=b --hint c=d --read-shuffled --verify=write",
            "file --path a,b --path c --engine posix,uring --phases write,read --block 1m,2m --transfer 4k,8k \
             --depth 1,2 --hint a=b --hint c=d --read-shuffled --verify=write",
        ),
        (
            "connect --engine shm --engine null --threads 1 --threads 4 --register 4k --register 1M --memory host \
             --memory huge",
            "connect --engine shm,null --threads 1,4 --register 4k,1M --memory host,huge",
        ),
    ] {
        let plan = |line: &str| experiment(&format!("tonnage {line}")).to_plan();
        assert_eq!(plan(repeated), plan(joined), "{repeated}");
        assert!(!plan(repeated).to_toml().unwrap().is_empty());
    }
    let sizes = |line: &str| verify(line).sizes;
    assert_eq!(sizes("--sizes 8 --sizes 64,1k"), sizes("--sizes 8,64,1k"));
}

/// If the help of an option shows a list as its value, the option must be parsed as a list.
#[test]
fn all_lists_can_be_repeated() {
    for kind in &KINDS {
        let command = (kind.command)();
        for arg in command.get_arguments() {
            let names = arg.get_value_names().unwrap_or_default();
            let several = names
                .iter()
                .any(|name| ["NAMES", "RATES", "SWEEP"].contains(&name.as_str()));
            let is_list = arg.get_value_delimiter().is_some();
            assert_eq!(several, is_list, "{} of {}", arg.get_id(), kind.key);
        }
    }
}

/// The help must show the description of each kind.
#[test]
fn every_kind_has_its_command() {
    let program = Cli::command();
    for kind in &KINDS {
        let command = program.find_subcommand(kind.key).unwrap();
        let help = command.clone().render_long_help().to_string();
        assert!(help.starts_with(kind.about), "{help}");
        let list = program.clone().render_help().to_string();
        assert!(list.contains(kind.about), "{list}");
        for part in ["--ranks <N>", "--output <FILE>", "Examples:"] {
            assert!(help.contains(part), "{part}: {help}");
        }
        assert!(parse(&format!("tonnage {}", kind.key)).is_err());
    }
}
