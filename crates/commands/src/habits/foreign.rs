//! Translates whole command lines of other benchmarks.

use std::collections::VecDeque;

use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

use super::draft::Draft;
use super::tables::{FABTESTS, FIO, IPERF3, LAUNCHERS, NCCL, NIXL, OSU, PERFTEST, Row, UCX};
use super::values::{bit_rate, dtype, hosts, number, range, size, sweep};
use super::{check, first_line, settle};

/// A benchmark to translate command lines from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Perftest,
    Fabtests,
    Iperf3,
    Osu,
    Nccl,
    Ior,
    Fio,
    Ucx,
    Nixl,
}

/// Programs that the error about an unknown program lists.
const PROGRAMS: &str = "ib_{write,read,send,atomic}_{bw,lat}, fi_*_bw, fi_*_pingpong, iperf3, osu_*, *_perf of nccl-tests, ior, \
                        fio, ucx_perftest, nixlbench";

/// Maximum number of words in a line.
const WORDS_MAX: usize = 4096;

impl Tool {
    fn of(program: &str) -> Option<Self> {
        let perftest = || {
            let (verb, kind) = program.strip_prefix("ib_")?.split_once('_')?;
            (["write", "read", "send", "atomic"].contains(&verb) && ["bw", "lat"].contains(&kind))
                .then_some(())
        };
        match program {
            "iperf3" | "iperf" => Some(Self::Iperf3),
            "ior" | "IOR" => Some(Self::Ior),
            "fio" => Some(Self::Fio),
            "ucx_perftest" => Some(Self::Ucx),
            "nixlbench" => Some(Self::Nixl),
            _ if perftest().is_some() => Some(Self::Perftest),
            _ if fabtests_op(program).is_some() => Some(Self::Fabtests),
            _ if osu_is_known(program) => Some(Self::Osu),
            _ if nccl_op(program).is_some() => Some(Self::Nccl),
            _ => None,
        }
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Self::Perftest => PERFTEST,
            Self::Fabtests => FABTESTS,
            Self::Iperf3 => IPERF3,
            Self::Osu => OSU,
            Self::Nccl => NCCL,
            Self::Ior => &[],
            Self::Fio => FIO,
            Self::Ucx => UCX,
            Self::Nixl => NIXL,
        }
    }
}

/// Returns the operation of a program of fabtests. The rest of the program's name is the kind of measurement.
fn fabtests_op(program: &str) -> Option<&'static str> {
    match program {
        "fi_rma_bw" | "fi_rma_pingpong" | "efa_rma_bw" => Some("write"),
        "fi_rdm_bw" | "fi_msg_bw" | "fi_rdm_bw_mt" | "fi_bw" => Some("send"),
        "fi_rdm_pingpong" | "fi_msg_pingpong" | "fi_pingpong" => Some("send"),
        _ => None,
    }
}

/// Returns the collective of a program of nccl-tests. The flag is true if the program divides the size among the ranks.
fn nccl_op(program: &str) -> Option<(&'static str, bool)> {
    Some(
        match program
            .strip_suffix("_perf")
            .or_else(|| program.strip_suffix("_perf_mpi"))?
        {
            "all_reduce" => ("all-reduce", false),
            "all_gather" => ("all-gather", true),
            "alltoall" => ("all-to-all", true),
            "broadcast" => ("broadcast", false),
            "reduce" => ("reduce", false),
            "reduce_scatter" => ("reduce-scatter", true),
            "gather" => ("gather", true),
            "scatter" => ("scatter", true),
            "sendrecv" => ("send-recv-ring", false),
            _ => return None,
        },
    )
}

/// Returns the collective of an OSU program. The flag is true if the program's size is the size of one rank's part.
fn osu_collective(program: &str) -> Option<(&'static str, bool)> {
    Some(match program.strip_prefix("osu_")? {
        "allreduce" => ("all-reduce", false),
        "allgather" => ("all-gather", true),
        "alltoall" => ("all-to-all", true),
        "bcast" => ("broadcast", false),
        "reduce" => ("reduce", false),
        "reduce_scatter" => ("reduce-scatter", false),
        "gather" => ("gather", true),
        "scatter" => ("scatter", true),
        "barrier" => ("barrier", false),
        _ => return None,
    })
}

/// Returns the operation and the pacing of an OSU program between two ranks.
fn osu_pair(program: &str) -> Option<(&'static str, &'static str)> {
    Some(match program.strip_prefix("osu_")? {
        "latency" => ("send", "--ping-pong"),
        "bw" => ("send", "--batch 64"),
        "bibw" => ("send", "--batch 64 --bidirectional"),
        "mbw_mr" => ("send", "--depth 64"),
        "put_bw" => ("write", "--depth 64"),
        "put_bibw" => ("write", "--depth 64 --bidirectional"),
        "put_latency" => ("write", "--ping-pong"),
        "get_bw" => ("read", "--depth 64"),
        "get_latency" => ("read", "--ping-pong"),
        _ => return None,
    })
}

