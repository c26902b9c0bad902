//! Compares the engine with NVIDIA's program nvbandwidth, if that is in PATH. Both make the same copies by copy
//! engines.
//!
//! nvbandwidth sees only one GPU, so its sum is the rate of that GPU. The result is in the last line of a test case:
//! "SUM", the name of the case, and gigabytes per second.

use std::path::Path;
use std::process::Command;

use super::Driver;
use super::speed::{LARGE, rate_of};
use tonnage_engine::Verb;
use tonnage_sys::cuda::NVIDIA;

/// Environment variable that selects the GPUs visible to a process.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Test cases of nvbandwidth, and the verb with which the engine makes the same copies.
const CASES: [(&str, Verb); 2] = [
    ("host_to_device_memcpy_ce", Verb::Write),
    ("device_to_host_memcpy_ce", Verb::Read),
];

/// Minimum rate of the engine as a fraction of nvbandwidth's rate. The two do not run at the same time.
const PART_MIN: f64 = 0.95;

/// Returns the bytes per second of a test case, from the program's output.
fn read(text: &str, case: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? != "SUM" || words.next()? != case {
            return None;
        }
        let gigabytes: f64 = words.next()?.parse().ok()?;
        Some(gigabytes * 1e9).filter(|rate| rate.is_finite() && *rate > 0.0)
    })
}

/// Returns the first GPU visible to this process. Other programs may be using the other GPUs.
fn first_of(visible: Option<&str>) -> String {
    let first = visible.and_then(|visible| visible.split(',').next());
    let first = first.map(str::trim).filter(|first| !first.is_empty());
    first.unwrap_or("0").to_owned()
}

/// Runs a test case on one GPU; `None` if the program is not installed.
fn run(program: &Path, gpu: &str, case: &str) -> Option<Result<f64, String>> {
    let started = Command::new(program)
        .args(["--testcase", case])
        .env(VISIBLE, gpu)
        .output();
    let output = started.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(read(&text, case).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("no figure of {case}, and {}: {text}{error}", output.status)
    }))
}

#[test]
fn the_engine_is_as_fast_as_nvbandwidth() {
    let mut drivers = Driver::for_figures().into_iter();
    let is_nvidias = |driver: &Driver| driver.maker.driver.name == NVIDIA.name;
    let Some(driver) = drivers.find(is_nvidias) else {
        return;
    };
    let visible = std::env::var(VISIBLE).ok();
    let gpu = first_of(visible.as_deref());
    for (case, verb) in CASES {
        let Some(theirs) = run(Path::new("nvbandwidth"), &gpu, case) else {
            println!("skip: nvbandwidth is not in PATH: build it from NVIDIA's sources to compare");
            return;
        };
        let theirs = theirs.unwrap();
        let ours = rate_of(&driver, ("cuda-pinned", "cuda"), (verb, &[]), LARGE);
        println!(
            "{case}: nvbandwidth {:.2} GB/s, engine {:.2} GB/s",
            theirs / 1e9,
            ours / 1e9
        );
        assert!(ours >= PART_MIN * theirs, "{case}: {ours} {theirs}");
    }
}

#[test]
fn its_result_is_parsed_from_its_output() {
    let text = "nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n\nDevice 0: a model (00000000:1b:00)\n\n\
                Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n \
                0     55.63\n\nSUM host_to_device_memcpy_ce 55.63\n\nNOTE: about it\n";
    assert_eq!(read(text, "host_to_device_memcpy_ce"), Some(55.63e9));
    assert_eq!(read(text, "device_to_host_memcpy_ce"), None);
}
