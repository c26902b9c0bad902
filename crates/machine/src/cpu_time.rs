//! CPU time that threads did not get. Sources are the quotas of control groups (versions 1 and 2) with their throttled
//! periods, and the time that a thread waited for a CPU.

use serde::{Deserialize, Serialize};

use super::kernel_files::Tree;
use super::mounts::unescape;

/// A control group of this process that has a CPU quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedGroup {
    /// CPU time per second, in thousandths of a CPU.
    pub quota_millicpus: u64,
    /// Folder of the group, as a path of the tree.
    folder: String,
}

/// Throttling counters of a limited group: since the group was created, or their growth over an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Number of periods in which the group ran.
    pub periods: u64,
    /// Number of periods in which the group used up its quota and was stopped.
    pub throttled_periods: u64,
    /// Time for which the group was stopped, summed over CPUs.
    pub throttled_ns: u64,
}

/// CPU time of a thread: since the thread started, or its growth over an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedTime {
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time in which the thread was runnable but not running, because another thread had the CPU or a quota was used
    /// up.
    pub wait_ns: u64,
}

impl LimitedGroup {
    /// Returns the control groups that have a quota, among this process's groups and their ancestors. The smallest
    /// quota comes first. In a container, the search ends at the root of the container's namespace, because higher
    /// groups cannot be read.
    pub fn all(tree: &Tree) -> Vec<Self> {
        let (groups, mounts) = (
            tree.text("proc/self/cgroup"),
            tree.text("proc/self/mountinfo"),
        );
        let (Some(groups), Some(mounts)) = (groups, mounts) else {
            return Vec::new();
        };
        let mut all: Vec<Self> = groups
            .lines()
            .filter_map(|line| own_folder(line, &mounts))
            .flat_map(|(place, group)| above(&place, &group))
            .filter_map(|folder| {
                let quota_millicpus = quota_millicpus(tree, &folder)?;
                Some(Self {
                    quota_millicpus,
                    folder,
                })
            })
            .collect();
        all.sort_by_key(|group| group.quota_millicpus);
        all
    }

    /// Reads the group's counters; `None` if the kernel has none.
    pub fn throttling(&self, tree: &Tree) -> Option<Throttling> {
        let text = tree.text(format!("{}/cpu.stat", self.folder))?;
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = lines.find(|(key, _)| *key == name)?;
            value.trim().parse::<u64>().ok()
        };
        // Version 1 reports nanoseconds, version 2 microseconds.
        let micros = || Some(value("throttled_usec")?.saturating_mul(1000));
        Some(Throttling {
            periods: value("nr_periods")?,
            throttled_periods: value("nr_throttled")?,
            throttled_ns: value("throttled_time").or_else(micros)?,
        })
    }
}

impl Throttling {
    /// Returns the growth since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled_periods: (self.throttled_periods).saturating_sub(before.throttled_periods),
            throttled_ns: self.throttled_ns.saturating_sub(before.throttled_ns),
        }
    }

    /// Adds the growth of another interval.
    pub fn add(&mut self, other: Self) {
        self.periods += other.periods;
        self.throttled_periods += other.throttled_periods;
        self.throttled_ns += other.throttled_ns;
    }
}

impl SchedTime {
    /// Reads the times of a thread of this process; `None` if it has ended, or the kernel does not count them.
    pub fn of_thread(tree: &Tree, thread: u32) -> Option<Self> {
        let text = tree.text(format!("proc/self/task/{thread}/schedstat"))?;
        let mut words = text.split_whitespace();
        let mut next = || words.next()?.parse().ok();
        Some(Self {
            run_ns: next()?,
            wait_ns: next()?,
        })
    }

    /// Returns the growth since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
        }
    }
}

/// Returns the mount point of the hierarchy named in a line of /proc/self/cgroup, and this process's folder below it.
/// `None` if the hierarchy has no CPU controller, or the folder is not below the mount.
fn own_folder(line: &str, mounts: &str) -> Option<(String, String)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let kind = match (number, controllers) {
        ("0", "") => "cgroup2",
        _ if controllers.split(',').any(|name| name == "cpu") => "cgroup",
        _ => return None,
    };
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_it = after.next()? == kind
            && (kind == "cgroup2" || after.nth(1)?.split(',').any(|name| name == "cpu"));
        if !is_it {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, place) = (unescape(fields.next()?), unescape(fields.next()?));
        // The line has the folder's name in the host's hierarchy, but a container may have mounted only its own part of
        // that hierarchy.
        let below = group.strip_prefix(root.trim_end_matches('/'))?;
        let is_below = below.is_empty() || below.starts_with('/');
        let leaves = below.split('/').any(|name| name == "..");
        let plain = |path: &str| path.trim_matches('/').to_owned();
        (is_below && !leaves).then(|| (plain(&place), plain(below)))
    })
}

/// Returns a folder and all its ancestors, up to the root of the hierarchy.
fn above(place: &str, group: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut group = group;
    while !group.is_empty() {
        folders.push(format!("{place}/{group}"));
        group = group.rsplit_once('/').map_or("", |(above, _)| above);
    }
    folders.push(place.to_owned());
    folders
}