fn osu_is_known(program: &str) -> bool {
    osu_collective(program).is_some() || osu_pair(program).is_some()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_launcher(word: &str) -> bool {
    [
        "mpirun",
        "mpiexec",
        "mpiexec.hydra",
        "orterun",
        "prterun",
        "srun",
    ]
    .contains(&base(word))
}

/// Returns the position of the program in the line, after variables, `sudo` and a launcher.
fn program_index(words: &[String]) -> Option<usize> {
    let is_variable = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let before = words
        .iter()
        .take_while(|word| is_variable(word) || base(word) == "sudo")
        .count();
    let first = words.get(before)?;
    if !is_launcher(first) {
        return Tool::of(base(first)).map(|_| before);
    }
    let rest = words.iter().skip(before + 1);
    let place = rest
        .take(WORDS_MAX)
        .position(|word| Tool::of(base(word)).is_some())?;
    Some(before + 1 + place)
}

/// Returns whether these words are a command line of another benchmark.
pub fn is_foreign(words: &[String]) -> bool {
    program_index(words).is_some()
}

/// Translates a command line of another benchmark. Returns the words of the line and remarks.
///
/// # Errors
/// Fails if the program is unknown, or if this version has no such measurement.
pub fn translate(words: &[String], here: &str) -> Result<(Vec<String>, Vec<String>)> {
    let usage = |text: String| Err(Error::Usage(text));
    if words.len() > WORDS_MAX {
        return usage(format!("a line of more than {WORDS_MAX} words"));
    }
    let Some(at) = program_index(words) else {
        let first = words.first().map(String::as_str).unwrap_or_default();
        return usage(format!(
            "{} is not a benchmark that is translated. Programs: {PROGRAMS}",
            quote(first)
        ));
    };
    let (before, rest) = words.split_at_checked(at).unwrap_or((words, &[]));
    let program = rest.first().map(|word| base(word)).unwrap_or_default();
    let Some(tool) = Tool::of(program) else {
        return usage(format!("{} is not translated", quote(program)));
    };
    let mut launch = Draft::default();
    scan(
        LAUNCHERS,
        before.iter().skip_while(|word| !is_launcher(word)).skip(1),
        &mut launch,
    );
    let options = rest.get(1..).unwrap_or_default();
    let mut draft = Draft {
        here: here.to_owned(),
        remarks: launch.remarks,
        ..Draft::default()
    };
    if tool == Tool::Ior {
        return ior(options, &launch.kept);
    }
    start(tool, program, &mut draft);
    scan(tool.rows(), options.iter(), &mut draft);
    for (name, value) in launch.kept {
        draft.kept.insert(format!("launcher_{name}"), value);
    }
    let mut prefix = Vec::new();
    match tool {
        Tool::Perftest => perftest(&mut draft),
        Tool::Fabtests => fabtests(&mut draft, program),
        Tool::Iperf3 => iperf3(&mut draft),
        Tool::Osu => osu(&mut draft, program, &mut prefix),
        Tool::Nccl => nccl(&mut draft, program),
        Tool::Fio => fio(&mut draft),
        Tool::Ucx => ucx(&mut draft),
        Tool::Nixl => nixl(&mut draft),
        Tool::Ior => {}
    }
    if draft.has("--duration") && draft.has("--iters") {
        draft.remove("--iters");
        draft.remove("--trials");
    }
    if draft.command != "file" && prefix.is_empty() {
        place_ranks(&mut draft);
    }
    draft.positional.clear();
    settle(&mut draft)?;
    Ok(([prefix, draft.line()].concat(), draft.remarks))
}

/// Translates options by these rows.
fn scan<'a>(rows: &[Row], words: impl Iterator<Item = &'a String>, draft: &mut Draft) {
    let mut words: VecDeque<&str> = words.map(String::as_str).collect();
    while let Some(word) = words.pop_front() {
        if !word.starts_with('-') || word == "-" || word == "--" {
            if word != "--" && word != "-" {
                draft.positional.push(word.to_owned());
            }
            continue;
        }
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        let is_named = |row: &&Row, option: &str| row.typed.split(' ').any(|typed| typed == option);
        let found = rows.iter().find(|row| is_named(row, option));
        if let Some(row) = found {
            let value = match (row.takes_value, attached) {
                (true, None) => words.pop_front(),
                (true, attached) => attached,
                // `--thread=0` and `--recreate_xfer=false` switch a flag off.
                (false, Some("0" | "false")) => continue,
                (false, _) => None,
            };
            apply(draft, row, option, value);
            continue;
        }
        // Single letters may be written together, and the last one may have its value attached.
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        if !letters.is_some_and(|letters| bundle(rows, letters, &mut words, draft)) {
            draft.remark(format!(
                "{}: no equivalent is known",
                quote(option).trim_matches('"')
            ));
            if attached.is_none()
                && words.front().is_some_and(|next| !next.starts_with('-'))
                && words.len() > 1
            {
                words.pop_front();
            }
        }
    }
}

