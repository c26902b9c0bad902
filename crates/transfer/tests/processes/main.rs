//! Sessions between two processes, over each engine of this machine: all verbs, all lane sources, memory of the caller,
//! a killed peer, and a peer that deregisters its memory.

// Marked as tests, as lints require.
#[cfg(test)]
mod alive;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod pair;

use pair::SECOND;

/// Runs the second process: this test program again, in the role that the first one's test names.
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
