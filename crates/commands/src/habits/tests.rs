use super::own::refuse_at;
use super::tables::*;
use super::*;

const HERE: &str = "n0";

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns the command line that an answer suggests.
fn line_of(answer: &str) -> Vec<String> {
    let line = answer.lines().find_map(|line| {
        let line = line.trim_start();
        (line.starts_with("tonnage ") || line.starts_with("mpirun ")).then_some(line)
    });
    shell::split(line.unwrap_or_else(|| panic!("no line to type: {answer}"))).unwrap()
}

/// Sample values. Each option has a row that understands at least one of them.
const SAMPLES: &[&str] = &[
    "4", "4k", "10G", "10", "0", "20ms", "0-1", "float", "tcp", "put", "sum", "ring", "read",
    "io_uring", "json", "n1", "names",
];

fn base(command: &str) -> &'static str {
    match command {
        "transfer" | "tune" => "--engine fabric:tcp --op write --sizes 64 --ranks 2",
        "collective" => "--backend native:shm --op all-reduce --sizes 1k --ranks 2",
        "file" => "--path t.dat --block 64k --transfer 4k",
        "run" => "tour",
        "connect" | "stress" | "verify" => "--engine shm --ranks 2",
        _ => "--ranks 2",
    }
}

/// Tries an option with sample values. Returns the first suggested line that the checks accept.
fn accepted_answer(command: &str, row: &Row, typed: &str) -> Option<Vec<String>> {
    let hosts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/habits/hosts.txt");
    let values = match row.takes_value {
        true => [SAMPLES, &[hosts]].concat(),
        false => vec![""],
    };
    let range = match row.to.starts_with("@factor") {
        true => "-b 8 -e 64",
        false => "",
    };
    values.iter().find_map(|value| {
        let line = format!(
            "tonnage {command} {} {range} {typed} {value}",
            base(command)
        );
        let line = words(&line);
        match refuse_at(&line, HERE) {
            Some(answer) => (!answer.contains("another fault")).then(|| line_of(&answer)),
            // tonnage itself now has this option.
            None => check(&line).is_ok().then_some(line),
        }
    })
}

#[test]
fn a_line_that_the_checks_accept_is_never_refused() {
    for line in [
        "tonnage file --path t --block 64k --transfer 16k --ranks 3 --layout shared --read-shuffled 5 --phases write,read",
        "tonnage file --path t --ranks 2 --read-shuffled --verify=write",
        "tonnage transfer --engine shm --op put --sizes 8 --ranks 2 --iodepth 4 --bidir",
        "tonnage verify --collectives",
    ] {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        super::check(&words).unwrap();
        assert_eq!(super::own::refuse_at(&words, "here"), None, "{line}");
    }
}

