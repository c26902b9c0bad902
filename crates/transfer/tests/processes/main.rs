//! Sessions between two processes, over each engine that every machine has: all verbs, all ways to find a lane, memory
//! of the caller, and a peer that is killed.

// Marked as tests, as lints see it.
#[cfg(test)]
mod alive;
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
        "to be killed" => killed::serve(),
        other => panic!("no role {other}"),
    }
}
