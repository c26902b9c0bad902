//! Files that are damaged between a writing job and a reading job. Every damage must be found and named.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::{TempDir, tempdir};

use super::{body, failed, measured, names, on_disk, trial, unavailable};

const SECTOR: u64 = 512;

/// Files that a job wrote and kept, with the arguments that read them again.
struct Job {
    dir: TempDir,
    arguments: String,
    files: Vec<PathBuf>,
    block: u64,
    transfer: u64,
    seed: u64,
}

/// Damage in a file: offset and number of bytes.
#[derive(Debug, Clone, Copy)]
struct Damage {
    offset: u64,
    bytes: u64,
}

impl Job {
    /// Writes two segments for each rank. Returns `None` if this machine cannot run these options.
    fn write(ranks: u32, (block, transfer): (u64, u64), options: &str) -> Option<Self> {
        if unavailable(options) {
            return None;
        }
        let dir = on_disk();
        let arguments = format!(
            "--ranks {ranks} --path t --block {block} --transfer {transfer} --segments 2 --keep {options}"
        );
        if options.contains("--direct") {
            let (_, probe) = measured(dir.path(), "--path p --block 4k --transfer 4k");
            let storage = &body(&probe).storage[0];
            if storage.direct_alignment.is_none() {
                println!("skip: no direct I/O on {}", storage.file_system);
                return None;
            }
        }
        // `--read-shift` has no meaning for a job that only writes, and is refused there.
        let writing = arguments.replace("--read-shift 1", "");
        let (_, record) = measured(dir.path(), &format!("{writing} --phases write"));
        let seed = trial(&record, 0).data_seed.unwrap();
        let files = names(dir.path())
            .iter()
            .map(|name| dir.path().join(name))
            .collect();
        Some(Self {
            dir,
            arguments,
            files,
            block,
            transfer,
            seed,
        })
    }

    fn read(&self) -> String {
        format!("{} --phases read --verify", self.arguments)
    }

    /// Returns the last file. With several files, the reader does not take the seed from it.
    fn file(&self) -> &Path {
        self.files.last().unwrap()
    }

    fn passes(&self) {
        let (_, record) = measured(self.dir.path(), &self.read());
        let trial = trial(&record, 0);
        assert_eq!(trial.verified_bytes, Some(trial.payload_bytes));
        assert_eq!(trial.data_seed, Some(self.seed));
    }

    /// Changes the files, returns the error of the reading job, and undoes the change.
    fn complains(&self, change: impl FnOnce(&Self)) -> String {
        let before = self.contents();
        change(self);
        let (why, record) = failed(self.dir.path(), &self.read());
        let are_there = self.files.iter().all(|path| path.exists());
        assert!(are_there, "files that are only read are not removed");
        // The damage was found after the phase, so the phase's figures are kept.
        assert!(
            body(&record)
                .phases
                .iter()
                .all(|phase| phase.trials.len() == 1)
        );
        self.restore(before);
        why
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        self.files
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect()
    }

    fn restore(&self, contents: Vec<Vec<u8>>) {
        for (path, bytes) in self.files.iter().zip(contents) {
            fs::write(path, bytes).unwrap();
        }
    }

