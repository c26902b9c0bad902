//! Remarks that name the cause of lost CPU time, and records that show settings of the paths. A cause must not be
//! blamed without proof.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tempfile::tempdir;
use tonnage_machine::{Topology, pin_thread};
use tonnage_record::CpuLoss;

use super::support::{BRIEF, records, tonnage, under, words};

/// Trials are long enough for several quota periods, and for the scheduler to make threads wait.
const TRIALS: &str = "--trials 2 --trial-time 300ms --warmup 10ms --bound none";

/// A thread of this process that uses a CPU until it is dropped.
struct Hog {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    fn on(cpu: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            pin_thread(cpu).unwrap();
            while !until.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()));
    }
}

#[test]
fn a_hog_on_the_targets_cpu_is_remarked_on() {
    if !Path::new("/proc/thread-self/schedstat").exists() {
        println!("skip: this kernel does not count the time that threads wait for a CPU");
        return;
    }
    let [first, second, ..] = Topology::read().allowed[..] else {
        println!("skip: the test needs a CPU for each of two ranks");
        return;
    };
    let dir = tempdir().unwrap();
    let hog = Hog::on(second);
    let arguments = format!(
        "transfer --engine shm --op send --sizes 4k --ranks 2 --cpus {first},{second} {TRIALS} -o r.jsonl"
    );
    let run = tonnage(dir.path(), &arguments).succeed();
    drop(hog);
    let record = &records::read(&dir.path().join("r.jsonl"))[0];
    let lost = record.cpu_losses.iter().find(|loss| loss.rank == 1);
    let lost = lost.unwrap_or_else(|| panic!("rank 1 lost nothing: {:?}", record.cpu_losses));
    assert!(lost.is_disturbed(), "{lost:?}");
    run.printing(&["busy CPUs: the threads of rank"]);
}

/// A version 1 control group with half a CPU. Dropping it removes the group.
struct HalfCpu(PathBuf);

impl HalfCpu {
    fn new(name: &str) -> Result<Self, String> {
        let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
            .into_iter()
            .map(Path::new)
            .find(|root| root.join("cpu.cfs_quota_us").exists())
            .ok_or("there is no cpu controller of version 1")?;
        let group = root.join(format!("tonnage-{name}-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let made = Self(group);
        // With a weight above all others, only the quota can stop the group, even on a busy machine.
        for (file, value) in [
            ("cpu.cfs_period_us", "20000"),
            ("cpu.cfs_quota_us", "10000"),
            ("cpu.shares", "262144"),
        ] {
            let file = made.0.join(file);
            fs::write(&file, value).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(made)
    }

    /// Writes a wrapper script that moves a program into the group.
    fn enter(&self, dir: &Path) -> PathBuf {
        let script = dir.join("enter.sh");
        let tasks = self.0.join("cgroup.procs");
        let text = format!("echo $$ > {}\nexec \"$@\"\n", tasks.display());
        fs::write(&script, text).unwrap();
        script
    }
}

impl Drop for HalfCpu {
    fn drop(&mut self) {
        // The kernel removes a group's last process only a moment after the process has ended.
        let removed = (0..50).any(|_| {
            let removed = fs::remove_dir(&self.0).is_ok();
            if !removed {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            removed
        });
        assert!(removed, "{} is left", self.0.display());
    }
}

/// Every kind of experiment must get the same remarks.
#[test]
fn a_quota_is_named_by_every_kind() {
    let group = match HalfCpu::new("quota") {
        Ok(group) => group,
        Err(why) => {
            println!("skip: {why}");
            return;
        }
    };
    for arguments in [
        format!("transfer --engine shm --op write --sizes 4k --ranks 2 {TRIALS}"),
        format!("collective --backend native:shm --op all-reduce --sizes 4k --ranks 2 {TRIALS}"),
        "connect --engine shm --ranks 2 --trials 2 --duration 600ms".to_owned(),
        "file --engine posix --path t --block 64M --transfer 4k --ranks 1 --bound none".to_owned(),
    ] {
        let dir = tempdir().unwrap();
        let launcher = format!("sh {}", group.enter(dir.path()).display());
        let run = under(dir.path(), &launcher, &format!("{arguments} -o r.jsonl")).succeed();
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let quotas = record.environment.iter();
        let quotas = quotas.map(|host| host.machine.cpu.quota_millicpus);
        assert!(quotas.eq([Some(500)]), "{arguments}");
        let used: Vec<_> = record.cpu_losses.iter().filter_map(|it| it.quota).collect();
        assert!(!used.is_empty(), "{arguments}: {:?}", record.cpu_losses);
        for quota in used {
            assert_eq!(quota.quota_millicpus, 500, "{arguments}");
            let periods = 1..=quota.periods;
            assert!(
                periods.contains(&quota.throttled_periods),
                "{arguments}: {quota:?}"
            );
            assert!(quota.throttled_ns > 0, "{arguments}: {quota:?}");
        }
        let table = words(&run.stdout);
        let expected = "CPU quota: the control group of rank";
        assert!(table.contains(expected), "{arguments}: {table}");
        // Time explained by the quota is not blamed on other programs.
        let blames = table.contains("busy CPUs");
        let unexplained = |loss: &CpuLoss| {
            let throttled_ns = loss.quota.map_or(0, |quota| quota.throttled_ns);
            let left_ns = loss.wait_ns.unwrap_or(0).saturating_sub(throttled_ns);
            !loss.shares_cpus && left_ns * 10 >= loss.thread_ns
        };
        let is_unexplained = record.cpu_losses.iter().any(unexplained);
        assert_eq!(blames, is_unexplained, "{arguments}: {table}");
    }
}

#[test]
fn records_show_the_settings_of_the_paths_of_their_sockets() {
    for arguments in [
        format!("transfer --engine fabric:tcp --op write --sizes 4k --ranks 2 {BRIEF}"),
        format!(
            "collective --backend native:fabric:tcp --op all-reduce --sizes 4k --ranks 2 {BRIEF}"
        ),
        "connect --engine fabric:tcp --ranks 2 --trials 1 --duration 10ms".to_owned(),
        "stress --engine fabric:tcp --ranks 2 --duration 1ms --max-size 4k".to_owned(),
    ] {
        let dir = tempdir().unwrap();
        tonnage(dir.path(), &format!("{arguments} -o r.jsonl")).succeed();
        let record = &records::read(&dir.path().join("r.jsonl"))[0];
        let [path] = &record.network_paths[..] else {
            panic!("{arguments}: {:?}", record.network_paths);
        };
        assert_eq!(path.interface, "lo", "{arguments}");
        let mtu = fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(path.mtu_bytes.to_string(), mtu.trim(), "{arguments}");
        let default = "/proc/sys/net/ipv4/tcp_congestion_control";
        let default = fs::read_to_string(default).unwrap();
        assert_eq!(path.congestion_control, default.trim(), "{arguments}");
        assert!(!path.qdisc.is_empty() && path.sockets > 0, "{path:?}");
        assert!(path.send_buffer_bytes_min > 0, "{path:?}");
        assert!(path.send_buffer_bytes_max >= path.send_buffer_bytes_min);
    }
    let (_, records) = records::transfer(&format!(
        "--engine shm --op write --sizes 4k --ranks 2 {BRIEF}"
    ));
    assert!(records[0].network_paths.is_empty());
}
