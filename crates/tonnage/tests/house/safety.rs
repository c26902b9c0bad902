//! Where `unsafe` is allowed, and how threads are started.

use syn::visit::Visit;

use super::source::{self, File, crate_of};

/// Calls that start a thread, and panic if the system cannot start one.
const BARE_SPAWNS: &[&str] = &["scope.spawn(", "thread::spawn("];

/// Calls that ask the kernel for this host's CPUs. A pinned thread gets only its own CPU.
const READS_OF_CPUS: &[&str] = &[
    "Topology::read(",
    "sched_getaffinity(",
    "available_parallelism(",
];

/// The only crate with `unsafe`.
const UNSAFE_CRATE: &str = "sys";

/// Lines of `unsafe { … }` and `unsafe impl` in a file.
#[derive(Default)]
struct Unsafe(Vec<usize>);

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.0.push(block.unsafe_token.span.start().line);
        syn::visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let token = item.unsafety.iter();
        self.0.extend(token.map(|token| token.span.start().line));
        syn::visit::visit_item_impl(self, item);
    }
}

/// Returns uses of `unsafe` without a SAFETY comment before their statement.
fn without_reason(file: &File) -> Vec<String> {
    let mut found = Unsafe::default();
    found.visit_file(&syn::parse_file(&file.text).unwrap());
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let has_reason = |line: &usize| {
        let above = lines[..line - 1].iter().rev();
        // Searches upwards to the end of the previous statement.
        let mut statement = above.take_while(|line| {
            let is_comment = line.starts_with("//");
            is_comment || !(line.ends_with([';', '}']) || line.is_empty())
        });
        statement.any(|line| line.starts_with("// SAFETY:"))
    };
    let lines = found.0.into_iter().filter(|line| !has_reason(line));
    lines
        .map(|line| {
            format!(
                "{}:{line}: say in a SAFETY comment why it is sound",
                file.path
            )
        })
        .collect()
}

/// Returns the numbered lines of a file, except items that are built only for tests. In code formatted by rustfmt, the
/// last line of such an item has the same indentation as its `#[cfg(test)]`.
fn outside_of_tests(text: &str) -> Vec<(usize, &str)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut of_item = None;
    let mut outside = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim() == "#[cfg(test)]" && of_item.is_none() {
            of_item = Some(indent(line));
        } else if let Some(column) = of_item {
            let is_end = indent(line) == column && line.ends_with([';', '}']);
            of_item = (!is_end).then_some(column);
        } else {
            outside.push((number, line));
        }
    }
    outside
}

/// Returns lines outside of tests that contain one of these calls, each with the reason why it is wrong.
fn calls_outside_of_tests(file: &File, calls: &[&str], why_not: &str) -> Vec<String> {
    let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    if !file.path.contains("/src/") || is_test {
        return Vec::new();
    }
    let calls = |line: &str| calls.iter().any(|call| line.contains(call));
    let lines = outside_of_tests(&file.text).into_iter();
    let found = lines.filter(|(_, line)| calls(line));
    let says = |(number, _)| format!("{}:{number}: {why_not}", file.path);
    found.map(says).collect()
}

/// Returns calls outside of tests that panic if no thread can be started. A `Builder` returns an error instead.
fn bare_spawns(file: &File) -> Vec<String> {
    let why_not =
        "it panics where no thread can be started: use std::thread::Builder and Error::not_started";
    calls_outside_of_tests(file, BARE_SPAWNS, why_not)
}

/// Returns reads of this host's CPUs in crates with threads that may be pinned.
fn late_reads_of_cpus(file: &File) -> Vec<String> {
    let why_not =
        "a thread of this crate may be pinned and sees its own CPU alone: use Settings::topology";
    match crate_of(&file.path) {
        "bench" | "loops" => calls_outside_of_tests(file, READS_OF_CPUS, why_not),
        _ => Vec::new(),
    }
}