    /// Checks that the error names every detail of this damage.
    fn names(&self, why: &str, damage: Damage, found: &[u8], expected: &[u8]) {
        let differences: Vec<_> = (0..found.len())
            .filter(|&at| found[at] != expected[at])
            .collect();
        let (wrong, first) = (differences.len(), differences[0]);
        let offset = damage.offset + first as u64;
        let sectors = (damage.offset + damage.bytes).div_ceil(SECTOR) - damage.offset / SECTOR;
        let plural = if sectors == 1 { "" } else { "s" };
        let lengths = self
            .files
            .iter()
            .map(|path| fs::metadata(path).unwrap().len());
        let everything: u64 = lengths.sum();
        assert!(
            why.starts_with(&format!("{wrong} bytes in ")),
            "{wrong} bytes: {why}"
        );
        for part in [
            format!(" in {sectors} sector{plural} of 512 bytes"),
            format!("{} at offset {offset}:", name(self.file())),
            format!("expected {:02x}", expected[first]),
            format!("found {:02x}", found[first]),
            format!("({everything} bytes were checked)"),
            "rank ".to_owned(),
        ] {
            assert!(why.contains(&part), "no {part:?} in {why}");
        }
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn bytes_at(path: &Path, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    let file = OpenOptions::new().read(true).open(path).unwrap();
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Damages a job's files in several ways, one after another. Without `every`, each kind of damage is done once.
fn damage(job: &Job, every: bool) {
    job.passes();
    two_blocks_swapped(job);
    a_stale_block(job);
    let offsets = [700, 0, job.block + 5];
    for &offset in &offsets[..if every { 3 } else { 1 }] {
        a_flipped_byte(job, offset);
    }
    a_hole(job);
    let whole = fs::metadata(job.file()).unwrap().len();
    let lengths = [whole - job.transfer, whole - 1, 0];
    for &short in &lengths[..if every { 3 } else { 1 }] {
        a_truncated_file(job, short);
    }
    if every && job.files.len() > 2 {
        files_swapped(job);
    }
    job.passes();
}

fn two_blocks_swapped(job: &Job) {
    let (one, other) = (job.transfer, 4 * job.transfer);
    let is = bytes_at(job.file(), one, job.transfer);
    let was = bytes_at(job.file(), other, job.transfer);
    let why = job.complains(|job| {
        put(job.file(), one, &was);
        put(job.file(), other, &is);
    });
    let differences: Vec<_> = (0..is.len()).filter(|&at| is[at] != was[at]).collect();
    let one_of = |parts: [String; 2]| {
        assert!(
            parts.iter().any(|part| why.contains(part)),
            "{parts:?}: {why}"
        );
    };
    let first = |offset| {
        let offset = offset + differences[0] as u64;
        format!("{} at offset {offset}:", name(job.file()))
    };
    one_of([one, other].map(first));
    let wrong = 2 * differences.len();
    assert!(
        why.starts_with(&format!("{wrong} bytes in ")),
        "{wrong}: {why}"
    );
    if job.transfer.is_multiple_of(SECTOR) {
        one_of([one, other].map(|at| format!("(these bytes belong to offset {at} of this file)")));
        let sectors = format!(" in {} sectors", 2 * job.transfer / SECTOR);
        assert!(why.contains(&sectors), "{why}");
    }
}

fn a_stale_block(job: &Job) {
    let current = job.contents();
    let again = format!("{} --phases write --data-seed 12345", job.arguments);
    measured(job.dir.path(), &again);
    let offset = job.transfer;
    let stale = bytes_at(job.file(), offset, job.transfer);
    job.restore(current);
    let expected = bytes_at(job.file(), offset, job.transfer);
    let why = job.complains(|job| put(job.file(), offset, &stale));
    let bytes = job.transfer;
    job.names(&why, Damage { offset, bytes }, &stale, &expected);
    let own = job.seed;
    let seeds = format!("data of seed 12345 from another write, not of seed {own}");
    // A block may begin in the middle of a sector. The seed of its data is then found in a later, whole sector.
    assert!(why.contains(&seeds), "{why}");
}

fn a_flipped_byte(job: &Job, offset: u64) {
    let expected = bytes_at(job.file(), offset, 1);
    let found = [expected[0] ^ 0x80];
    let why = job.complains(|job| put(job.file(), offset, &found));
    job.names(&why, Damage { offset, bytes: 1 }, &found, &expected);
}

fn a_hole(job: &Job) {
    let (offset, bytes) = (2 * job.transfer, job.transfer);
    let expected = bytes_at(job.file(), offset, bytes);
    let zeros = vec![0; bytes as usize];
    let why = job.complains(|job| put(job.file(), offset, &zeros));
    job.names(&why, Damage { offset, bytes }, &zeros, &expected);
    assert!(why.contains("zeros: never written"), "{why}");
}

fn a_truncated_file(job: &Job, short: u64) {
    let why = job.complains(|job| {
        let file = OpenOptions::new().write(true).open(job.file()).unwrap();
        file.set_len(short).unwrap();
    });
    let name = name(job.file());
    let said = format!("{name} is too short: it has {short} bytes, and ");
    assert!(why.contains(&said) && why.contains("rank "), "{why}");
}

fn files_swapped(job: &Job) {
    let swap = |one: &Path, other: &Path| {
        let aside = one.with_extension("aside");
        fs::rename(one, &aside).unwrap();
        fs::rename(other, one).unwrap();
        fs::rename(aside, other).unwrap();
    };
    for (one, other) in [(1, 2), (0, 1)] {
        let why = job.complains(|job| swap(&job.files[one], &job.files[other]));
        for (here, there) in [(one, other), (other, one)] {
            for part in [
                format!("rank {here}: t.0000000{here} at offset "),
                format!(" of the file of rank {there})"),
            ] {
                assert!(why.contains(&part), "no {part:?} in {why}");
            }
        }
    }
}

/// A block of whole sectors, with transfers of several sectors. The second block and its transfers are not whole
/// sectors.
const ALIGNED: (u64, u64) = (16 << 10, 4 << 10);
const UNALIGNED: (u64, u64) = (3000, 1000);

fn check(cases: &[(u32, (u64, u64), &str)], every: bool) {
    for &(ranks, sizes, options) in cases {
        if let Some(job) = Job::write(ranks, sizes, options) {
            damage(&job, every);
        }
    }
}

#[test]
fn every_damage_is_found_and_named() {
    check(
        &[
            (3, ALIGNED, "--layout per-process"),
            (2, ALIGNED, "--layout shared --order shuffled"),
            (3, UNALIGNED, "--layout per-process --order shuffled"),
        ],
        true,
    );
}

#[test]
fn however_it_was_written() {
    check(
        &[
            (2, ALIGNED, "--layout shared"),
            (3, ALIGNED, "--layout per-process --threads 2"),
            (2, (16 << 10, 2 << 10), "--threads 3 --order shuffled"),
            (2, UNALIGNED, "--engine uring --order shuffled"),
            (3, ALIGNED, "--layout per-process --engine uring --depth 3"),
            (2, ALIGNED, "--direct"),
            (
                3,
                ALIGNED,
                "--layout per-process --engine uring --direct --order shuffled",
            ),
        ],
        false,
    );
}

#[test]
fn right_after_it_was_written() {
    let dir = tempdir().unwrap();
    let (_, record) = measured(
        dir.path(),
        "--ranks 2 --path t --block 64k --transfer 4k --phases write,read,mixed --read-percent 50 \
         --verify=write,read,mixed --trials 2",
    );
    for phase in &body(&record).phases {
        let verified = phase.trials.iter().map(|trial| trial.verified_bytes);
        assert!(verified.eq([Some(128 << 10); 2]), "{phase:?}");
    }
}

/// A message must distinguish foreign data from damaged data.
#[test]
fn foreign_data_cannot_be_verified() {
    let dir = tempdir().unwrap();
    for bytes in [vec![7; 1 << 20], vec![0; 1 << 20], vec![7; 3]] {
        fs::write(dir.path().join("t"), &bytes).unwrap();
        let size = bytes.len();
        let read = format!("--path t --block {size} --transfer {size} --phases read");
        let (why, _) = failed(dir.path(), &format!("{read} --verify"));
        assert!(why.contains("t holds no data of tonnage"), "{why}");
        measured(dir.path(), &read);
        assert_eq!(fs::read(dir.path().join("t")).unwrap(), bytes);
    }
}
