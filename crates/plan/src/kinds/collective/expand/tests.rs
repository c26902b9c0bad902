use super::*;
use crate::collective::Groups;
use crate::conflicts::trial::Lines;
use crate::fixture::{Holds, LISTS, Refused, cases};
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
fn options_that_no_backend_uses_are_refused() {
    let call = "op = 'all-reduce'\nsizes = 8\n";
    let torch = format!("{call}backend = 'torch:gloo'\nplace = 'near'");
    expanded(2, &torch).refused("place has no effect on torch's workers");
    let native = format!("{call}backend = 'native:shm'\npython = 'python3'");
    expanded(2, &native).refused("without a torch backend");
    let both =
        "backend = ['torch:gloo', 'native:shm']\nplace = 'near'\npython = 'p'\ntimeout = '5s'";
    assert_eq!(expanded(2, &format!("{call}{both}")).unwrap().len(), 1);
}

#[test]
fn an_empty_list_of_algorithms_is_refused() {
    refused(2, &format!("{TABLE}\nalgorithm = []")).holds("algorithm is empty");
}

#[test]
fn options_that_no_operation_has_are_refused() {
    let native = "backend = 'native:shm'\nalign = 'none'\n";
    let barrier = "has no effect on barrier, which has no bytes to move";
    for (lines, part) in cases([
        "op = 'all-reduce'; sizes = 64; root = 1 => broadcast, reduce, gather, scatter",
        "op = ['all-reduce', 'barrier']; sizes = 64; root = 0 => on all-reduce, barrier, which has no root",
        "op = ['all-gather', 'gather']; sizes = 64; reduce = 'max' => all-reduce, reduce-scatter, reduce",
        "op = 'barrier'; in-place = true => in-place",
        "op = 'barrier'; dtype = 'int8' => dtype",
        "op = 'barrier'; chunk = 64 => chunk",
        "op = 'barrier'; sizes = 64 => leave it out, or add one of op all-reduce",
    ]) {
        let refused = refused(4, &format!("{native}{lines}"));
        refused.holds(part);
        refused.holds(if lines.starts_with("op = 'barrier'") {
            barrier
        } else {
            " has no effect on "
        });
    }
    // An option is accepted if one operation has it. A switch with the value false counts as not given.
    let both = "sizes = 64\nroot = 1\nin-place = true\nreduce = 'max'\ndtype = 'int8'\nchunk = 64";
    let ops = "op = ['all-reduce', 'broadcast', 'barrier']";
    assert_eq!(
        expanded(4, &format!("{native}{ops}\n{both}"))
            .unwrap()
            .len(),
        3
    );
    let unsaid = format!("{native}op = 'barrier'\nin-place = false");
    assert_eq!(expanded(4, &unsaid).unwrap().len(), 1);
}

#[test]
fn values_multiply_and_defaults_are_explicit() {
    let points = expanded(
        4,
        "backend = ['native:shm', 'native:loose']\nop = ['all-reduce', 'all-gather', 'barrier']\nsizes = '16..64'\n\
         dtype = ['float32', 'int8']\nreduce = ['sum', 'max']",
    );
    let points = points.unwrap();
    // Only the all-reduce has reductions. A barrier has neither a type nor a size.
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
fn impossible_values_are_refused_with_the_nearest_choice() {
    for (lines, part) in cases([
        "chunk = 2 => the smallest is chunk 4",
        "algorithm = 'linear' => ring, halving-doubling",
        "align = 'none'; refill = 'iteration' => use refill trial",
        "align = 'none'; each = true => use align barrier, or leave print-calls out",
        "memory = 'far' => use memory host",
        "interval = '1s' => leave them out",
        "timeout = '1ms' => timeout 1s",
    ]) {
        expanded(4, &format!("{TABLE}\n{lines}")).refused(part);
    }
    for (lines, part) in cases([
        "backend = 'nativ:shm'; op = 'all-reduce'; sizes = '1k' => did you mean \"native\"?",
        "backend = 'native'; op = 'all-reduce'; sizes = '1k' => native:shm",
        "backend = 'native:null'; op = 'all-reduce'; sizes = '1k' => moves bytes by write-imm",
        "backend = ['native:shm', 'native:shm']; op = 'all-reduce'; sizes = '1k' => named twice",
        "backend = 'native:shm'; op = 'reduce'; sizes = 64; root = 4 => the last one is root 3",
        "backend = 'native:shm'; op = 'all-gather'; sizes = 8 => the smallest is 16",
        "backend = 'native:shm'; op = 'all-reduce'; sizes = 0 => smallest",
        "backend = 'native:shm'; op = 'all-reduce' => sizes 1M",
        "backend = 'native:shm'; op = 'all-to-all'; sizes = '1k'; in-place = true; algorithm = 'pairwise' => bruck",
    ]) {
        expanded(4, lines).refused(part);
    }
    let pairs = "backend = 'native:shm'\nop = 'send-recv-pairs'\nsizes = 64";
    expanded(3, pairs).refused("--ranks 4");
}

/// Older records have a single `send-recv`, which means pairs. A request for this old name is refused, and the message
/// suggests both new names.
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
    // The ring takes any number of ranks, even one, and has no in-place form.
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

#[test]
fn every_row_of_conflicts_refuses_its_options_and_suggests_valid_ones() {
    let lines = Lines {
        base: "--backend native:shm --op all-reduce --sizes 1k",
        samples: &[
            ("print-calls", "--print-calls"),
            ("align none", "--align none"),
            ("refill iteration", "--refill iteration"),
        ],
        lists: &LISTS,
    };
    lines.try_rows::<CollectiveJob>(&[CONFLICTS]);
}
