//! The command.

mod report;

fn main() {}
