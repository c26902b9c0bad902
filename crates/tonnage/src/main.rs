mod report;

fn main() {}
