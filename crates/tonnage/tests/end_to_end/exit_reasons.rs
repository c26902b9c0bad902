//! How commands end. A failing command prints its reason once on standard error, for any standard output. A command
//! ends silently if its standard output is closed.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use tempfile::tempdir;

use super::support::{BRIEF, rows, tonnage};

/// The library is missing, so points that need it are skipped.
const WITHOUT: &str = "--engine fabric:tcp --library libfabric=/nowhere/libfabric.so --ranks 2";

/// Returns command lines that fail in a directory prepared by [`prepare`]. Each has its exit code and a part of the
/// reason.
fn failing() -> Vec<(String, i32, &'static str)> {
    let mut cases: Vec<(String, i32, &str)> = Vec::new();
    let foreign = "is there and was not written by tonnage";
    // Points that fail or are skipped, in every format.
    for format in ["default", "JSON", "CSV"] {
        for file in ["", " -O summaryFile=s"] {
            let line =
                format!("ior --ranks 2 -w -t 64k -b 1m -o foreign -O summaryFormat={format}{file}");
            cases.push((line, 1, foreign));
        }
    }
    for format in ["table", "csv", "jsonl"] {
        let file = format!("file --ranks 2 --bound none --path foreign --format {format}");
        cases.push((file, 1, foreign));
        let many = format!("transfer {WITHOUT} --op write --sizes 8,16 --format {format}");
        cases.push((many, 2, "error: fabric:tcp cannot be used here"));
    }
    let missing = "/nowhere/libfabric.so";
    for line in [
        format!("transfer {WITHOUT} --op write --sizes 8"),
        format!("transfer {WITHOUT} --op write --sizes 8 -o r.jsonl"),
        format!("connect {WITHOUT}"),
        format!("verify {WITHOUT}"),
    ] {
        cases.push((line, 2, missing));
    }
    let compare = "compare 8.jsonl 16.jsonl --fail-on missing";
    cases.push((compare.to_owned(), 1, "missing (--fail-on)"));
    // Wrong requests of every command.
    let wrong = "
        transfer --engine shm --op write --sizes 1,2, --ranks 2     => comma
        file --ranks 2 --path t --block 4 --transfer 4              => block 4
        ior --ranks 2 -t 1 -b 1 -o t                                => block 1
        ior -r -z-k -o t                                            => -z-k
        connect --engine shmm --ranks 2                             => did you mean
        stress --engine shmm --ranks 2                              => did you mean
        tune --engine shmm --ranks 2                                => tune
        collective --backend nothing --op all-reduce --ranks 2      => nothing
        layers --engine shmm --ranks 2                              => shmm
        verify --engine shmm --ranks 2                              => did you mean
        run nowhere.toml                                            => nowhere.toml
        show nowhere.jsonl                                          => nowhere.jsonl
        explain Nothing                                             => Nothing
        ab -o ab.jsonl -- devices -- devices                        => not a command that measures
        compare nowhere.jsonl 8.jsonl                               => nowhere.jsonl
        baseline nowhere.jsonl -o b.toml                            => nowhere.jsonl
        history nowhere.jsonl                                       => nowhere.jsonl
        export --to junit nowhere.jsonl                             => nowhere.jsonl
        report nowhere.jsonl -o r.html                              => nowhere.jsonl
        hosts --hostfile nowhere                                    => nowhere
        man nothing                                                 => nothing
        completions nothing                                         => nothing
        nothing                                                     => nothing
        devices --nothing                                           => --nothing
    ";
    let wrong = rows(wrong).map(|[line, part]| (line.to_owned(), 2, part));
    cases.extend(wrong);
    cases
}

/// Writes a foreign file, a file with records of one point, and a file with records of two points.
fn prepare(dir: &Path) {
    fs::write(dir.join("foreign"), "precious").unwrap();
    for (sizes, file) in [("8", "8.jsonl"), ("8,16", "16.jsonl")] {
        let line = format!(
            "transfer --engine null --op write --sizes {sizes} --ranks 2 {BRIEF} -o {file}"
        );
        tonnage(dir, &line).succeed();
    }
}

#[test]
fn a_failing_command_prints_its_reason_once() {
    let dir = tempdir().unwrap();
    prepare(dir.path());
    for (line, code, part) in failing() {
        let ended = tonnage(dir.path(), &line).run();
        assert_eq!(ended.code, Some(code), "{line}: {ended:#?}");
        let errors = ended.stderr.lines().filter(|it| it.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{line}: {ended:#?}");
        ended.saying(&[part]);
    }
    let foreign = fs::read_to_string(dir.path().join("foreign")).unwrap();
    assert_eq!(foreign, "precious");
}

/// The command must end as if SIGPIPE had killed it, because shells print nothing in this case.
#[test]
fn a_command_whose_output_nobody_reads_ends_quietly() {
    let dir = tempdir().unwrap();
    prepare(dir.path());
    let transfer = format!("transfer --engine shm --op write --sizes 8,16 --ranks 2 {BRIEF}");
    for line in [
        "--help",
        "-h",
        "--version",
        "transfer --help",
        "ior --help",
        "show 8.jsonl",
        "show --format jsonl 8.jsonl",
        "explain",
        "devices",
        "devices --json",
        "completions bash",
        "man",
        "export --to prometheus 8.jsonl",
        "compare 8.jsonl 16.jsonl",
        "history 8.jsonl",
        &format!("{transfer} --print-plan"),
        &format!("{transfer} -o kept.jsonl"),
        &format!("{transfer} --format jsonl"),
        "ior --ranks 2 -F -b 64k -t 16k -o t",
    ] {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        drop::<OwnedFd>(reader);
        let ended = tonnage(dir.path(), line).stdout(writer).run();
        assert_eq!(ended.code, Some(141), "{line}: {ended:#?}");
        assert!(ended.stderr.is_empty(), "{line}: {ended:#?}");
    }
    let kept = fs::read_to_string(dir.path().join("kept.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 2, "{kept}");
}