/// Translates letters that are written together: `-aF`, `-s4096`. Returns false if the first letter is unknown.
fn bundle(rows: &[Row], letters: &str, words: &mut VecDeque<&str>, draft: &mut Draft) -> bool {
    for (index, letter) in letters.char_indices() {
        let option = format!("-{letter}");
        let found = rows
            .iter()
            .find(|row| row.typed.split(' ').any(|typed| typed == option));
        let Some(row) = found else {
            if index > 0 {
                draft.remark(format!("{option}: no equivalent is known"));
            }
            return index > 0;
        };
        if row.takes_value {
            let rest = letters
                .get(index + letter.len_utf8()..)
                .filter(|rest| !rest.is_empty());
            let value = rest.or_else(|| words.pop_front());
            apply(draft, row, &option, value);
            return true;
        }
        apply(draft, row, &option, None);
    }
    true
}

fn apply(draft: &mut Draft, row: &Row, option: &str, value: Option<&str>) {
    if row.takes_value && value.is_none() {
        draft.remark(format!("{option}: its value is missing"));
    } else if !draft.apply(row, option, value) {
        let value = quote(value.unwrap_or_default());
        draft.remark(format!("{option} {value}: no equivalent is known"));
    }
}

/// Sets the command and the options that every line of this program needs.
fn start(tool: Tool, program: &str, draft: &mut Draft) {
    let is_collective = tool == Tool::Nccl || osu_collective(program).is_some();
    draft.command = match tool {
        Tool::Fio => "file",
        _ if is_collective => "collective",
        _ => "transfer",
    }
    .to_owned();
    match tool {
        Tool::Perftest => {
            let op = match program.split('_').nth(1) {
                Some("atomic") => "fetch-add",
                Some(op) => op,
                None => "write",
            };
            draft.set(&format!("--engine verbs:rc --op {op}"));
            let is_latency = program.ends_with("_lat");
            let size = match (op, is_latency) {
                ("fetch-add", _) => "8",
                (_, true) => "2",
                _ => "64k",
            };
            draft.set(&format!("--sizes {size}"));
            draft.set(if is_latency {
                "--ping-pong"
            } else {
                "--depth 128"
            });
        }
        Tool::Fabtests => {
            let op = fabtests_op(program).unwrap_or("send");
            draft.set(&format!("--engine fabric:tcp --op {op}"));
            draft.set(match program.ends_with("pingpong") {
                true => "--sizes 64,4k --ping-pong",
                false => "--sizes 64..1M*4",
            });
        }
        Tool::Iperf3 => {
            draft.set("--engine fabric:tcp --op write --sizes 128k --depth 64 --duration 10s")
        }
        Tool::Osu => match (osu_pair(program), osu_collective(program)) {
            (Some((op, pacing)), _) => {
                draft.set(&format!("--engine shm --op {op} --sizes 1..4M {pacing}"))
            }
            (None, Some((op, _))) => draft.set(&format!("--backend mpi --op {op}")),
            (None, None) => {}
        },
        Tool::Nccl => {
            let op = nccl_op(program).map_or("all-reduce", |(op, _)| op);
            draft.set(&format!("--backend torch:nccl --op {op}"));
        }
        Tool::Ucx => draft.set("--engine fabric:tcp --op write --sizes 8"),
        Tool::Nixl => draft.set("--engine fabric:tcp --op write --sizes 4k..64M --batch 1 --gap 0"),
        Tool::Fio | Tool::Ior => {}
    }
}

/// Sets the ranks: on the hosts in the line, or two ranks on this host.
fn place_ranks(draft: &mut Draft) {
    let server = draft.kept("server").map(str::to_owned);
    let named = server.or_else(|| draft.positional.first().cloned());
    let named = named.and_then(|name| hosts(&name, &draft.here));
    let launched = draft
        .kept("launcher_hosts")
        .and_then(|list| hosts(list, &draft.here));
    let file = draft.kept("launcher_hostfile").map(str::to_owned);
    if draft.has("--ranks") && named.is_none() && launched.is_none() && file.is_none() {
        return;
    }
    let ranks = draft.kept("launcher_ranks").map(str::to_owned);
    match (named.or(launched), file) {
        (Some(hosts), _) => {
            draft.set_one("--hosts", Some(hosts));
            if let Some(count) = draft.value("--ranks").map(str::to_owned).or(ranks) {
                draft.set_one("--ranks", Some(count));
            }
        }
        (None, Some(file)) => {
            draft.set_one("--hostfile", Some(file));
            if let Some(count) = ranks {
                draft.set_one("--ranks", Some(count));
            }
        }
        (None, None) => {
            let count = ranks
                .filter(|count| count != "1")
                .unwrap_or_else(|| "2".to_owned());
            draft.set_one("--ranks", Some(count));
            draft.remark(
                "both ends run on this host: for two hosts use --hosts A,B instead of --ranks 2",
            );
        }
    }
}

