//! File experiments of ranks on several hosts, which are network namespaces of this machine.

use std::fs;
use std::path::Path;

use super::files::on_disk;
use super::hosts::{all_good, end, hosts, start};
use super::support::{Started, file_records, tonnage_by};
use tonnage_record::files::CacheState;
use tonnage_testbed::Hosts;

const MIB: u64 = 1 << 20;

/// Writes and reads a shared file of 16 MiB with a rank in each host.
const SHARED: &str =
    "file -o r.jsonl --path t --block 512k --transfer 64k --segments 8 --limit none";

fn cache_of_read(dir: &Path) -> CacheState {
    let record = file_records::only(&dir.join("r.jsonl"));
    file_records::trial(&record, 1).cache.clone().unwrap()
}

#[test]
fn hosts_of_one_machine_count_its_page_cache_once() {
    let Some(hosts) = hosts(4, None) else { return };
    let dir = on_disk();
    all_good(&end(start(&hosts, 1, dir.path(), SHARED, |rank| rank)));
    let cache = cache_of_read(dir.path());
    assert_eq!(cache.bytes, 16 * MIB, "{cache:?}");
    assert_eq!(cache.resident_bytes, 16 * MIB, "{cache:?}");
}

/// Starts a rank that takes its host for a machine of its own, by a boot identifier of its own.
fn rank_of_another_machine(hosts: &Hosts, rank: usize, dir: &Path, arguments: &str) -> Started {
    let boot_id = dir.join(format!("boot-{rank}"));
    fs::write(
        &boot_id,
        format!("00000000-0000-4000-8000-00000000000{rank}\n"),
    )
    .unwrap();
    let mut command = hosts.command(rank, "unshare");
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$@\"",
        boot_id.display()
    );
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    tonnage_by(command, dir, arguments)
        .on_hosts(hosts, rank, hosts.count())
        .start()
}

#[test]
fn machines_count_what_their_own_ranks_read() {
    let Some(hosts) = hosts(4, None) else { return };
    let dir = on_disk();
    for order in ["sequential", "shuffled"] {
        let arguments = format!("{SHARED} --order {order}");
        let ranks =
            (0..4).map(|rank| rank_of_another_machine(&hosts, rank, dir.path(), &arguments));
        all_good(&end(ranks.collect()));
        let cache = cache_of_read(dir.path());
        assert_eq!(cache.bytes, 16 * MIB, "{order}: {cache:?}");
        assert_eq!(cache.resident_bytes, 16 * MIB, "{order}: {cache:?}");
    }
}
