use super::*;
use crate::connect::Connect;
use crate::files::FileJob;
use crate::fixture::{Expand, Holds, Refused, cases};
use crate::options::Tables;
use crate::stress::Stress;
use crate::transfer::Transfer;

mod any;

fn message(text: &str) -> String {
    let error = Plan::from_toml(text, "p.toml").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

const HEAD: &str = "name = 'p'\n[[transfer]]\nengine = 'shm'\nop = 'write'\n";

#[test]
fn an_unknown_key_gets_the_nearest_one_and_its_line() {
    let text = format!("{HEAD}siezs = 8\n");
    let message = message(&text);
    message.holds("p.toml:5: unknown key \"siezs\": did you mean \"sizes\"? the keys of a transfer are label, engine");
}

#[test]
fn unknown_keys_are_found_everywhere() {
    message("nmae = 'p'\n").holds("p.toml:1: unknown key \"nmae\": did you mean \"name\"?");
    assert!(message("name = 'p'\n[[transfers]]\n").contains("did you mean \"transfer\"?"));
    assert!(message(&format!("{HEAD}sizes = 8\nping_pong = true")).contains("\"ping-pong\"?"));
    assert!(message(&format!("{HEAD}sizes = 8\nxyzzy = 1")).contains("key \"xyzzy\": the keys of"));
}

#[test]
fn missing_keys_are_named_with_an_example() {
    let without_op = HEAD.replace("op = 'write'", "sizes = 8");
    assert_eq!(
        message(&without_op),
        "p.toml:2: a transfer needs the key \"op\": write op = \"write\""
    );
    // `sizes` is not required with a traffic file.
    let without_sizes = Plan::from_toml(HEAD, "p.toml").unwrap();
    without_sizes
        .transfer_points(2)
        .refused("e.g. sizes 8..1M (or use traffic-file FILE)");
    assert!(message("").contains("a plan needs the key \"name\": write name = \"my-plan\""));
    assert_eq!(
        message("name = 'p'"),
        "p.toml:1: a plan needs experiments: write a [[transfer]], a [[file]], a [[connect]], a [[stress]], a [[tune]] or \
         a [[collective]] table for each"
    );
    assert_eq!(
        message("name = 'p'\n[[file]]\nkeep = true"),
        "p.toml:2: a file experiment needs the key \"path\": write path = \"data/file\""
    );
    assert!(message("name = 'p'\n[file]\n").contains("a table under [[file]]"));
    assert!(message("name = 'p'\nfile = [1]\n").contains("a table under [[file]]"));
    assert!(message("name = 'p'\n[transfer]\n").contains("a table under [[transfer]]"));
    assert!(message("name = 'p'\ntransfer = [1]\n").contains("a table under [[transfer]]"));
}

#[test]
fn wrong_values_name_line_and_reason() {
    for (more, part) in cases([
        "sizes = '0..8' => p.toml:5: the range \"0..8\" never ends",
        "sizes = 8; depth = -1 => p.toml:6: \"-1\" is not a number of bytes",
        "sizes = 8; trial-time = 200 => p.toml:6: \"200\" has no unit: e.g.",
        "sizes = 8; until-ci = 0.02 => p.toml:6: \"0.02\" is not a percentage",
        "sizes = 8; traffic = 'fanout' => did you mean \"fan-out\"?",
        "sizes = 8; latency = 'off' => p.toml:6: invalid type",
        "sizes = 8; bound = 'fast' => use auto, none or a bandwidth",
        "sizes = 8; rate = -5 => \"-5\" is not a rate",
        "sizes = 8; rate = inf => \"inf\" is not a rate",
        "sizes = true => p.toml:5: invalid type",
        "sizes = [] => a sweep needs at least one value",
        "sizes = 8; sizes = 8 => p.toml:6: duplicate key",
        "sizes =  => p.toml:5: ",
        "sizes = 8; published = 'x' => p.toml:6: invalid type: string \"x\", expected published as { what, columns, rows } or a list",
        "sizes = 8; published = [[]] => expected published as { what, columns, rows } or a list",
        "sizes = 8; published = { what = 'x' } => p.toml:6: missing field `columns`",
    ]) {
        let message = message(&format!("{HEAD}{more}"));
        assert!(message.contains(part), "{more}: {message}");
    }
    message(&format!("ranks = 5000000000\n{HEAD}sizes = 8")).holds("p.toml:1: 5000000000 is far");
    for path in ["5", "['a', 5]", "{ a = 'b' }"] {
        let message = message(&format!("name = 'p'\n[[file]]\npath = {path}"));
        message.holds("expected path as a text or a list of texts");
    }
}

#[test]
fn numbers_lists_and_texts_are_the_same() {
    let parse = |sizes: &str| {
        let text = format!("{HEAD}sizes = {sizes}");
        match Plan::from_toml(&text, "p").unwrap().experiments.remove(0) {
            Experiment::Transfer(transfer) => transfer.what.sizes.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(parse("4096").values(), [4096]);
    assert_eq!(parse("'4k'").values(), [4096]);
    assert_eq!(parse("[64, '4k']").values(), [64, 4096]);
    assert_eq!(parse("'64,4k'").values(), [64, 4096]);
}

#[test]
fn a_plan_is_printed_as_a_user_would_write_it() {
    let text = "name = \"p\"\nranks = 2\n\n[[transfer]]\nengine = \"shm\"\nop = [\"write\", \"read\"]\n\
                sizes = \"8..1M\"\nbatch = 128\ntrial-time = \"100ms\"\n";
    assert_eq!(Plan::from_toml(text, "p").unwrap().to_toml().unwrap(), text);
}

#[test]
fn experiments_stay_in_the_order_of_the_file() {
    let text = "name = \"p\"\n\n[[file]]\npath = \"f\"\n\n[[transfer]]\nengine = \"shm\"\nop = \"write\"\n\
                sizes = 8\n\n[[file]]\npath = \"g\"\n";
    let plan = Plan::from_toml(text, "p").unwrap();
    let kinds = |plan: &Plan| {
        plan.experiments
            .iter()
            .map(Experiment::kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&plan), ["file", "transfer", "file"]);
    assert_eq!(plan.to_toml().unwrap(), text);
    let inline = "name = 'p'\nfile = [{ path = 'f' }]\ntransfer = [{ engine = 'shm', op = 'write', sizes = 8 }]\n";
    let plan = Plan::from_toml(inline, "p").unwrap();
    assert_eq!(kinds(&plan), ["file", "transfer"]);
}

#[test]
fn different_plans_have_different_hash_texts() {
    let plan = Plan::from_toml(&format!("{HEAD}sizes = 8"), "p").unwrap();
    let other = Plan::from_toml(&format!("{HEAD}sizes = 9"), "p").unwrap();
    assert_eq!(plan.hash_text().unwrap(), plan.clone().hash_text().unwrap());
    assert_ne!(plan.hash_text().unwrap(), other.hash_text().unwrap());
    assert!(plan.hash_text().unwrap().starts_with("tonnage 0."));
}

#[test]
fn files_that_are_not_plans_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.toml");
    let message = Plan::load(&absent).unwrap_err().to_string();
    assert!(
        message.contains("cannot be read") && message.contains("`tonnage plans`"),
        "{message}"
    );
    Plan::load(folder.path()).refused("not a file");
    let long = folder.path().join("long.toml");
    std::fs::write(&long, vec![b'#'; (PLAN_BYTES_MAX + 1) as usize]).unwrap();
    Plan::load(&long).refused("at most 1 MiB");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    assert_eq!(Plan::load(&binary).unwrap_err().exit_code(), 2);
}

#[test]
fn a_short_text_cannot_take_much_memory_or_stack() {
    let transfer = "[[transfer]]\nengine='a'\nop='read'\nsizes='1..4096+1'\n";
    let text = format!("name='p'\n{}", transfer.repeat(EXPERIMENTS_MAX + 1));
    assert!(message(&text).starts_with("p.toml:4002: a plan has at most 1000 transfers"));
    for nested in ["[", "{a=", "[[", "a."] {
        let text = format!("{HEAD}sizes = {}", nested.repeat(100_000));
        assert!(message(&text).starts_with("p.toml:5: "));
        assert!(message(&nested.repeat(100_000)).starts_with("p.toml:1: "));
    }
}

/// The name of the field that declares an option must be its key in plans and its long name. Exceptions are lists that
/// are repeated on the command line, and keys that exist only in plans.
#[test]
fn keys_are_the_long_names_of_options() {
    fn both<T: Tables + clap::Args>() -> (Vec<&'static str>, Vec<String>) {
        let command = T::augment_args(clap::Command::new("kind"));
        let names = command.get_arguments().flat_map(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            let names = arg.get_long().into_iter().chain(aliases);
            names.map(str::to_owned).collect::<Vec<_>>()
        });
        let mut names: Vec<_> = names.collect();
        let mut keys = T::keys();
        keys.sort_unstable();
        names.sort_unstable();
        (keys, names)
    }
    fn required<T: Tables + clap::Args>() -> Vec<String> {
        let command = T::augment_args(clap::Command::new("kind"));
        let required = command.get_arguments().filter(|arg| arg.is_required_set());
        required
            .filter_map(|arg| arg.get_long().map(str::to_owned))
            .collect()
    }
    fn check<T: Tables + clap::Args>() {
        let (keys, names) = both::<T>();
        let long = keys
            .iter()
            .filter(|key| **key != "published")
            .map(|key| match *key {
                "engine-options" => "engine-option",
                "memory-options" => "memory-option",
                "hints" => "hint",
                key => key,
            });
        assert_eq!(long.collect::<Vec<_>>(), names);
        assert_eq!(
            T::NEEDS.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
            required::<T>()
        );
    }
    check::<Transfer>();
    check::<FileJob>();
    check::<Connect>();
    check::<Stress>();
    check::<crate::tune::Tune>();
    check::<crate::collective::CollectiveJob>();
    assert_eq!(
        tonnage_units::names::nearest("engines", &Transfer::keys()),
        Some("engine")
    );
}

/// Help must show the same defaults that expansion uses.
#[test]
fn help_has_defaults_and_names() {
    let mut command = <Transfer as clap::Args>::augment_args(clap::Command::new("transfer"));
    let help = command.render_long_help().to_string();
    for part in [
        "a value or a sweep. [default: 64]",
        "[default: 200ms]",
        "[default: 1m]",
        "Traffic pattern between ranks. [default: pair]",
        "- fan-in:",
        "Every other rank to rank 0 at once",
        "- write-imm:",
        "[default: auto]",
    ] {
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(part), "{part}: {help}");
    }
    assert_eq!(help.matches("[default: pair]").count(), 1);
    let mut command = <FileJob as clap::Args>::augment_args(clap::Command::new("file"));
    let help = command.render_help().to_string();
    for part in [
        "[default: 1M]",
        "[default: 256k]",
        "[default: posix]",
        "[possible values: end, each, none]",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