/// Returns the quota of one folder; `None` if the folder has no quota.
fn quota_millicpus(tree: &Tree, folder: &str) -> Option<u64> {
    let (quota, period): (u64, u64) = match tree.text(format!("{folder}/cpu.max")) {
        Some(text) => {
            let (quota, period) = text.split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        // Version 1; -1 means unlimited.
        None => (
            tree.number(format!("{folder}/cpu.cfs_quota_us"))?,
            tree.number(format!("{folder}/cpu.cfs_period_us"))?,
        ),
    };
    quota.checked_mul(1000)?.checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_files::invented::Machine;

    const V2: &str = "41 31 0:38 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
    const V1: &str = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";

    fn machine(cgroup: &str, mounts: &str) -> Machine {
        let machine = Machine::new();
        machine.files("proc/self", &[("cgroup", cgroup), ("mountinfo", mounts)]);
        machine
    }

    fn quotas(machine: &Machine) -> Vec<u64> {
        let groups = LimitedGroup::all(&machine.tree());
        groups.iter().map(|group| group.quota_millicpus).collect()
    }

    #[test]
    fn version_2_has_a_quota_at_any_level() {
        let machine = machine("0::/a/b", V2);
        let counts = "usage_usec 9\nnr_periods 40\nnr_throttled 12\nthrottled_usec 7";
        machine.files(
            "sys/fs/cgroup/a",
            &[
                ("b/cpu.max", "max 100000"),
                ("cpu.max", "150000 100000"),
                ("cpu.stat", counts),
            ],
        );
        assert_eq!(quotas(&machine), [1500]);
        let group = &LimitedGroup::all(&machine.tree())[0];
        let counted = Throttling {
            periods: 40,
            throttled_periods: 12,
            throttled_ns: 7000,
        };
        assert_eq!(group.throttling(&machine.tree()), Some(counted));
        // The root of a namespace may have a quota like any other group.
        let container = self::machine("0::/", V2);
        container.file("sys/fs/cgroup/cpu.max", "50000 100000");
        assert_eq!(quotas(&container), [500]);
    }

    #[test]
    fn version_1_has_its_quota_in_the_hierarchy_of_the_cpu_controller() {
        let cgroup = "4:memory:/m\n3:cpu,cpuacct:/a/b\n0::/";
        let machine = machine(cgroup, V1);
        let root = "sys/fs/cgroup/cpu,cpuacct";
        for (group, quota) in [("a/b", "200000"), ("a", "50000"), ("", "-1")] {
            let quota = [("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", "100000")];
            machine.files(&format!("{root}/{group}"), &quota);
        }
        let counts = "nr_periods 27\nnr_throttled 24\nthrottled_time 1200";
        machine.file(&format!("{root}/a/cpu.stat"), counts);
        assert_eq!(quotas(&machine), [500, 2000]);
        let group = &LimitedGroup::all(&machine.tree())[0];
        let counted = group.throttling(&machine.tree()).unwrap();
        assert_eq!(
            (counted.throttled_periods, counted.throttled_ns),
            (24, 1200)
        );
    }

    /// Without a cgroup namespace, Docker mounts only the container's part of the hierarchy.
    #[test]
    fn a_container_sees_a_part_of_the_hierarchy() {
        let mounts = "33 31 0:30 /docker/x /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu";
        for (cgroup, expected) in [
            ("1:cpu:/docker/x/in", vec![500, 1000]),
            ("1:cpu:/docker/x", vec![1000]),
            ("1:cpu:/docker/xy", vec![]),
            ("1:cpu:/..", vec![]),
            ("1:cpuacct:/docker/x", vec![]),
        ] {
            let machine = machine(cgroup, mounts);
            for (folder, quota) in [("cpu", "100000"), ("cpu/in", "50000")] {
                let quota = [("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", "100000")];
                machine.files(&format!("sys/fs/cgroup/{folder}"), &quota);
            }
            assert_eq!(quotas(&machine), expected, "{cgroup}");
        }
    }

    #[test]
    fn without_limits_the_list_is_empty() {
        assert!(quotas(&Machine::new()).is_empty());
        assert!(quotas(&machine("0::/a", V2)).is_empty());
        assert!(quotas(&machine("0::/a", V1)).is_empty());
    }

    #[test]
    fn threads_tell_how_long_they_waited() {
        let machine = Machine::new();
        machine.file("proc/self/task/7/schedstat", "480 369 20");
        let tree = machine.tree();
        let found = SchedTime::of_thread(&tree, 7).unwrap();
        assert_eq!((found.run_ns, found.wait_ns), (480, 369));
        assert_eq!(SchedTime::of_thread(&tree, 8), None);
        let before = SchedTime {
            run_ns: 400,
            wait_ns: 300,
        };
        let grown = found.since(before);
        assert_eq!((grown.run_ns, grown.wait_ns), (80, 69));
    }
}
