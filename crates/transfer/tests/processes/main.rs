//! Sessions between two processes, over each engine that this machine has: all verbs, all ways to find a lane, memory
//! of the caller, a peer that is killed, and one that takes its memory back.

// Marked as tests, as lints see it.
#[cfg(test)]
mod alive;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod pair;

use pair::SECOND;

/// The second process: this test program again, which does here what the first one's test asks for.
#[test]
fn second_process() {
    let Ok(role) = std::env::var(SECOND) else {
        return;
    };
    match role.as_str() {
        "serve" => alive::serve(),
        "write at once" => alive::write_at_once(),
        "to be killed" => killed::serve(),
        "take the memory back" => keys::serve(),
        other => panic!("no role {other}"),
    }
}