fn perftest(draft: &mut Draft) {
    let is_ping_pong = draft.has("--ping-pong");
    if is_ping_pong && draft.has("--depth") {
        draft.remove("--depth");
        draft.remark("-t: a latency test keeps one operation in flight");
    }
    if let Some(count) = draft
        .kept("qps")
        .and_then(number)
        .filter(|count| *count > 1)
    {
        if is_ping_pong {
            draft.remark("-q: a latency test has one queue pair");
        } else {
            let depth = draft.value("--depth").and_then(number).unwrap_or(128);
            draft.set_one("--queue-pairs", Some(count.to_string()));
            draft.set_one("--depth", Some(depth.saturating_mul(count).to_string()));
            draft.remark("-q: the depth is that of all queue pairs together");
        }
    }
    if let (Some(port), Some(device)) = (draft.kept("port"), draft.value("--devices"))
        && !device.contains([',', ':'])
    {
        let device = format!("{device}:{port}");
        draft.set_one("--devices", Some(device));
    }
    match draft.kept("connection").map(str::to_uppercase).as_deref() {
        Some("DC") => draft.set("--engine verbs:dc"),
        None | Some("RC") => {}
        Some(_) => {
            draft.remark("-c: only the connections RC and DC are in this version; this measures RC")
        }
    }
    match draft.kept("atomic") {
        Some("CMP_AND_SWP") => draft.set("--op compare-swap"),
        None | Some("FETCH_AND_ADD") => {}
        Some(_) => draft.remark("-A: no equivalent is known"),
    }
    if is_ping_pong && draft.value("--op") == Some("write") && draft.has("--cq") {
        draft.remove("--cq");
        draft.remark("-e: a ping-pong of plain writes has no events");
    }
    if let Some(rate) = draft.kept("rate") {
        let rate = match draft.kept("rate_units") {
            None | Some("g") => bit_rate(&format!("{rate}G")),
            Some("p") => number(rate).map(|rate| rate.to_string()),
            Some(_) => None,
        };
        match rate {
            Some(_) => {
                draft.set_one("--rate", rate);
                if let Some(burst) = draft.kept("burst").map(str::to_owned) {
                    draft.set_one("--burst", Some(burst));
                }
            }
            None => {
                draft.remark("--rate_limit: name the rate with its unit, such as --rate 10Gb/s")
            }
        }
    }
}

fn fabtests(draft: &mut Draft, program: &str) {
    match draft.kept("op") {
        None => {}
        Some("write" | "read") => {
            let op = format!("--op {}", draft.kept("op").unwrap_or_default());
            draft.set(&op);
        }
        Some("writedata") => draft.set("--op write-imm"),
        Some("msg") => draft.set("--op send"),
        Some(_) => draft.remark("-o: tags are not in this version; this measures messages"),
    }
    if !draft.has("--ping-pong") {
        let window = draft.kept("window").unwrap_or("64").to_owned();
        let slides = program == "efa_rma_bw";
        draft.set_one(if slides { "--depth" } else { "--batch" }, Some(window));
        if program.contains("rma") && matches!(draft.value("--op"), Some("write" | "read")) {
            draft.set("--bidirectional");
        }
    }
    match draft.kept("wait") {
        Some("fd") => draft.set("--cq event"),
        None | Some("spin") => {}
        Some(_) => draft.remark("-c: waits are spin (--cq busy) and fd (--cq event)"),
    }
    let gpu = draft
        .kept("gpu")
        .map_or(String::new(), |gpu| format!(":{gpu}"));
    match draft.kept("hmem") {
        Some("cuda") => draft.set(&format!("--memory cuda{gpu}")),
        Some("rocr") => draft.set(&format!("--memory hip{gpu}")),
        Some(_) => draft.remark("-D: memory is of the host, cuda or hip"),
        None => {}
    }
    if program == "fi_rdm_bw_mt"
        && let Some(threads) = draft.kept("threads").map(str::to_owned)
    {
        draft.set_one("--threads", Some(threads));
    }
}

