//! Fuzz targets, one for each parser of bytes from outside: files, environments, other processes. A target must not
//! panic, and also checks properties of the parsed data.
//!
//! With `--cfg fuzzing`, which `scripts/fuzz.sh` sets, this is a libFuzzer program for the target that the variable
//! `TONNAGE_FUZZ_TARGET` names. Otherwise, it tries inputs from files, and its tests try the committed inputs and a
//! thousand random changes of them.

#![cfg_attr(fuzzing, no_main)]

mod baseline;
mod frame;
mod histogram;
mod ior;
mod join;
mod launcher;
mod machine;
mod numbers;
mod plan;
mod record;
mod sweep;

/// Tries one input. Panics if the parser breaks a promise.
type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 11] = [
    ("baseline", baseline::try_input),
    ("frame", frame::try_input),
    ("histogram", histogram::try_input),
    ("ior", ior::try_input),
    ("join", join::try_input),
    ("launcher", launcher::try_input),
    ("machine", machine::try_input),
    ("numbers", numbers::try_input),
    ("plan", plan::try_input),
    ("record", record::try_input),
    ("sweep", sweep::try_input),
];

fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let known = TARGETS.map(|(known, _)| known).join(", ");
    let (_, target) = found.unwrap_or_else(|| panic!("no target {name:?}: {known}"));
    *target
}

/// Returns the text at the beginning of an input, up to the first byte that is not UTF-8.
fn text(input: &[u8]) -> &str {
    let chunk = input.utf8_chunks().next();
    chunk.map_or("", |chunk| chunk.valid())
}

#[cfg(fuzzing)]
static CHOSEN: std::sync::LazyLock<Target> = std::sync::LazyLock::new(|| {
    target(&std::env::var("TONNAGE_FUZZ_TARGET").expect("TONNAGE_FUZZ_TARGET names the target"))
});

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| CHOSEN(input));

#[cfg(not(fuzzing))]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let target = target(&arguments.next().unwrap_or_default());
    for file in arguments {
        target(&std::fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}")));
        println!("{file}: fine");
    }
}

#[cfg(test)]
mod tests;
