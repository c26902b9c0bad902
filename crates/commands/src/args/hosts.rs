//! Options about ranks on other hosts, and `tonnage hosts`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use clap::Args;
use tonnage_ranks::spawn::remote::list::{HostPlacement, HostSlots, parse_file};
use tonnage_units::{Error, Result};

use super::values::ranks;

/// Default number of concurrent ssh connections.
const PARALLEL_DEFAULT: usize = 32;
/// Maximum of `--ssh-parallel`. No sshd accepts more connections.
const PARALLEL_MAX: usize = 1024;

/// Options for ranks on other hosts.
#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(next_help_heading = "Ranks on several hosts")]
pub struct HostArgs {
    /// Start ranks on these hosts by ssh: one on each, or the number after a colon, as in h0,h1:4,user@h2. Rank 0 is on
    /// the first host.
    #[arg(
        short = 'H',
        long,
        value_name = "HOSTS",
        value_delimiter = ',',
        value_parser = HostSlots::parse,
        conflicts_with_all = ["hostfile", "rank"]
    )]
    pub hosts: Vec<HostSlots>,

    /// Start ranks on the hosts of this file by ssh: each line is "h1", "h1:4" or "h1 slots=4"; # begins a comment.
    #[arg(long, value_name = "FILE", conflicts_with = "rank")]
    pub hostfile: Option<HostListFile>,

    /// Start this many ranks on each host.
    #[arg(long, value_name = "N", value_parser = ranks)]
    pub per_host: Option<u32>,

    /// How to reach the hosts.
    #[command(flatten)]
    pub ssh: SshArgs,

    /// Set this variable for ranks on other hosts, or pass on this process's value; may be repeated. FI_*, UCX_*,
    /// NCCL_*, GLOO_*, OMPI_* and TONNAGE_* are passed on automatically.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    pub env: Vec<(String, Option<String>)>,

    /// Pass on no variables except those of --env.
    #[arg(long)]
    pub no_env: bool,
}

/// How to reach other hosts.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct SshArgs {
    /// ssh and its first arguments, such as "ssh -p 2222". [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,

    /// Connect to at most this many hosts at once. [default: 32]
    #[arg(long, value_name = "N", value_parser = parallel)]
    pub ssh_parallel: Option<usize>,

    /// Copy this program by ssh to hosts that lack it or have another build, into ~/.cache/tonnage.
    #[arg(long)]
    pub push: bool,
}

impl SshArgs {
    /// Returns the maximum number of hosts to connect to at once.
    pub fn parallel(&self) -> usize {
        self.ssh_parallel.unwrap_or(PARALLEL_DEFAULT)
    }

    /// Returns the ssh command.
    pub fn command(&self) -> &str {
        self.ssh.as_deref().unwrap_or("ssh")
    }
}

impl HostArgs {
    /// Returns the hosts and their numbers of ranks; `None` if no hosts are named.
    pub fn placement(&self, asked: Option<u32>) -> Result<Option<HostPlacement>> {
        let Some(listed) = listed(&self.hosts, self.hostfile.as_ref())? else {
            return self.refuse_idle().map(|()| None);
        };
        let placement = HostPlacement::new(&listed, self.per_host)?;
        match asked {
            Some(asked) if asked != placement.size() => Err(Error::Usage(format!(
                "--ranks {asked} does not fit the {} ranks of the hosts ({}): leave --ranks out, or change the numbers",
                placement.size(),
                counts(&placement)
            ))),
            _ => Ok(Some(placement)),
        }
    }

    fn refuse_idle(&self) -> Result<()> {
        let idle = [
            (self.per_host.is_some(), "--per-host"),
            (self.ssh.ssh.is_some(), "--ssh"),
            (self.ssh.ssh_parallel.is_some(), "--ssh-parallel"),
            (self.ssh.push, "--push"),
            (!self.env.is_empty(), "--env"),
            (self.no_env, "--no-env"),
        ];
        match idle.iter().find(|(is_there, _)| *is_there) {
            Some((_, option)) => Err(Error::Usage(format!(
                "{option} is about ranks on other hosts, and none are named: add --hosts h0,h1 or --hostfile FILE, or leave \
                 {option} out"
            ))),
            None => Ok(()),
        }
    }
}

/// A file of hosts. It may be a pipe, so it is read only once.
#[derive(Debug, Clone, PartialEq)]
pub struct HostListFile {
    path: PathBuf,
    /// Hosts in the file. Empty until the file is read.
    hosts: Arc<OnceLock<Vec<HostSlots>>>,
}

impl From<OsString> for HostListFile {
    fn from(path: OsString) -> Self {
        Self {
            path: path.into(),
            hosts: Arc::default(),
        }
    }
}

impl HostListFile {
    fn read(&self) -> Result<Vec<HostSlots>> {
        if let Some(hosts) = self.hosts.get() {
            return Ok(hosts.clone());
        }
        let shown = self.path.display().to_string();
        let text = std::fs::read_to_string(&self.path).map_err(|error| {
            Error::Usage(format!(
                "--hostfile {shown} cannot be read ({error}): name a file with a host in each line"
            ))
        })?;
        let hosts = parse_file(&text, &shown)?;
        Ok(self.hosts.get_or_init(|| hosts).clone())
    }
}

/// Returns the hosts of a list or of a file; `None` if neither is given.
pub fn listed(hosts: &[HostSlots], file: Option<&HostListFile>) -> Result<Option<Vec<HostSlots>>> {
    match file {
        Some(file) => file.read().map(Some),
        None => Ok((!hosts.is_empty()).then(|| hosts.to_vec())),
    }
}

/// Formats hosts and their numbers of ranks, such as "h0 1, h1 4". Lists only the first hosts if there are many.
fn counts(placement: &HostPlacement) -> String {
    const SHOWN_MAX: usize = 8;
    let each = placement.hosts.iter().zip(&placement.ranks);
    let mut texts: Vec<_> = each
        .take(SHOWN_MAX)
        .map(|(host, ranks)| format!("{} {ranks}", host.name))
        .collect();
    if placement.hosts.len() > SHOWN_MAX {
        texts.push("…".to_owned());
    }
    texts.join(", ")
}

fn parallel(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(number) if (1..=PARALLEL_MAX).contains(&number) => Ok(number),
        _ => Err(Error::Usage(format!(
            "{text:?} is not a number from 1 to {PARALLEL_MAX}"
        ))),
    }
}

/// Parses `NAME` or `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, Option<String>)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let is_name = !name.is_empty()
        && name.chars().all(is_sign)
        && !name.starts_with(|sign: char| sign.is_ascii_digit());
    if is_name {
        Ok((name.to_owned(), value))
    } else {
        Err(Error::Usage(format!(
            "{text:?} is not a variable: use NAME or NAME=VALUE"
        )))
    }
}

/// `tonnage hosts`.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct HostsArgs {
    /// The hosts, joined by commas, as for --hosts.
    #[arg(
        value_name = "HOSTS",
        value_delimiter = ',',
        value_parser = HostSlots::parse,
        required_unless_present = "hostfile",
        conflicts_with = "hostfile"
    )]
    pub hosts: Vec<HostSlots>,

    /// The hosts of this file, as for --hostfile.
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<HostListFile>,

    /// Network interface on which ranks would meet, on the first host.
    #[arg(long, alias = "interface", value_name = "NAME")]
    pub control_interface: Option<String>,

    /// How to reach the hosts.
    #[command(flatten)]
    pub ssh: SshArgs,
}
