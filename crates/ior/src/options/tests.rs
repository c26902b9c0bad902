use proptest::prelude::*;

use super::check::check;
use super::others::{ALWAYS, DIRECTIVES};
use super::value::parse_size;
use super::words::{
    OptionNames, OwnOption, ParsedLine, honoured, read, refused as rows_refused, takes_value,
};
use super::*;

fn own() -> Vec<OwnOption> {
    [("ranks", true), ("print-plan", false)]
        .map(|(name, value)| OwnOption {
            name: name.to_owned(),
            value,
        })
        .to_vec()
}

fn divide(line: &str) -> tonnage_units::Result<ParsedLine> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    read(&words, &own())
}

fn options(line: &str) -> IorOptions {
    let options = divide(line).unwrap().ior;
    check(&options).unwrap();
    options
}

fn refused(line: &str) -> String {
    let error = divide(line).and_then(|divided| check(&divided.ior));
    let error = error.expect_err(line);
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn defaults_are_those_of_ior() {
    let none = options("");
    assert_eq!(
        (none.block_bytes, none.transfer_bytes),
        (1 << 20, 256 << 10)
    );
    assert_eq!(none.segments, 1);
    assert_eq!((none.api, none.path.as_str()), (Api::Posix, "testFile"));
    assert!(none.writes() && none.reads());
    assert_eq!(none.nodes_behind(), 1);
}

#[test]
fn phases_follow_the_options() {
    for (line, write, read) in [
        ("-w", true, false),
        ("-r", false, true),
        ("-wr", true, true),
        ("-R", false, true),
        ("-w -W", true, false),
        ("-w=0 -r=0", true, true),
    ] {
        let options = options(line);
        assert_eq!((options.writes(), options.reads()), (write, read), "{line}");
    }
}

/// Command lines from a report on the Cori supercomputer, and common variants of them.
#[test]
fn command_lines_of_reports_are_read() {
    let posix = options("-w -a POSIX -F -C -e -g -k -b 4m -t 4m -s 1638 -o /scratch/IOR_file -v");
    assert_eq!(posix.segments, 1638);
    assert_eq!(
        (posix.block_bytes, posix.transfer_bytes),
        (4 << 20, 4 << 20)
    );
    assert!(posix.file_per_process && posix.reorder && posix.fsync);
    assert!(posix.barriers && posix.keep && !posix.reads());
    let grouped = options("-wFCegkv -aPOSIX -b4M -t=4m -s1638 -o/scratch/IOR_file");
    assert_eq!(grouped, posix);
    let directives = "-O writeFile=1,fileperproc=1 -O reorderTasks=1,fsync=1,intraTestBarriers=1,keepFile=1 \
                      -O api=posix,blockSize=4m,transfersize=4m,segmentCount=1638,verbose=1 -O testFile=/scratch/IOR_file";
    assert_eq!(options(directives), posix);
    let mpiio = options("-w -a MPIIO -c -C -g -b 8m -t 8m -k -H -v -s 51 -o f");
    assert!(mpiio.collective && mpiio.show_hints);
    assert_eq!(mpiio.api, Api::Mpiio);
    options("-a MPIIO -g -t 512k -b 8g -o f -v");
    let iops = options("-a POSIX -F -e -g -t 4k -b 1g -o f -v -z");
    assert!(iops.shuffled > 0 && iops.writes() && iops.reads());
}

/// IOR 4 also reads the flag `-m` in `-b1m` and the flag `-k` in `-t64k`. This parser must not.
#[test]
fn an_attached_value_is_only_a_value() {
    let attached = options("-b1m -t64k -okeep");
    assert!(!attached.file_per_repetition && !attached.keep);
    assert_eq!(attached.path, "keep");
}

#[test]
fn long_options_take_values_either_way() {
    assert!(options("--posix.odirect").direct);
    assert!(options("--posix.odirect=1").direct);
    assert!(!options("-B --posix.odirect=0").direct);
    assert!(options("-O useO_DIRECT=1").direct);
    assert!(options("-O --posix.odirect=1").direct);
    let prefill = options("-z --randomPrefill=512k --random-offset-seed 7");
    assert_eq!(
        (prefill.prefill_bytes, prefill.shuffle_seed),
        (512 << 10, Some(7))
    );
    let stripes = options("--posix.lustre.stripecount=4 --posix.lustre.stripesize 8m");
    assert_eq!(
        (stripes.stripe_count, stripes.stripe_bytes),
        (Some(Stripes::Targets(4)), Some(8 << 20))
    );
    assert!(options("-a mpiio --mpiio.useFileView --mpiio.showHints -U h").file_view);
    assert_eq!(
        options("-O summaryFormat=JSON,summaryFile=s.json").summary_format,
        SummaryFormat::Json
    );
    assert_eq!(
        options("--posix.lustre.stripecount=-1").stripe_count,
        Some(Stripes::All)
    );
    assert!(options("--dryRun").dry_run);
}

#[test]
fn options_of_tonnage_may_stand_anywhere() {
    let divided = divide("--ranks 2 -w --print-plan -o --ranks --ranks=3 -v").unwrap();
    assert_eq!(
        divided.own,
        ["--ranks=2", "--print-plan", "--ranks=3"].map(str::to_owned)
    );
    assert_eq!(divided.ior.path, "--ranks");
    assert!(divide("-w -h").unwrap().help);
    assert!(divide("-w --help").unwrap().help);
    assert!(refused("--rank 2").contains("did you mean --ranks?"));
    assert!(refused("--ranks").contains("--ranks needs a value"));
}

#[test]
fn sizes_are_powers_of_two() {
    for (text, value) in [
        ("8", 8),
        ("4k", 4096),
        ("4K", 4096),
        ("2m", 2 << 20),
        ("1G", 1 << 30),
        ("1t", 1 << 40),
        ("4kb", 4096),
        ("4MiB", 4 << 20),
        ("7B", 7),
    ] {
        assert_eq!(parse_size(text).unwrap(), value, "{text}");
    }
    let wrong = ["", "m", "-4", "4x", "4mm", "4ib", "0x10", "1.5m", " 4"];
    for text in [&wrong[..], &["99999999999999999999", "17000p"]].concat() {
        assert!(parse_size(text).is_err(), "{text}");
        if text.is_empty() {
            continue;
        }
        let words = ["-b".to_owned(), text.to_owned()];
        let message = read(&words, &[]).unwrap_err().to_string();
        assert!(
            message.starts_with("-b ") && message.contains("e.g. 8, 4k or 2m"),
            "{message}"
        );
    }
}

/// Refused command line => the fault in its message => the suggested next step.
const REFUSALS: [&str; 51] = [
    "-b 4m -t 3m => -b 4194304 is not a multiple of -t 3145728 => e.g. `-b 3145728`",
    "-b 1m -t 4m => -b 1048576 is not a multiple of -t 4194304 => e.g. `-b 4194304`",
    "-z -b 4k -t 4k => -z shuffles => a larger -b or a smaller -t",
    "-zz => -z twice => use a single -z",
    "-u => -u makes a directory => add -F or leave -u out",
    "-F -u -o a@b => several paths => name one",
    "-o a@b => 2 paths for one shared file => add -F",
    "-F -o a@ => has an empty name => `-o a@b`",
    "-c => no effect on -a POSIX => -a MPIIO",
    "-H => no effect on -a POSIX => -a MPIIO",
    "-a MPIIO -H -O summaryFormat=CSV => -H prints nothing => summaryFormat=JSON",
    "-a MPIIO --posix.odirect => applies only to -a POSIX and -a URING => leave it out",
    "-a MPIIO -c -z => -z cannot be combined with -c => leave one of them out",
    "-C -Z => -C and -Z both => use one of them",
    "-Q 2 => -Q is the distance of -C => add -C",
    "-C -Q 0 => reads a task's own data => use -Q 1",
    "-X 3 => -X seeds -Z => add -Z",
    "-r -E => -E writes into existing files => add -w",
    "-W => -W checks the data that -w wrote => -r -R",
    "-r -Y => -Y syncs after each write => add -w",
    "-i 0 => -i 0 measures nothing => use `-i 1` or more",
    "-O stoneWallingWearOut=1 => after a stonewall => add -D SECONDS",
    "-O stoneWallingWearOutIterations=4 => needs stoneWallingWearOut=1 => stoneWallingStatusFile=FILE",
    "-O stoneWallingStatusFile=f => for a later run that reads it => add -k",
    "-w -k -O stoneWallingStatusFile=f => stores where writing => -D SECONDS",
    "-a HDF5 => not supported by tonnage => -a MPIIO",
    "-a AIO => not supported by tonnage => -a URING",
    "-M 2g => not supported by tonnage => --posix.odirect",
    "-M2g => not supported by tonnage => --posix.odirect",
    "-O memoryPerTask=1g => not supported by tonnage => --posix.odirect",
    "-f script => not supported by tonnage => tonnage run PLAN",
    "-A 7 => not supported by tonnage => --output",
    "-O refNum=7 => not supported by tonnage => --output",
    "-w -K => not supported by tonnage => use -k",
    "-S => not supported by tonnage => use -V",
    "-O minTimeDuration=5 => not supported by tonnage => -D SECONDS",
    "--gpuDirect => not supported by tonnage => host memory",
    "-l x => not a kind of data => timestamp",
    "-O summaryFormat=xml => not a format => JSON or CSV",
    "-O summaryFormt=JSON => -O summaryFormt is not an option => -O summaryFormat?",
    "-O nothing => is not a directive => KEY=VALUE",
    "-O O=1 => is not an option => --help",
    "-F=2x => neither on nor off => use 1 or 0",
    "-b => -b needs a value => --help",
    "-b= => -b needs a value => --help",
    "-r -z-k => \"-z-k\" is not an option => -z -k",
    "-wL => -L in \"-wL\" is not an option => --help",
    "file => \"file\" is not an option => follows -o",
    "- => \"-\" is not an option => begin with -",
    "--mpiio.useFileVew => is not an option => did you mean --mpiio.useFileView?",
    "-q=0 => wrong data ends the run in any case => leave it out",
];

#[test]
fn errors_come_with_the_next_thing_to_try() {
    for case in REFUSALS {
        let mut parts = case.split(" => ");
        let message = refused(parts.next().unwrap());
        parts.for_each(|part| assert!(message.contains(part), "{case}: {message}"));
    }
}

/// If two rows had the same name, one of them would be unreachable.
#[test]
fn every_name_has_one_row() {
    let all: Vec<_> = honoured().into_iter().chain(rows_refused()).collect();
    let mut names = Vec::new();
    for arg in &all {
        let of = OptionNames::new(arg);
        let count = names.len();
        names.extend(of.short.map(String::from));
        names.extend(of.long.iter().map(|name| format!("--{name}")));
        names.extend(
            of.keys
                .iter()
                .map(|key| format!("-O {}", key.to_lowercase())),
        );
        assert!(names.len() > count, "{arg:?}");
        let named = arg.get_value_names().is_some_and(|names| !names.is_empty());
        assert!(named || !takes_value(arg), "{arg:?}");
        assert!(arg.get_help().is_some(), "{arg:?}");
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Returns every spelling of an option with this value: separate, attached, with an equals sign, and through `-O`.
fn ways(arg: &clap::Arg, value: &str) -> Vec<Vec<String>> {
    let mut ways = Vec::new();
    let names = OptionNames::new(arg);
    if let Some(short) = names.short {
        ways.push(vec![format!("-{short}={value}")]);
        if takes_value(arg) {
            ways.push(vec![format!("-{short}{value}")]);
            ways.push(vec![format!("-{short}"), value.to_owned()]);
        }
    }
    for long in names.long {
        ways.push(vec![format!("--{long}={value}")]);
        if takes_value(arg) {
            ways.push(vec![format!("--{long}"), value.to_owned()]);
        }
    }
    for key in names.keys {
        ways.push(vec![
            "-O".to_owned(),
            format!("{}={value}", key.to_uppercase()),
        ]);
    }
    ways
}

proptest! {
    #[test]
    fn all_ways_of_writing_an_option_are_the_same(at in 0usize..1000, number in 1u64..5000) {
        let args = honoured();
        let arg = &args[at % args.len()];
        let id = arg.get_id().as_str();
        let value = match id {
            _ if id == DIRECTIVES.0 => format!("segmentCount={number}"),
            "api" => "URING".to_owned(),
            "data" => "random".to_owned(),
            "summary_format" => "csv".to_owned(),
            _ => number.to_string(),
        };
        let mut seen = ways(arg, &value).into_iter().map(|words| read(&words, &[]).unwrap());
        let first = seen.next().unwrap();
        let always = ALWAYS.iter().any(|row| row.0 == id);
        prop_assert!(always || first != divide("").unwrap());
        for other in seen {
            prop_assert_eq!(&other, &first);
        }
    }

    #[test]
    fn flags_in_any_group_and_order_are_the_same(flags in prop::collection::vec("[wrWREkFgevCcmY]", 1..12), cut in 0usize..12) {
        let apart: Vec<String> = flags.iter().map(|flag| format!("-{flag}")).collect();
        let cut = cut.min(flags.len());
        let grouped = [&flags[..cut], &flags[cut..]].map(|part| format!("-{}", part.concat()));
        let grouped: Vec<String> = grouped.into_iter().filter(|word| word.len() > 1).collect();
        prop_assert_eq!(read(&apart, &[]).unwrap(), read(&grouped, &[]).unwrap());
    }

    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec("(-{0,2}[a-zA-Z]{0,3}=?|-O )?[-=,@0-9kmgtp.\\PC]{0,12}", 0..8)) {
        if let Ok(divided) = read(&words, &own()) {
            let _ = check(&divided.ior);
        }
    }
}
