use super::*;
use crate::collective::Groups;
use crate::fixture::{Holds, LISTS};
use crate::{Plan, Point};

const TABLE: &str = "backend = 'native:shm'\nop = 'all-reduce'\nsizes = '1k'";

fn expanded(ranks: u32, lines: &str) -> Result<Vec<CollectivePoint>> {
    let text = format!("name = 'collective'\n[[collective]]\n{lines}");
    let points = Plan::from_toml(&text, "c.toml")?.points(ranks, &LISTS)?;
    let point = |planned: crate::Planned| match planned.point {
        Point::Collective(point) => point,
        other => panic!("{other:?}"),
    };
    Ok(points.into_iter().map(point).collect())
}

fn refused(ranks: u32, lines: &str) -> String {
    let error = expanded(ranks, lines).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn options_that_no_backend_looks_at_are_refused() {
    let line = |backend: &str, more: &str| {
        format!("backend = {backend}\nop = 'all-reduce'\nsizes = 8\n{more}")
    };
    let torch = refused(2, &line("'torch:gloo'", "place = 'near'"));
    torch.holds("place has no effect on torch's workers");
    let native = refused(2, &line("'native:shm'", "python = 'python3'"));
    assert!(native.contains("without a torch backend"), "{native}");
    let both = line(
        "['torch:gloo', 'native:shm']",
        "place = 'near'\npython = 'p'\ntimeout = '5s'",
    );
    assert_eq!(expanded(2, &both).unwrap().len(), 1);
}

#[test]
fn options_that_no_operation_has_are_refused() {
    let line =
        |op: &str, more: &str| format!("backend = 'native:shm'\nop = {op}\nalign = 'none'\n{more}");
    for (op, option, advice) in [
        (
            "'all-reduce'",
            "root = 1",
            "broadcast, reduce, gather, scatter",
        ),
        (
            "['all-reduce', 'barrier']",
            "root = 0",
            "on all-reduce, barrier, which has no root",
        ),
        (
            "['all-gather', 'gather']",
            "reduce = 'max'",
            "all-reduce, reduce-scatter, reduce",
        ),
        (
            "'barrier'",
            "in-place = true",
            "barrier, which has no bytes that it moves",
        ),
        (
            "'barrier'",
            "dtype = 'int8'",
            "barrier, which has no bytes that it moves",
        ),
        (
            "'barrier'",
            "chunk = 64",
            "barrier, which has no bytes that it moves",
        ),
        (
            "'barrier'",
            "sizes = 64",
            "leave it out, or add one of op all-reduce",
        ),
    ] {
        let sizes = if op == "'barrier'" {
            ""
        } else {
            "sizes = 64\n"
        };
        let said = refused(4, &line(op, &format!("{sizes}{option}")));
        let name = option.split(' ').next().unwrap();
        said.holds(&format!("{name} has no effect on "));
        assert!(said.contains(advice), "{said}");
    }
    // One operation that has it is enough, and what nobody gave is no option.
    let both = "sizes = 64\nroot = 1\nin-place = true\nreduce = 'max'\ndtype = 'int8'\nchunk = 64";
    let ops = "['all-reduce', 'broadcast', 'barrier']";
    assert_eq!(expanded(4, &line(ops, both)).unwrap().len(), 3);
    assert_eq!(
        expanded(4, &line("'barrier'", "in-place = false"))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn values_multiply_and_defaults_are_explicit() {
    let points = expanded(
        4,
        "backend = ['native:shm', 'native:loose']\nop = ['all-reduce', 'all-gather', 'barrier']\nsizes = '16..64'\n\
         dtype = ['float32', 'int8']\nreduce = ['sum', 'max']",
    );
    let points = points.unwrap();
    // Reductions are of the all-reduce alone, and a barrier has neither type nor size.
    assert_eq!(points.len(), 2 * 2 * 3 + 2 * 3 + 1);
    let first = &points[0];
    assert_eq!((first.size_bytes, first.block_elements), (16, 4));
    assert_eq!(
        (first.align, first.refill),
        (Align::Barrier, Refill::Iteration)
    );
    assert_eq!(first.reduction, Some(Reduction::Sum));
    let barrier = points.last().unwrap();
    assert_eq!((barrier.size_bytes, barrier.reduction), (0, None));
    assert_eq!(first.backends.len(), 2);
}

#[test]
fn totals_are_divided_among_the_ranks() {
    let of = |op: &str, size: u64| {
        let lines = format!("backend = 'native:shm'\nop = '{op}'\nsizes = {size}");
        expanded(3, &lines).unwrap()[0].block_elements
    };
    assert_eq!((of("all-reduce", 103), of("all-gather", 103)), (25, 8));
    assert_eq!((of("scatter", 12), of("broadcast", 12)), (1, 3));
}

#[test]
fn what_cannot_be_is_refused_with_the_nearest_choice() {
    let with = |line: &str| refused(4, &format!("{TABLE}\n{line}"));
    assert!(with("chunk = 2").contains("the smallest is chunk 4"));
    assert!(with("algorithm = 'linear'").contains("ring, halving-doubling"));
    assert!(with("align = 'none'\nrefill = 'iteration'").contains("use refill trial"));
    assert!(with("memory = 'far'").contains("use memory host"));
    assert!(with("interval = '1s'").contains("leave them out"));
    assert!(with("timeout = '1ms'").contains("timeout 1s"));
    let backend = |name: &str| {
        refused(
            4,
            &format!("backend = {name}\nop = 'all-reduce'\nsizes = '1k'"),
        )
    };
    assert!(backend("'nativ:shm'").contains("did you mean \"native\"?"));
    assert!(backend("'native'").contains("native:shm"));
    assert!(backend("'native:null'").contains("moves bytes by write-imm"));
    assert!(backend("['native:shm', 'native:shm']").contains("named twice"));
    let op = |op: &str, size: &str, ranks: u32| {
        refused(
            ranks,
            &format!("backend = 'native:shm'\nop = '{op}'\nsizes = {size}"),
        )
    };
    assert!(op("send-recv-pairs", "64", 3).contains("--ranks 4"));
    assert!(op("reduce", "64\nroot = 4", 4).contains("the last one is root 3"));
    assert!(op("all-gather", "8", 4).contains("the smallest is 16"));
    assert!(op("all-reduce", "0", 4).contains("smallest"));
    assert!(refused(4, "backend = 'native:shm'\nop = 'all-reduce'").contains("sizes 1M"));
    let in_place = "backend = 'native:shm'\nop = 'all-to-all'\nsizes = '1k'\nin-place = true\nalgorithm = 'pairwise'";
    assert!(refused(4, in_place).contains("bruck"));
}

/// Records from before the ring have one send-recv, in pairs; whoever asks for it is told of both.
#[test]
fn the_old_send_recv_is_read_as_pairs_and_refused_as_a_request() {
    let lines = |op: &str| format!("backend = 'native:shm'\nop = '{op}'\nsizes = 64");
    let pairs = expanded(4, &lines("send-recv-pairs")).unwrap().remove(0);
    let recorded = serde_json::to_string(&Point::from(pairs.clone())).unwrap();
    let old = recorded.replace("send-recv-pairs", "send-recv");
    assert_ne!(old, recorded);
    let read: Point = serde_json::from_str(&old).unwrap();
    assert_eq!(read, Point::from(pairs));
    let unknown = recorded.replace("send-recv-pairs", "send");
    assert!(serde_json::from_str::<Point>(&unknown).is_err());
    let asked = refused(4, &lines("send-recv"));
    for name in ["\"send-recv-pairs\"", "\"send-recv-ring\""] {
        assert!(asked.contains(name), "{asked}");
    }
    // The ring takes any number of ranks, one among them, and has no form in place.
    for ranks in [1, 3] {
        let ring = expanded(ranks, &lines("send-recv-ring")).unwrap();
        assert_eq!(ring[0].block_elements, 16);
    }
    let in_place = refused(3, &format!("{}\nin-place = true", lines("send-recv-ring")));
    assert!(in_place.contains("send-recv-pairs"), "{in_place}");
}

#[test]
fn groups_divide_ranks_sizes_and_roots() {
    let of = |ranks: u32, op: &str, lines: &str| {
        format!("backend = 'native:shm'\nop = '{op}'\nsizes = 24\n{lines}\n# {ranks}")
    };
    let point = |ranks, op, lines: &str| expanded(ranks, &of(ranks, op, lines)).unwrap()[0].clone();
    let all = point(6, "all-gather", "");
    assert_eq!((all.groups, all.block_elements), (Groups::All, 1));
    for groups in ["div:2", "mod:3"] {
        let line = format!("groups = '{groups}'");
        let point = point(6, "all-gather", &line);
        assert_eq!((point.shape().ranks, point.block_elements), (2, 3));
        assert_eq!(point.grouping().count(), 3);
    }
    let refused = |op: &str, lines: &str| refused(6, &of(6, op, lines));
    assert!(refused("broadcast", "groups = 'div:2'\nroot = 2").contains("root 1"));
    assert!(refused("all-reduce", "groups = 'mod:4'").contains("use groups mod:3"));
    assert!(refused("all-reduce", "groups = 'half'").contains("div:K"));
    assert!(refused("send-recv-pairs", "groups = 'div:3'").contains("groups of an even number"));
}
