//! Refused jobs and their messages.

use super::*;
use crate::conflicts::trial::Lines;
use crate::fixture::{Holds, SHIPPED, cases};

#[test]
fn sizes_that_do_not_fit_are_refused_with_the_nearest() {
    assert_eq!(
        message("block = '10M'\ntransfer = '4M'"),
        "block 10M is not a whole number of transfers of 4M: use block 8M, or another transfer"
    );
    assert!(message("block = '1k'\ntransfer = '4k'").contains("use block 4k"));
    assert!(message("block = 0").starts_with("block 0 would move nothing"));
    assert!(message("transfer = '0,4k'").starts_with("transfer 0 would move nothing"));
    assert!(message("segments = 0").contains("the fewest is segments 1"));
    for lines in [
        "block = 1152921504606846976",
        "segments = 18446744073709551615",
    ] {
        message(lines).holds("which no file system holds");
    }
    // The largest possible block, on each of two ranks.
    assert_eq!(
        point("block = 576460752303423488\ntransfer = '1G'").bytes_of_rank(),
        1 << 59
    );
    assert_eq!(
        message("direct = true\nblock = 1000\ntransfer = 1000"),
        "direct needs transfers that are multiples of 512 bytes, and transfer is 1000: use transfer 1k, or leave \
         direct out"
    );
    let one = "block = '4k'\ntransfer = '4k'\n";
    message(&format!("{one}order = 'shuffled'")).holds("order shuffled needs two transfers");
    assert!(message(&format!("{one}threads = 2")).contains("use threads 1 or less"));
    let bound = "stonewall = '1s'\nwear-out = true\nwear-out-transfers = 5";
    assert!(message(bound).contains("use wear-out-transfers 4 or less"));
    message("engine = 'uring'\nblock = '2G'\ntransfer = '2G'").holds("transfer 1G or less");
    let much = "threads = 2\nblock = '1024T'\ntransfer = '512T'\nsegments = 1";
    assert!(message(much).contains("needs more than 1T of memory in one rank"));
}

#[test]
fn engines_are_refused_for_features_they_lack() {
    for (lines, expected) in cases([
        "engine = 'possix' => unknown engine \"possix\": did you mean \"posix\"? engines: posix, uring, mpiio",
        "collective = true => engine posix does not support collective, which is for MPI-IO only: leave collective \
         out, or use engine mpiio",
        "hints = { a = 'b' } => engine posix does not support hints, which is for MPI-IO only: leave hints out, or \
         use engine mpiio",
        "depth = 32 => engine posix makes one transfer at a time: leave depth out, or use engine uring",
        "engine = 'uring'; fsync = 'each' => fsync each waits after every write, and engine uring has several in flight: use fsync end, or use engine posix",
        "engine = 'mpiio'; direct = true => engine mpiio cannot bypass the page cache: leave direct out, or use \
         engine posix",
        "engine = 'mpiio'; threads = 2 => engine mpiio supports only one thread in each rank: leave threads out and \
         use more ranks, or use engine posix",
        "engine-options = { polling = 'on' } => engine posix has no option \"polling\": it has none: leave engine-options out",
    ]) {
        assert_eq!(message(lines), expected);
    }
    assert_eq!(point("depth = 1").depth, 1);
    assert!(message("engine = 'uring'\ndepth = 100000").contains("depth 1 to depth 32768"));
    assert!(message("engine = 'uring'\ndepth = 0").contains("depth 1 to depth 32768"));
}

#[test]
fn contradictory_options_and_those_without_effect_are_refused() {
    for (lines, part) in cases([
        "directory-per-rank = true => add layout per-process",
        "engine = 'mpiio'; layout = 'per-process'; collective = true => collective needs one file for all ranks",
        "engine = 'mpiio'; layout = 'per-process'; file-view = true => use layout shared, or leave file-view out",
        "engine = 'mpiio'; collective = true; read-percent = 5 => collective and phases mixed are mutually",
        "engine = 'mpiio'; collective = true; threads = 2 => collective and threads are mutually",
        "wear-out = true => add stonewall 30s",
        "stonewall = '1s'; wear-out-transfers = 4 => add wear-out",
        "stonewall = '1us' => the shortest is stonewall 1ms",
        "stonewall-status = 's' => add stonewall 30s, or leave stonewall-status out",
        "read-shift = 1; read-shuffled = 1 => are mutually exclusive",
        "read-shift = 2 => use read-shift 1 or less",
        "stripe-size = 1000 => is not a multiple of 64k",
        "trials = 0 => the fewest is trials 1",
        "threads = 0 => the fewest is threads 1",
        "delay = '1000h' => the longest is delay 24h",
        "outlier = 0 => the shortest is outlier 1ns",
    ]) {
        let message = message(lines);
        assert!(message.contains(part), "{lines}: {message}");
    }
    assert!(message_for(1, "read-shuffled = 1").contains("use --ranks 2"));
    assert!(message_for(0, "").contains("use --ranks 1"));
    // A run that only reads uses the status file of a run with a stonewall.
    assert!(
        point("phases = 'read'\nstonewall-status = 's'")
            .status_file
            .is_some()
    );
}

#[test]
fn paths_are_names_of_files_and_several_are_for_files_of_their_own() {
    let message = |path: &str, more: &str| {
        let text = format!("name = 'test'\n[[file]]\npath = {path}\n{more}");
        let plan = Plan::from_toml(&text, "test.toml").unwrap();
        plan.file_points(2).unwrap_err().to_string()
    };
    assert!(message("[]", "").contains("e.g. path data/file"));
    let none = "name = 'test'\n\n[[file]]\npath = []\n";
    let plan = Plan::from_toml(none, "test.toml").unwrap();
    // Without the key, the printed plan could not be read back.
    let printed = plan.to_toml().unwrap();
    assert_eq!(Plan::from_toml(&printed, "printed").unwrap(), plan);
    assert!(message("''", "").contains("cannot be the name of a file"));
    assert!(message("'a/'", "").contains("use path a/file"));
    assert!(message("['a', 'b']", "").contains("leave 1 of them out, or use layout per-process"));
    let text = "name = 'test'\n[[file]]\npath = ['a,b', 'c']\nlayout = 'per-process'";
    let plan = Plan::from_toml(text, "test.toml").unwrap();
    let points = plan.file_points(2).unwrap();
    assert_eq!(points[0].paths, ["a,b", "c"]);
}

#[test]
fn every_row_of_conflicts_refuses_its_options_and_suggests_valid_ones() {
    let lines = Lines {
        base: "--path t.dat",
        samples: &[
            ("read-shift", "--read-shift 1"),
            ("read-shuffled", "--read-shuffled=1"),
        ],
        lists: &SHIPPED,
    };
    lines.try_rows::<FileJob>(&[crate::files::base::CONFLICTS]);
}