fn iperf3(draft: &mut Draft) {
    if draft.has("--bidirectional") {
        draft.set("--op write");
    }
    match draft.kept("rate").map(str::to_owned) {
        Some(rate) if rate != "0" => {
            let (rate, burst) = match rate.split_once('/') {
                Some((rate, burst)) => (rate.to_owned(), number(burst)),
                None => (rate, None),
            };
            match bit_rate(&rate) {
                Some(each) => {
                    draft.set_one("--rate", Some(each));
                    draft.remark("-b: the rate is that of a rank with all its threads");
                    if let Some(burst) = burst {
                        draft.set_one("--burst", Some(burst.to_string()));
                    }
                }
                None => draft.remark("-b: name the rate with its unit, such as --rate 10Gb/s"),
            }
        }
        _ => draft.set("--latency off"),
    }
    let seconds = draft
        .kept("interval")
        .map(|text| text.parse::<f64>().unwrap_or(0.0));
    let whole = draft
        .value("--duration")
        .and_then(|text| text.trim_end_matches('s').parse::<f64>().ok());
    if let (Some(seconds), Some(whole)) = (seconds, whole)
        && seconds > 0.0
        && seconds < whole
    {
        draft.set_one("--interval", Some(format!("{seconds}s")));
    }
}

fn memory(name: &str) -> Option<&'static str> {
    match name.to_lowercase().as_str() {
        "cuda" | "vram" | "d" => Some("cuda"),
        "rocm" | "hip" => Some("hip"),
        _ => None,
    }
}

fn osu(draft: &mut Draft, program: &str, prefix: &mut Vec<String>) {
    let on_gpu = draft.positional.iter().any(|word| word == "D");
    let asked = draft.kept("memory").and_then(memory);
    draft.positional.clear();
    let kind = asked.or(on_gpu.then_some("cuda"));
    let limits = draft.kept("sizes").map(str::to_owned);
    let (least, most) = match limits
        .as_deref()
        .map(|text| text.split_once(':').unwrap_or(("1", text)))
    {
        None => ("1", None),
        Some((least, most)) => (if least.is_empty() { "1" } else { least }, Some(most)),
    };
    let read = |text: &str| {
        size(text)
            .and_then(|text| number(&text))
            .filter(|size| *size > 0)
    };
    let Some((op, is_part)) = osu_collective(program) else {
        if let (Some(least), Some(most)) = (read(least), most.and_then(read)) {
            let sizes = range(&least.to_string(), &most.max(least).to_string(), "");
            draft.set_one("--sizes", Some(sizes));
        }
        if let Some(window) = draft.kept("window").map(str::to_owned) {
            let pacing = if draft.has("--batch") {
                "--batch"
            } else {
                "--depth"
            };
            if !draft.has("--ping-pong") {
                draft.set_one(pacing, Some(window));
            }
        }
        if let Some(kind) = kind {
            draft.set(&format!("--memory {kind} --engine {kind}-ipc"));
        }
        let has_hosts = draft
            .kept("launcher_hosts")
            .or_else(|| draft.kept("launcher_hostfile"))
            .is_some();
        if has_hosts {
            draft.set("--engine fabric:tcp");
        }
        draft.remark("bytes move by --engine, not by MPI: `tonnage engines` lists the others");
        return;
    };
    let ranks = draft
        .kept("launcher_ranks")
        .and_then(number)
        .unwrap_or(2)
        .clamp(2, 1 << 16);
    if op != "barrier" {
        let factor = if is_part { ranks } else { 1 };
        let element = 4;
        let whole = if is_part || op == "reduce-scatter" {
            element * ranks
        } else {
            element
        };
        let least = read(least).unwrap_or(1).saturating_mul(factor).max(whole);
        let most = most
            .and_then(read)
            .unwrap_or(1 << 20)
            .saturating_mul(factor)
            .max(least);
        draft.set_one(
            "--sizes",
            Some(range(&least.to_string(), &most.to_string(), "")),
        );
        draft.set("--rank-time mean");
        if is_part {
            draft.remark("sizes: OSU's is one rank's part, here it is the whole buffer");
        }
    } else {
        draft.remove("--verify");
    }
    if draft.kept("memory").is_some() || on_gpu {
        draft.remark("-d: collectives of MPI are measured in host memory");
    }
    draft.remove("--batch");
    draft.set_one("--ranks", Some(ranks.to_string()));
    if let Err(error) = settle(draft) {
        draft.remark(first_line(&error.to_string()));
    }
    // mpirun sets the number of ranks.
    draft.remove("--ranks");
    prefix.extend(["mpirun".to_owned(), "-np".to_owned(), ranks.to_string()]);
    for (name, option) in [
        ("launcher_hosts", "-H"),
        ("launcher_hostfile", "--hostfile"),
    ] {
        if let Some(value) = draft.kept(name) {
            prefix.extend([option.to_owned(), value.to_owned()]);
        }
    }
}

