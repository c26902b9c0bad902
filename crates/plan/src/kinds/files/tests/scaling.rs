//! Jobs with fewer bytes, with fewer ranks, or with moved files.

use super::*;
use crate::fixture::{Holds, Refused};

fn scaled(lines: &str, factor: f64, ranks: u32) -> FilePoint {
    let mut plan = plan(lines);
    plan.ranks = Some(8);
    plan.scale(factor, ranks).unwrap();
    plan.fit_ranks(ranks);
    plan.file_points(ranks).unwrap().remove(0)
}

#[test]
fn scaling_divides_the_planned_bytes_among_the_ranks_of_the_run() {
    let sizes = |lines: &str, factor, ranks| {
        let point = scaled(lines, factor, ranks);
        (point.segments, point.block_bytes)
    };
    let many = "segments = 100\nblock = '4M'\ntransfer = '4M'";
    let mega = 1 << 20;
    assert_eq!(sizes(many, 1.0, 8), (100, 4 * mega));
    assert_eq!(sizes(many, 0.5, 8), (50, 4 * mega));
    assert_eq!(sizes(many, 0.5, 2), (200, 4 * mega));
    assert_eq!(sizes(many, 0.001, 8), (1, 4 * mega));
    let one = "block = '8G'\ntransfer = '512k'";
    assert_eq!(sizes(one, 0.001, 8), (1, 16 * mega / 2));
    assert_eq!(sizes(one, 0.00001, 8), (1, 512 << 10));
    assert_eq!(sizes(one, 1e-9, 8), (1, 512 << 10));
    assert_eq!(sizes(one, 10.0, 8), (10, 8 << 30));
    // Enough transfers remain for a shuffled order, for the threads and for a wear-out.
    assert_eq!(
        scaled(&format!("{one}\norder = 'shuffled'"), 1e-5, 8).transfers_of_rank(),
        2
    );
    assert_eq!(scaled(&format!("{many}\nthreads = 3"), 1e-5, 8).segments, 3);
    let bound = "\nstonewall = '1s'\nwear-out = true\nwear-out-transfers = 100";
    let point = scaled(&format!("{many}{bound}"), 0.106, 8);
    let stonewall = point.stonewall.unwrap();
    assert_eq!(
        (stonewall.after_ns, stonewall.transfers_min),
        (1_000_000_000, 10)
    );
    // Sizes that do not fit each other stay as they are, so that the mistake is found.
    let mut wrong = plan("block = '10M'\ntransfer = '4M'");
    wrong.scale(0.1, 2).unwrap();
    assert_eq!(wrong, plan("block = '10M'\ntransfer = '4M'"));
}

#[test]
fn scaled_blocks_stay_multiples_of_every_transfer_and_differ() {
    let mut plan = plan("block = '96k,192k,960k'\ntransfer = '32k,48k'");
    plan.scale(0.2, 2).unwrap();
    let blocks = jobs(&plan)[0].work.block.clone().unwrap();
    assert_eq!(blocks.values(), [96 << 10, 192 << 10]);
    assert_eq!(plan.file_points(2).unwrap().len(), 4);
}

#[test]
fn fewer_ranks_than_planned_read_from_the_farthest() {
    let from = |lines: &str, ranks| scaled(lines, 1.0, ranks).read_from;
    assert_eq!(from("read-shift = 4", 8), ReadFrom::Shift { ranks: 4 });
    assert_eq!(from("read-shift = 4", 3), ReadFrom::Shift { ranks: 2 });
    assert_eq!(from("read-shift = 4", 1), ReadFrom::Own);
    assert_eq!(from("read-shuffled = 4", 1), ReadFrom::Own);
    assert_eq!(from("read-shift = 'node'", 1), ReadFrom::Own);
    let mut plan = plan("read-shift = 'nodes=2'");
    assert!(plan.counts_nodes());
    plan.resolve_nodes(&["a", "a", "b", "b", "c", "c"]).unwrap();
    let points = plan.file_points(6).unwrap();
    assert_eq!(points[0].read_from, ReadFrom::Shift { ranks: 4 });
    let mut round = self::plan("read-shift = 'nodes=2'");
    let message = round.resolve_nodes(&["a", "a", "b", "b"]).unwrap_err();
    message.to_string().holds("use read-shift node");
    // A command line has no planned ranks, so its read shift is not reduced.
    let mut plan = self::plan("read-shift = 4");
    plan.fit_ranks(2);
    assert!(plan.file_points(2).is_err());
}

#[test]
fn files_move_into_a_directory_or_behind_a_prefix() {
    let moved = |place: &str| {
        let text = "name = 'test'\n[[file]]\npath = 'x/a'\n[[file]]\npath = 'x/a'\nkeep = true\n[[file]]\npath = 'b'";
        let mut plan = Plan::from_toml(text, "test.toml").unwrap();
        plan.move_files(place)?;
        Ok::<_, tonnage_units::Error>(
            jobs(&plan)
                .iter()
                .map(|job| job.files.path[0].clone())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(moved("cori").unwrap(), ["cori-a", "cori-a", "cori-b"]);
    assert_eq!(
        moved("d/cori").unwrap(),
        ["d/cori-a", "d/cori-a", "d/cori-b"]
    );
    assert_eq!(
        moved("absent/").unwrap(),
        ["absent/a", "absent/a", "absent/b"]
    );
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().to_str().unwrap();
    assert_eq!(moved(there).unwrap()[0], format!("{there}/a"));
    moved("").refused("the place of files");
    let text = "name = 'test'\n[[file]]\npath = 'x/a'\n[[file]]\npath = 'y/a'";
    let mut plan = Plan::from_toml(text, "test.toml").unwrap();
    plan.move_files("p")
        .refused("would make p-a of x/a and of y/a");
    let mut none = Plan::default();
    none.move_files("p").refused("has no effect");
}
