//! Sessions between two processes, over each engine of this machine. Covers all verbs, all lane sources, memory of the
//! caller, a killed peer, and a peer that deregisters its memory.

// These modules contain tests; lints require the attribute.
#[cfg(test)]
mod alive;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod pair;

use pair::SECOND;

/// Runs the second process: the same test program, in the role that the first process sets in the environment.
#[test]
fn second_process() {
    let Ok(role) = std::env::var(SECOND) else {
        return;
    };
    match role.as_str() {
        "serve" => alive::serve(),
        "write at once" => alive::write_immediately(),
        "to be killed" => killed::serve(),
        "take the memory back" => keys::serve(),
        other => panic!("no role {other}"),
    }
}