fn nccl(draft: &mut Draft, program: &str) {
    let count = |draft: &Draft, name: &str| {
        draft
            .kept(name)
            .and_then(number)
            .unwrap_or(1)
            .clamp(1, 1 << 16)
    };
    let product = count(draft, "gpus")
        .saturating_mul(count(draft, "threads"))
        .saturating_mul(count(draft, "launcher_ranks"));
    let ranks = product.clamp(2, 1 << 16);
    if product < 2 {
        draft.remark("-g: a collective needs two ranks");
    }
    draft.set_one("--ranks", Some(ranks.to_string()));
    if let Some(kind) = draft.kept("dtype").map(str::to_owned) {
        match dtype(&kind) {
            Some(kind) => draft.set_one("--dtype", Some(kind)),
            None => draft.remark(format!("-d {}: no equivalent is known", quote(&kind))),
        }
    }
    let (op, is_shared) = nccl_op(program).unwrap_or(("all-reduce", false));
    if let Some(reduce) = draft.kept("reduce").map(str::to_owned) {
        let reduces = op.contains("reduce");
        match ["sum", "prod", "min", "max", "avg"].contains(&reduce.as_str()) && reduces {
            true => draft.set_one("--reduce", Some(reduce)),
            false => draft.remark(format!("-o {}: no equivalent is known", quote(&reduce))),
        }
    }
    if let Some(root) = draft.kept("root").map(str::to_owned) {
        match ["broadcast", "reduce", "gather", "scatter"].contains(&op) {
            true => draft.set_one("--root", Some(root)),
            false => draft.remark("-r: this collective has no root"),
        }
    }
    if draft.kept("check").is_some_and(|check| check != "0") {
        draft.set("--verify");
    }
    match draft.kept("average") {
        None => {}
        Some("1") => draft.set("--rank-time mean"),
        Some(_) => draft
            .remark("-a: the time is that of the slowest rank, or their mean (--rank-time mean)"),
    }
    let begin = draft.kept("begin").unwrap_or("32M").to_owned();
    let end = draft.kept("end").unwrap_or("32M").to_owned();
    let step = match (draft.kept("factor"), draft.kept("step")) {
        (Some(factor), _) => format!("*{factor}"),
        (None, Some(step)) => format!("+{step}"),
        (None, None) => "+1M".to_owned(),
    };
    let values = |text: &str| {
        text.parse::<tonnage_plan::sweep::Sweep>()
            .ok()
            .and_then(|sweep| sweep.values().first().copied())
    };
    let least = if is_shared {
        ranks.saturating_mul(8)
    } else {
        8
    };
    let raised = match values(&begin) {
        Some(first) if first < least => {
            draft.remark(format!(
                "-b {begin}: the smallest size of {ranks} ranks is {least}"
            ));
            least.to_string()
        }
        _ => begin,
    };
    let end = match (values(&raised), values(&end)) {
        (Some(first), Some(last)) if last < first => raised.clone(),
        _ => end,
    };
    let sizes = range(&raised, &end, &step);
    match sweep(&sizes) {
        Some(sizes) => draft.set_one("--sizes", Some(sizes)),
        None => {
            draft.set("--sizes 8..128M");
            draft.remark(format!("{}: sizes are not a sweep", quote(&sizes)));
        }
    }
}

fn ior(
    options: &[String],
    launch: &std::collections::BTreeMap<String, String>,
) -> Result<(Vec<String>, Vec<String>)> {
    let mut line = vec!["tonnage".to_owned(), "ior".to_owned()];
    let own = [
        ("ranks", "--ranks"),
        ("hosts", "--hosts"),
        ("hostfile", "--hostfile"),
    ];
    let has_tasks = options.iter().any(|word| word == "-N");
    for (name, option) in own {
        if let Some(value) = launch.get(name).filter(|_| name != "ranks" || !has_tasks) {
            line.extend([option.to_owned(), value.clone()]);
        }
    }
    line.extend(options.iter().cloned());
    check(&line)?;
    Ok((line, Vec::new()))
}