/// Returns an error if a crate's root file does not forbid `unsafe`.
fn allows_unsafe(file: &File) -> Option<String> {
    let forbids = file.text.contains("\n#![forbid(unsafe_code)]\n");
    (!forbids).then(|| format!("{}: add #![forbid(unsafe_code)]", file.path))
}

fn check(rule: impl Fn(&File) -> Vec<String>) {
    let found: Vec<String> = source::files().iter().flat_map(rule).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn threads_that_cannot_be_started_are_errors() {
    check(bare_spawns);
}

#[test]
fn bare_spawns_are_found_outside_of_tests() {
    let spawn = "fn f() {\n    std::thread::spawn(g);\n    scope.spawn(g);\n    Builder::new().spawn(g);\n}\n";
    assert_eq!(bare_spawns(&invented(spawn.to_owned())).len(), 2);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{spawn}}}\n");
    assert_eq!(bare_spawns(&invented(tests.clone())), Vec::<String>::new());
    // Also finds code after test items. Helper crates for tests count as well, because users wait for them too.
    let behind =
        "#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[allow(dead_code)]\nuse a::{\n    b,\n};\n";
    let found = bare_spawns(&invented(format!("{behind}{tests}{spawn}")));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("crates/attic/src/lib.rs:17: "),
        "{found:?}"
    );
    let at = |path: &str| File {
        path: path.to_owned(),
        text: spawn.to_owned(),
    };
    for (path, count) in [
        ("crates/testbed/src/lib.rs", 2),
        ("crates/attic/src/testing.rs", 2),
        ("crates/attic/src/attic/tests.rs", 0),
        ("crates/attic/src/tests/rain.rs", 0),
        ("crates/attic/tests/rain.rs", 0),
    ] {
        assert_eq!(bare_spawns(&at(path)).len(), count, "{path}");
    }
}

#[test]
fn cpus_are_read_before_a_thread_is_pinned() {
    check(late_reads_of_cpus);
    let late = |path: &str| {
        let text = "fn f() {\n    let cpus = Topology::read().allowed;\n}\n".to_owned();
        let path = path.to_owned();
        late_reads_of_cpus(&File { path, text }).len()
    };
    assert_eq!(late("crates/bench/src/run.rs"), 1);
    assert_eq!(late("crates/bench/tests/whole/runs.rs"), 0);
    assert_eq!(late("crates/commands/src/command/measure.rs"), 0);
}

#[test]
fn unsafe_is_in_one_crate_and_has_its_reasons() {
    let heads = source::heads();
    check(|file| {
        if crate_of(&file.path) == UNSAFE_CRATE {
            return without_reason(file);
        }
        let is_root = file.path.contains("/src/") && heads.contains(&file.path);
        let missing = is_root.then(|| allows_unsafe(file)).flatten();
        missing.into_iter().collect()
    });
}

fn invented(text: String) -> File {
    let path = "crates/attic/src/lib.rs".to_owned();
    File { path, text }
}

#[test]
fn unsafe_without_a_reason_is_found() {
    let found = |text: &str| without_reason(&invented(text.to_owned())).len();
    let reason = "    // SAFETY: it is sound.\n";
    assert_eq!(found("fn f() {\n    unsafe { g() };\n}\n"), 1);
    assert_eq!(found("unsafe impl Send for A {}\n"), 1);
    assert_eq!(
        found(&format!("fn f() {{\n{reason}    unsafe {{ g() }};\n}}\n")),
        0
    );
    let apart = format!("fn f() {{\n{reason}    let a =\n        unsafe {{ g() }};\n}}\n");
    assert_eq!(found(&apart), 0);
    let other = format!("fn f() {{\n{reason}    g();\n    unsafe {{ g() }};\n}}\n");
    assert_eq!(found(&other), 1);
    assert!(allows_unsafe(&invented("//! It.\nmod a;\n".into())).is_some());
    assert!(allows_unsafe(&invented("//! It.\n#![forbid(unsafe_code)]\n".into())).is_none());
}
