//! Tries the committed inputs of each target, and random changes of them that are the same in each run.

use std::path::PathBuf;

use super::{TARGETS, Target, target};

const CHANGED_INPUTS: usize = 1_000;

/// Pseudorandom numbers: the generator xorshift64* by Vigna.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        number as usize % end.max(1)
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        start..start + self.below((len - start).min(64) + 1)
    }

    /// Changes a bit, a byte or a range of the input, or copies a range from another input.
    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let range = self.range(input.len());
        let place = range.start;
        match self.below(5) {
            0 if place < input.len() => input[place] ^= 1 << self.below(8),
            1 if place < input.len() => input[place] = b"\0\n \"-0179,[{\xff"[self.below(13)],
            2 => drop(input.drain(range)),
            3 => {
                let twice = input[range.clone()].to_vec();
                input.splice(range.start..range.start, twice);
            }
            _ => {
                let taken = self.range(other.len());
                input.splice(range, other[taken].iter().copied());
            }
        }
    }
}

/// Returns the inputs of a target in `fuzz/corpus`, each with its path.
fn committed(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| (file.clone(), std::fs::read(file).unwrap()))
        .collect()
}

fn kept(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tonnage-fuzz-{name}-{}", std::process::id()))
}

/// Tries an input. If it fails, the input is saved to a file, so that it can be tried again.
fn try_it(name: &str, target: Target, what: &str, input: &[u8]) {
    let failed = std::panic::catch_unwind(|| target(input)).is_err();
    if failed {
        let kept = kept(name);
        std::fs::write(&kept, input).unwrap();
        panic!(
            "{what}; again: cargo run -p tonnage-fuzz -- {name} {}",
            kept.display()
        );
    }
}

fn search(name: &str) {
    let target = target(name);
    let inputs = committed(name);
    assert!(!inputs.is_empty(), "fuzz/corpus/{name} is empty");
    for (file, input) in &inputs {
        try_it(name, target, &file.display().to_string(), input);
    }
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for round in 0..CHANGED_INPUTS {
        let mut input = inputs[numbers.below(inputs.len())].1.clone();
        for _ in 0..=numbers.below(4) {
            let other = numbers.below(inputs.len());
            numbers.change(&mut input, &inputs[other].1);
        }
        try_it(name, target, &format!("changed input {round}"), &input);
    }
}

macro_rules! searches {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                search(stringify!($name));
            }
        )+

        #[test]
        fn every_target_is_searched() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),+]);
        }
    };
}

searches!(baseline frame histogram ior join launcher machine numbers plan record sweep);

#[test]
fn a_reader_that_panics_is_noticed() {
    let failed = std::panic::catch_unwind(|| {
        try_it(
            "none",
            |input| assert!(input.len() < 3),
            "three bytes",
            b"abc",
        );
    });
    assert!(failed.is_err());
    std::fs::remove_file(kept("none")).unwrap();
}