fn fio(draft: &mut Draft) {
    if !draft.positional.is_empty() {
        draft.remark("job files of fio are not read: name the options of one job");
    }
    let keep = |draft: &Draft, name: &str| draft.kept(name).map(str::to_owned);
    let is_on = |draft: &Draft, name: &str| draft.kept(name).is_some_and(|value| value != "0");
    let jobs = draft.kept("jobs").and_then(number).unwrap_or(1);
    let name = keep(draft, "name").unwrap_or_else(|| "tonnage".to_owned());
    let mut path = keep(draft, "file").unwrap_or_else(|| format!("{name}.dat"));
    if let Some(directory) = keep(draft, "directory") {
        path = format!("{}/{path}", directory.trim_end_matches('/'));
    }
    draft.set_one("--path", Some(path));
    draft.set("--layout per-process");
    if !draft.has("--transfer") {
        draft.set("--transfer 4k");
    }
    if !draft.has("--block") {
        draft.set("--block 256M");
        draft.remark("--size: without it tonnage uses 256 MiB per rank");
    }
    let bytes = |text: Option<&str>| {
        let sweep = text?.parse::<tonnage_plan::sweep::Sweep>().ok()?;
        sweep.values().first().copied().filter(|bytes| *bytes > 0)
    };
    if let (Some(transfer), Some(block)) = (
        bytes(draft.value("--transfer")),
        bytes(draft.value("--block")),
    ) && block % transfer != 0
    {
        let whole = (block / transfer).max(1).saturating_mul(transfer);
        draft.set_one("--block", Some(whole.to_string()));
        draft.remark("--size: it is a whole number of transfers");
    }
    match draft.kept("rw").unwrap_or("read") {
        "read" | "write" => draft.set("--phases write,read"),
        "randread" | "randwrite" => draft.set("--phases write,read --order shuffled"),
        mixed @ ("randrw" | "rw" | "readwrite") => {
            let order = if mixed == "randrw" {
                "shuffled"
            } else {
                "sequential"
            };
            let write = draft
                .kept("mix_write")
                .and_then(number)
                .map(|write| 100_u64.saturating_sub(write));
            let percent = draft
                .kept("mix")
                .and_then(number)
                .or(write)
                .unwrap_or(50)
                .clamp(1, 99);
            draft.set(&format!(
                "--read-percent {percent} --order {order} --prefill"
            ));
        }
        _ => {
            draft.set("--phases write,read");
            draft.remark("--rw: no equivalent is known; this writes and reads in order");
        }
    }
    let engine = keep(draft, "engine").unwrap_or_else(|| "psync".to_owned());
    let depth = keep(draft, "depth").filter(|depth| depth != "1");
    let queues = ["io_uring", "io_uring_cmd", "libaio", "posixaio"].contains(&engine.as_str());
    draft.set(if queues {
        "--engine uring"
    } else {
        "--engine posix"
    });
    if !["io_uring", "psync", "sync", "pvsync", "pvsync2", "vsync"].contains(&engine.as_str()) {
        draft.remark(format!(
            "--ioengine {}: engines are posix and uring",
            quote(&engine)
        ));
    }
    match depth {
        Some(depth) if queues => draft.set_one("--depth", Some(depth)),
        Some(_) => {
            draft.remark("--iodepth: one system call per transfer has no depth; use io_uring")
        }
        None => {}
    }
    if is_on(draft, "direct") {
        draft.set("--direct");
    }
    if jobs > 1 {
        let option = if is_on(draft, "thread") {
            "--threads"
        } else {
            "--ranks"
        };
        match option {
            "--ranks" => draft.set_one("--ranks", Some(jobs.to_string())),
            _ => {
                draft
                    .options
                    .push(("--threads".to_owned(), Some(jobs.to_string())));
            }
        }
    }
    if is_on(draft, "end_fsync") {
        draft.set("--fsync end");
    }
    match draft.kept("fsync") {
        Some("1") => draft.set("--fsync each"),
        None | Some("0") => {}
        Some(_) => draft.remark("--fsync: after each transfer, or at the end"),
    }
    if is_on(draft, "invalidate") {
        draft.set("--drop-caches");
    }
    if let Some(seed) = keep(draft, "seed")
        && draft.value("--order") == Some("shuffled")
    {
        draft.set_one("--seed", Some(seed));
    }
}

fn ucx(draft: &mut Draft) {
    let test = draft.kept("test").unwrap_or("ucp_put_bw").to_owned();
    if test.contains("get") {
        draft.set("--op read");
    } else if test.contains("put") {
        draft.set("--op write");
    } else if test.contains("fadd") || test.contains("add") {
        draft.set("--op fetch-add --sizes 8");
    } else if test.contains("swap") {
        draft.set("--op compare-swap --sizes 8");
    } else {
        draft.set("--op send");
        if !test.starts_with("stream") {
            draft.remark(format!("-t {test}: tags and active messages are not in this version; this measures messages"));
        }
    }
    if test.ends_with("_lat") {
        draft.set("--ping-pong");
        draft.remove("--depth");
    }
    let transport = draft.kept("transport").unwrap_or_default().to_owned();
    let device = draft.kept("device").map(str::to_owned);
    let is_rdma = device.as_deref().is_some_and(is_rdma_device);
    if is_rdma || transport.contains("rc") || transport.contains("ib") {
        draft.set("--engine verbs:rc");
    } else if transport.contains("dc") {
        draft.set("--engine verbs:dc");
    } else if ["shm", "sysv", "posix", "self", "mm", "xpmem", "cma"]
        .iter()
        .any(|name| transport.contains(name))
        || (transport.is_empty() && device.is_none() && draft.positional.is_empty())
    {
        draft.set("--engine shm");
    }
    if let Some(device) = device {
        draft.set_one("--devices", Some(device));
    }
    if let Some(name) = draft.kept("memory").map(str::to_owned) {
        match name.split(',').next().and_then(memory) {
            Some(kind) => draft.set(&format!("--memory {kind}")),
            None if name.starts_with("host") => {}
            None => draft.remark("-m: memory is of the host, cuda or hip"),
        }
    }
}

