//! Identifies the host and container of a process, and detects when a visible process ends.

use std::os::fd::OwnedFd;

use rustix::event::{Timespec, epoll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tonnage_engine::Locality;
use tonnage_sys::host;
use tonnage_sys::process::stat;

/// Maximum number of ended processes reported by one call.
const EVENTS: usize = 16;

/// Where a process runs, in a form that peers can compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessPlace {
    host: String,
    boot_id: String,
    pid_namespace: String,
    pid: u32,
    /// Start time of the process in ticks since boot, because process IDs are reused.
    start_ticks: Option<u64>,
}

impl ProcessPlace {
    pub(crate) fn own() -> Self {
        Self::for_process(std::process::id())
    }

    /// Returns the place of another process in this container.
    pub(crate) fn for_process(pid: u32) -> Self {
        Self {
            host: host::name(),
            boot_id: host::boot_id(),
            pid_namespace: host::pid_namespace(),
            pid,
            start_ticks: start_ticks(pid),
        }
    }

    /// Describes the process's end for an error message.
    pub(crate) fn describe_end(&self) -> String {
        format!("its process (pid {} on {}) has ended", self.pid, self.host)
    }

    /// Returns the process's ID in its own container.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns true only if the process is in `own`'s container, has certainly ended, and its ID was not reused.
    pub(crate) fn is_gone(&self, own: &Self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| own.locality(self) == Locality::SameContainer) else {
            return false;
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Err(error) => error == rustix::io::Errno::SRCH,
            Ok(_) => stat(self.pid).is_some_and(|stat| {
                stat.state == 'Z' && Some(stat.start_ticks) == self.start_ticks
            }),
        }
    }

    /// Returns the locality of `other` relative to this process. If the system does not provide an ID, the processes
    /// count as separate.
    pub(crate) fn locality(&self, other: &Self) -> Locality {
        let same = |own: &str, other: &str| own == other && !own.is_empty();
        if !same(&self.boot_id, &other.boot_id) {
            Locality::OtherMachine
        } else if same(&self.pid_namespace, &other.pid_namespace) {
            Locality::SameContainer
        } else {
            Locality::SameMachine
        }
    }
}

fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_ticks)
}

/// Watches processes of this container. One system call checks any number of processes.
pub(crate) struct ProcessWatch {
    epoll: Option<OwnedFd>,
    /// The open pidfds, each with the number that reports its end.
    watched: Vec<(u32, OwnedFd)>,
}

impl ProcessWatch {
    pub(crate) fn new() -> Self {
        // Without epoll or before Linux 5.3, only the engine's failures show that a process has ended.
        Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
            watched: Vec::new(),
        }
    }

    /// Watches a process that `own` can see. Returns false if it has already ended.
    pub(crate) fn add(&mut self, number: u32, own: &ProcessPlace, other: &ProcessPlace) -> bool {
        let Some(pid) = i32::try_from(other.pid).ok().and_then(Pid::from_raw) else {
            return true;
        };
        if own.locality(other) != Locality::SameContainer || own.pid == other.pid {
            return true;
        }
        match (pidfd_open(pid, PidfdFlags::empty()), &self.epoll) {
            // Start times are compared after opening the pidfd. So the pidfd cannot refer to a later process with the
            // same ID.
            (Ok(_), _)
                if other.start_ticks.is_some() && start_ticks(other.pid) != other.start_ticks =>
            {
                false
            }
            (Ok(process), Some(epoll)) => {
                let data = epoll::EventData::new_u64(u64::from(number));
                let flags = epoll::EventFlags::IN;
                if epoll::add(epoll, &process, data, flags).is_ok() {
                    self.watched.push((number, process));
                }
                true
            }
            (Err(rustix::io::Errno::SRCH), _) => false,
            _ => true,
        }
    }

    /// Stops watching a process.
    pub(crate) fn remove(&mut self, number: u32) {
        // Closing the pidfd removes it from the epoll set.
        self.watched.retain(|(watched, _)| *watched != number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Returns the numbers of the processes that have ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<u32> {
        let Some(epoll) = &self.epoll else {
            return Vec::new();
        };
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = epoll::wait(epoll, &mut events[..], Some(&now)).unwrap_or(0);
        let events = events[..count].iter();
        let ended: Vec<u32> = events.map(|event| event.data.u64() as u32).collect();
        for (_, process) in self
            .watched
            .iter()
            .filter(|(number, _)| ended.contains(number))
        {
            // This fails only if the process was removed before.
            let _ = epoll::delete(epoll, process);
        }
        self.watched.retain(|(number, _)| !ended.contains(number));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn localities_follow_boot_id_and_pid_namespace() {
        let own = ProcessPlace::own();
        assert!(own.start_ticks.is_some());
        assert_eq!(own.locality(&own), Locality::SameContainer);
        let other = |change: fn(&mut ProcessPlace)| {
            let mut place = own.clone();
            change(&mut place);
            own.locality(&place)
        };
        let container = other(|place| place.pid_namespace = "pid:[1]".into());
        assert_eq!(container, Locality::SameMachine);
        let machine = other(|place| place.boot_id = "x".into());
        assert_eq!(machine, Locality::OtherMachine);
        let unknown = ProcessPlace {
            boot_id: String::new(),
            ..own
        };
        assert_eq!(unknown.locality(&unknown.clone()), Locality::OtherMachine);
    }

    #[test]
    fn a_process_whose_id_was_reused_is_not_gone() {
        let own = ProcessPlace::own();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let place = ProcessPlace::for_process(child.id());
        let earlier = ProcessPlace {
            start_ticks: Some(1),
            ..place.clone()
        };
        assert!(!place.is_gone(&own), "the child is alive");
        assert!(!earlier.is_gone(&own), "a later process has its ID");
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_zombie = |pid| stat(pid).is_some_and(|stat| stat.state == 'Z');
        while !is_zombie(child.id()) && Instant::now() < deadline {}
        assert!(place.is_gone(&own) && !earlier.is_gone(&own));
        child.wait().unwrap();
        assert!(place.is_gone(&own));
    }

    #[test]
    fn the_end_of_a_process_is_reported_once() {
        let own = ProcessPlace::own();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let place = ProcessPlace {
            pid,
            start_ticks: start_ticks(pid),
            ..own.clone()
        };
        let mut watch = ProcessWatch::new();
        assert!(watch.add(5, &own, &own), "this process needs no watch");
        assert!(watch.is_empty());
        assert!(watch.add(7, &own, &place));
        assert!(watch.ended().is_empty());
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut ended = Vec::new();
        while ended.is_empty() && Instant::now() < deadline {
            ended = watch.ended();
        }
        assert_eq!(ended, [7]);
        assert!(watch.is_empty() && watch.ended().is_empty());
        child.wait().unwrap();
        assert!(!watch.add(7, &own, &place), "the child has ended");
        // The child may have started in the same tick as this process, so an impossible start time is used.
        let later = ProcessPlace {
            pid: std::process::id(),
            start_ticks: Some(1),
            ..place
        };
        let reused = ProcessPlace {
            pid: 1,
            ..own.clone()
        };
        assert!(!watch.add(8, &reused, &later), "another process has its ID");
    }
}
