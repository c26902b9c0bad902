//! A real Slurm with these hosts as its nodes: one munged and one slurmctld at the switch, a slurmd in each host.
//!
//! The daemons are child processes in the foreground. Daemons and jobs run inside the hosts' network namespaces, so
//! they end with the hosts in any case. All sets of hosts can use Slurm's usual ports, because each set has its own
//! network.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::tool::{output, require};
use crate::{Error, Hosts, Result};

/// A cluster usually starts in less than a second; the rest is for busy machines.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a daemon gets to terminate.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Nominal CPUs and memory of each node. Slurm does not check them, and does not bind tasks.
const NODE: &str = "CPUs=8 RealMemory=8000 State=UNKNOWN";

/// A running Slurm with one node per host, of the same name, in one partition. Dropping it ends its jobs and daemons.
#[derive(Debug)]
pub struct Slurm<'a> {
    hosts: &'a Hosts,
    folder: PathBuf,
    daemons: Vec<(String, Child)>,
}

impl<'a> Slurm<'a> {
    /// Starts Slurm, and waits until all nodes are idle.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Slurm or munge is not installed, [`Error::Failed`] if a daemon does not start. The
    /// error includes the end of the daemon's log.
    pub fn start(hosts: &'a Hosts) -> Result<Self> {
        Self::start_with(hosts, "")
    }

    /// Starts Slurm with additional lines in slurm.conf.
    ///
    /// # Errors
    /// As for [`Slurm::start`].
    pub fn start_with(hosts: &'a Hosts, lines: &str) -> Result<Self> {
        require(&["munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel"])?;
        let folder = hosts.folder().join("slurm");
        write_configuration(hosts, &folder, lines).map_err(|error| {
            Error::Failed(format!("cannot prepare {}: {error}", folder.display()))
        })?;
        let mut slurm = Self {
            hosts,
            folder,
            daemons: Vec::new(),
        };
        slurm.start_munged()?;
        let mut slurmctld = slurm.command("slurmctld");
        slurmctld
            .args(["-D", "-c", "-f"])
            .arg(slurm.configuration());
        slurm.start_daemon("slurmctld", slurmctld)?;
        for host in 0..hosts.count() {
            let name = format!("h{host}");
            let mut slurmd = hosts.command(host, "slurmd");
            slurm.prepare(&mut slurmd);
            slurmd
                .args(["-D", "-N", &name, "-f"])
                .arg(slurm.configuration());
            slurm.start_daemon(&format!("slurmd.{name}"), slurmd)?;
        }
        slurm.wait_until_idle()?;
        Ok(slurm)
    }

    /// Returns the path of slurm.conf, for `SLURM_CONF`.
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    /// Returns a command that runs `srun` with these arguments in the switch's network namespace.
    pub fn srun<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command("srun");
        command.args(arguments);
        command
    }

    /// Returns a command that runs a program of this Slurm in the switch's network namespace: `sbatch`, `scontrol`,
    /// `sinfo`, …
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.hosts.switch_command(program);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        // Programs of this Slurm must not see the variables of a Slurm job that runs this process.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SLURM_") {
                command.env_remove(name);
            }
        }
        let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        path.push(":/usr/sbin:/sbin");
        command
            .env("PATH", path)
            .env("SLURM_CONF", self.configuration());
    }

    fn start_munged(&mut self) -> Result<()> {
        let mut command = self.command("munged");
        command.args(["--foreground", "--force"]);
        for (option, file) in [
            ("--socket", "munge.sock"),
            ("--key-file", "munge.key"),
            ("--pid-file", "munged.pid"),
            ("--seed-file", "munge.seed"),
            ("--log-file", "munged.log"),
        ] {
            command.arg(format!("{option}={}", self.folder.join(file).display()));
        }
        self.start_daemon("munged", command)?;
        let socket = self.folder.join("munge.sock");
        self.wait("munged listens", |_| Ok(socket.exists()))
    }

    fn start_daemon(&mut self, name: &str, mut command: Command) -> Result<()> {
        let path = self.log(name);
        let failed = |error| Error::Failed(format!("cannot start {name}: {error}"));
        let log = File::create(&path).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        self.daemons.push((name.to_owned(), child));
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.out"))
    }

    fn wait_until_idle(&mut self) -> Result<()> {
        let wanted = self.hosts.count().to_string();
        self.wait("all nodes are idle", |slurm| {
            let mut sinfo = slurm.command("sinfo");
            sinfo.args(["--noheader", "--states=idle", "--format=%D"]);
            // `sinfo` fails until slurmctld answers.
            Ok(output(&mut sinfo).is_ok_and(|nodes| nodes.trim() == wanted))
        })
    }

    /// Polls until `ready` returns true, and fails if a daemon ends before.
    fn wait(&mut self, what: &str, mut ready: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let since = Instant::now();
        while !ready(self)? {
            let ended = self.daemons.iter_mut().find_map(|(name, child)| {
                child
                    .try_wait()
                    .ok()
                    .flatten()
                    .map(|status| (name.clone(), status))
            });
            if let Some((name, status)) = ended {
                return Err(Error::Failed(format!(
                    "{name} ended at once ({status}); its log ends with:\n{}",
                    self.end_of_log(&name)
                )));
            }
            if since.elapsed() > START_TIMEOUT {
                return Err(Error::Failed(format!(
                    "timed out waiting until {what}; the log of slurmctld ends with:\n{}",
                    self.end_of_log("slurmctld")
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn end_of_log(&self, name: &str) -> String {
        let text = fs::read(self.log(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Cancels jobs, because their processes would outlive slurmd, and waits until they are gone.
    fn end_jobs(&self) {
        let ask = |program: &str, arguments: &[&str]| {
            // `timeout` is needed because a client retries for a long time if the controller has ended.
            let mut command = self.command("timeout");
            output(command.args(["5", program]).args(arguments))
        };
        let since = Instant::now();
        // If `squeue` fails, stop waiting: all jobs end with the hosts anyway.
        while ask("squeue", &["--noheader"]).is_ok_and(|jobs| !jobs.trim().is_empty())
            && since.elapsed() < END_TIMEOUT
        {
            let _ = ask("scancel", &["--user=root"]);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        self.end_jobs();
        // In reverse order, so that no daemon loses one that it depends on. `kill_process` fails only if the daemon has
        // already ended.
        for (_, mut daemon) in self.daemons.drain(..).rev() {
            if let Some(pid) = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            let since = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) && since.elapsed() < END_TIMEOUT {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // The folder must go, because another Slurm may be started on the same hosts. If removal fails, the folder is
        // removed with the hosts.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn write_configuration(hosts: &Hosts, folder: &Path, lines: &str) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(folder)?;
    fs::create_dir(folder.join("state"))?;
    let mut key = [0u8; 128];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join("munge.key"))?;
    file.write_all(&key)?;
    let mut nodes = String::new();
    for host in 0..hosts.count() {
        for kind in ["spool", "tmp"] {
            fs::create_dir(folder.join(format!("{kind}.h{host}")))?;
        }
        nodes += &format!("NodeName=h{host} NodeAddr={} {NODE}\n", hosts.address(host));
    }
    let text = format!(
        "ClusterName=local
SlurmctldHost=switch({switch})
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1000
ReturnToService=2
{lines}{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
",
        switch = hosts.switch_address(),
        folder = folder.display(),
    );
    fs::write(folder.join("slurm.conf"), text)
}