/// Returns whether a name looks like an RDMA device, by the drivers' naming.
pub fn is_rdma_device(name: &str) -> bool {
    let drivers = [
        "mlx", "bnxt_re", "irdma", "rxe", "siw", "erdma", "qedr", "hns", "rocep", "ibp", "mana",
    ];
    drivers.iter().any(|driver| name.starts_with(driver))
}

fn nixl(draft: &mut Draft) {
    let keep = |draft: &Draft, name: &str| draft.kept(name).map(str::to_owned);
    let backend = keep(draft, "backend")
        .unwrap_or_else(|| "UCX".to_owned())
        .to_uppercase();
    let is_read = keep(draft, "op").is_some_and(|op| op.eq_ignore_ascii_case("read"));
    let sizes = range(
        draft.kept("begin").unwrap_or("4k"),
        draft.kept("end").unwrap_or("64M"),
        "",
    );
    let sizes = sweep(&sizes).unwrap_or_else(|| "4k..64M".to_owned());
    if backend == "POSIX" || backend.starts_with("GDS") {
        nixl_file(draft, &backend, &sizes, is_read);
        return;
    }
    draft.set_one("--sizes", Some(sizes));
    if !["UCX", "UCX_MO", "LIBFABRIC"].contains(&backend.as_str()) {
        draft.remark(format!(
            "--backend {}: not in this version; this measures TCP",
            quote(&backend)
        ));
    }
    if is_read {
        draft.set("--op read");
    }
    let batches = range(
        draft.kept("batch_begin").unwrap_or("1"),
        draft.kept("batch_end").unwrap_or("1"),
        "",
    );
    draft.set_one(
        "--batch",
        Some(sweep(&batches).unwrap_or_else(|| "1".to_owned())),
    );
    if let Some(devices) = keep(draft, "devices").filter(|devices| devices != "all") {
        if devices.split(',').all(is_rdma_device) {
            draft.set("--engine verbs:rc");
        }
        draft.set_one("--devices", Some(devices));
    }
    for (name, option) in [("memory", "--memory"), ("target_memory", "--target-memory")] {
        if keep(draft, name).is_some_and(|kind| kind.eq_ignore_ascii_case("vram")) {
            draft.set_one(option, Some("cuda".to_owned()));
        } else if name == "target_memory" && draft.has("--memory") {
            draft.set_one(option, Some("host".to_owned()));
        }
    }
    let initiators = draft
        .kept("initiators")
        .and_then(number)
        .unwrap_or(1)
        .clamp(1, 1 << 12);
    let targets = draft
        .kept("targets")
        .and_then(number)
        .unwrap_or(1)
        .clamp(1, 1 << 12);
    let ranks = initiators + targets;
    draft.set_one("--ranks", Some(ranks.to_string()));
    match keep(draft, "scheme").as_deref() {
        Some("manytoone") => draft.set("--traffic fan-in"),
        Some("onetomany") => draft.set("--traffic fan-out"),
        None | Some("pairwise") => {
            if initiators != targets {
                draft.set_one("--initiators", Some(initiators.to_string()));
            }
        }
        Some(_) => {
            draft.remark("--scheme: initiators with several targets are not in this version")
        }
    }
}

fn nixl_file(draft: &mut Draft, backend: &str, sizes: &str, is_read: bool) {
    let iterations = draft.value("--iters").map(str::to_owned);
    let threads = draft.value("--threads").map(str::to_owned);
    let verify = draft.has("--verify");
    draft.command = "file".to_owned();
    draft.options.clear();
    if backend != "POSIX" {
        draft.remark(format!(
            "--backend {backend}: not in this version; this measures POSIX files"
        ));
    }
    let uring = draft
        .kept("api")
        .is_some_and(|api| api.eq_ignore_ascii_case("uring"));
    let directory = draft
        .kept("file")
        .unwrap_or(".")
        .trim_end_matches('/')
        .to_owned();
    draft.set_one("--path", Some(format!("{directory}/tonnage.dat")));
    draft.set("--layout per-process --block 64M");
    draft.set_one("--transfer", Some(sizes.to_owned()));
    draft.set(if uring {
        "--engine uring"
    } else {
        "--engine posix"
    });
    draft.set(if is_read {
        "--phases write,read"
    } else {
        "--phases write"
    });
    if draft.kept("direct").is_some() {
        draft.set("--direct");
    }
    if verify {
        draft.set("--verify");
    }
    if let Some(threads) = threads {
        draft.set_one("--threads", Some(threads));
    }
    if iterations.is_some() {
        draft.remark("--num_iter: every block is transferred once per trial");
    }
}