#[test]
fn every_habit_has_an_answer_that_is_accepted() {
    let all = [
        "transfer",
        "collective",
        "file",
        "tune",
        "stress",
        "connect",
        "run",
    ];
    let mut answered = 0;
    let mut unanswered = Vec::new();
    for row in HABITS {
        let applies = |command: &&&str| {
            row.commands.is_empty() || row.commands.split(' ').any(|one| one == **command)
        };
        for typed in row.typed.split_whitespace() {
            let mut lines = all
                .iter()
                .filter(applies)
                .map(|command| accepted_answer(command, row, typed));
            let Some(line) = lines.find_map(|line| line) else {
                unanswered.push(typed);
                continue;
            };
            check(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
            answered += 1;
        }
    }
    assert!(unanswered.is_empty(), "no accepted answer: {unanswered:?}");
    assert!(answered >= 60, "{answered}");
}

#[test]
fn every_row_of_a_program_is_translated() {
    let programs: &[(&str, &[Row])] = &[
        ("ib_write_bw", PERFTEST),
        ("ib_read_lat", PERFTEST),
        ("ib_send_bw", PERFTEST),
        ("fi_rma_bw", FABTESTS),
        ("fi_rdm_pingpong", FABTESTS),
        ("iperf3", IPERF3),
        ("osu_bw", OSU),
        ("osu_get_latency", OSU),
        ("osu_allreduce", OSU),
        ("osu_alltoall", OSU),
        ("all_reduce_perf", NCCL),
        ("all_gather_perf", NCCL),
        ("fio --name=j --size=1m", FIO),
        ("ucx_perftest -t tag_bw", UCX),
        ("nixlbench", NIXL),
        ("nixlbench --backend POSIX", NIXL),
    ];
    for (program, rows) in programs {
        for row in *rows {
            for typed in row.typed.split_whitespace().take(1) {
                let values: &[&str] = if row.takes_value { SAMPLES } else { &[""] };
                for value in values {
                    let line = format!("{program} {typed} {value}");
                    let (words, remarks) = foreign::translate(&words(&line), HERE)
                        .unwrap_or_else(|error| panic!("{line}: {error}"));
                    check(&words).unwrap_or_else(|error| panic!("{line}: {words:?}: {error}"));
                    if remarks
                        .iter()
                        .all(|remark| !remark.contains("no equivalent is known"))
                    {
                        break;
                    }
                }
            }
        }
    }
}

/// Whole command lines of other benchmarks, each with its answer.
const WHOLE: &str = include_str!("whole.txt");

/// Command lines of tonnage with foreign parts, each with its answer.
const OWN: &str = include_str!("own.txt");

/// Answers the lines that begin with `$ `, and formats the answers as in the files.
fn transcript(recorded: &str, answer: impl Fn(&str) -> String) -> String {
    let lines = recorded.lines().filter_map(|line| line.strip_prefix("$ "));
    lines
        .map(|line| format!("$ {line}\n{}\n\n", answer(line).trim_end()))
        .collect()
}

fn compare(file: &str, recorded: &str, now: &str) {
    if std::env::var_os("TONNAGE_RECORD_ANSWERS").is_some() {
        let path = format!("{}/src/habits/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, now).unwrap();
        return;
    }
    assert!(
        recorded == now,
        "{file} should be (TONNAGE_RECORD_ANSWERS=1 writes it):\n{now}"
    );
}

#[test]
fn whole_lines_are_translated_as_recorded() {
    let now = transcript(WHOLE, |line| {
        let answer = answer(&[line.into()], HERE).unwrap_or_else(|error| panic!("{line}: {error}"));
        check(&line_of(&answer)).unwrap_or_else(|error| panic!("{answer}: {error}"));
        answer
    });
    assert!(now.matches("$ ").count() >= 20);
    compare("whole.txt", WHOLE, &now);
}

#[test]
fn own_lines_are_answered_as_recorded() {
    let now = transcript(OWN, |line| {
        let words = shell::split(line).unwrap();
        let answer = refuse_at(&words, HERE);
        let is_without_line = |answer: &&String| {
            answer.contains("another fault") || answer.contains("several meanings")
        };
        if let Some(answer) = answer.as_ref().filter(|answer| !is_without_line(answer)) {
            check(&line_of(answer)).unwrap_or_else(|error| panic!("{answer}: {error}"));
        }
        answer.unwrap_or_else(|| "(the parser answers)".to_owned())
    });
    compare("own.txt", OWN, &now);
}

#[test]
fn odd_lines_are_errors() {
    for line in [
        "",
        " ",
        "'",
        "\"",
        "\\",
        "ib_write_bw '",
        "unknown",
        "mpirun",
        "mpirun -np",
        "|",
        "a=b",
        "sudo",
    ] {
        assert!(answer(&[line.into()], HERE).is_err(), "{line}");
    }
    assert!(answer(&[], HERE).is_err());
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt;
        let word = OsString::from_vec(vec![b'a', 0xff]);
        assert!(answer(std::slice::from_ref(&word), HERE).is_err());
        assert!(refuse(&["tonnage".into(), "transfer".into(), "-s".into(), word]).is_none());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(48))]
    #[test]
    fn no_input_panics(
        program in 0..8_usize,
        words in proptest::collection::vec("-{0,2}[a-zA-Zé0-9=:,.*'\"\\\\ |/_-]{0,8}", 0..5),
    ) {
        let program = [
            "ib_write_bw", "fi_rma_bw", "iperf3", "osu_bw", "all_gather_perf", "fio", "ucx_perftest", "nixlbench",
        ].get(program).copied().unwrap_or_default();
        let line = format!("{program} {}", words.join(" "));
        let _ = answer(&[line.into()], HERE);
        let all = [&["tonnage".to_owned(), "transfer".to_owned()][..], &words[..]].concat();
        if let Some(answer) = refuse_at(&all, HERE) {
            proptest::prop_assert!(answer.starts_with("error: "));
        }
    }
}
