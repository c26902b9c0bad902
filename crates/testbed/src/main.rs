//! `make hosts`: creates hosts on this machine, and runs a shell that can use them.
//!
//! The hosts are removed when the shell ends, or when this program ends, even by SIGKILL.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use tonnage_testbed::{Error, Hosts, HostsSpec, LinkRates, Rate, Result, Slurm, Ssh};

/// Slurm programs with a wrapper that runs them at the switch, so that users can type them as on a cluster.
const SLURM_PROGRAMS: [&str; 7] = [
    "srun", "sbatch", "salloc", "scancel", "sinfo", "squeue", "scontrol",
];

/// Create hosts on this machine (network namespaces on a switch of their own), run a shell or a command next to them,
/// and remove them. Needs root.
#[derive(Debug, Parser)]
#[command(name = "tonnage-testbed", version)]
struct Arguments {
    /// Number of hosts.
    #[arg(long, default_value_t = 2)]
    count: usize,
    /// Number of links of each host: eth0, eth1, …; links of the same number form a rail with its own subnet.
    #[arg(long, default_value_t = 1)]
    links: usize,
    /// Rate of each link in both directions, such as 10gbit; by default limited only by the CPU.
    #[arg(long)]
    rate: Option<Rate>,
    /// Rate at which each link sends, if different from --rate.
    #[arg(long, value_name = "RATE")]
    send_rate: Option<Rate>,
    /// Rate at which each link receives, if different from --rate.
    #[arg(long, value_name = "RATE")]
    receive_rate: Option<Rate>,
    /// Start a Slurm with the hosts as its nodes.
    #[arg(long)]
    slurm: bool,
    /// Command to run instead of a shell.
    #[arg(last = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<u8> {
    // Ctrl-C is for the command. This program ignores it, and removes the hosts when the command ends.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted)
        .map_err(|error| Error::Failed(format!("cannot prepare for SIGINT: {error}")))?;
    let hosts = Hosts::new(HostsSpec {
        count: arguments.count,
        links: arguments.links,
        rates: rates_of(arguments),
    })?;
    let slurm = if arguments.slurm {
        Some(Slurm::start(&hosts)?)
    } else {
        None
    };
    let ssh = match Ssh::start(&hosts) {
        Ok(ssh) => Some(ssh),
        Err(Error::Unavailable(why)) => {
            eprintln!("ssh to these hosts is not available: {why}");
            None
        }
        Err(error) => return Err(error),
    };
    let mut command = command_of(arguments);
    command.env("PATH", path_of(&hosts)?);
    // This program may itself run in a Slurm step. Programs in the hosts would take the step's variables for their own.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLURM_") {
            command.env_remove(name);
        }
    }
    for host in 0..hosts.count() {
        command.env(format!("HOST{host}"), hosts.address(host).to_string());
        for rail in 1..hosts.links() {
            let address = hosts.link(host, rail).address();
            command.env(format!("HOST{host}_RAIL{rail}"), address.to_string());
        }
    }
    if let Some(slurm) = &slurm {
        write_slurm_programs(&hosts)?;
        command.env("SLURM_CONF", slurm.configuration());
    }
    if arguments.command.is_empty() {
        introduce(arguments, &hosts, ssh.is_some());
    }
    let status = command.status().map_err(|error| {
        let program = command.get_program().display();
        Error::Failed(format!("cannot run {program}: {error}"))
    })?;
    drop((slurm, ssh));
    hosts.close()?;
    let code = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

fn rates_of(arguments: &Arguments) -> LinkRates {
    LinkRates {
        send: arguments.send_rate.or(arguments.rate),
        receive: arguments.receive_rate.or(arguments.rate),
    }
}

fn command_of(arguments: &Arguments) -> Command {
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let Some((program, rest)) = arguments.command.split_first() else {
        return Command::new(shell());
    };
    let mut command = Command::new(program);
    command.args(rest);
    command
}

/// Returns PATH with the folder of the program `on` in front.
fn path_of(hosts: &Hosts) -> Result<OsString> {
    let usual = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let folders = std::iter::once(hosts.folder().join("bin")).chain(std::env::split_paths(&usual));
    std::env::join_paths(folders)
        .map_err(|error| Error::Failed(format!("cannot extend PATH: {error}")))
}

fn write_slurm_programs(hosts: &Hosts) -> Result<()> {
    for program in SLURM_PROGRAMS {
        let path = hosts.folder().join("bin").join(program);
        // The wrapper removes its own folder from PATH, so that the search finds the real program.
        let text = format!(
            "#!/bin/sh\nbin=${{0%/*}}\nPATH=${{PATH#$bin:}} exec \"$bin/on\" switch {program} \"$@\"\n"
        );
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(|error| Error::Failed(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

fn introduce(arguments: &Arguments, hosts: &Hosts, has_ssh: bool) {
    let LinkRates { send, receive } = rates_of(arguments);
    let (send, receive) = (rate_in_words(send), rate_in_words(receive));
    println!("Hosts on this machine; each link sends {send} and receives {receive}.");
    for host in 0..hosts.count() {
        let addresses: Vec<_> = (0..hosts.links())
            .map(|rail| hosts.link(host, rail).address().to_string())
            .collect();
        let addresses = addresses.join("  ");
        println!("  h{host}  {addresses}  {}", hosts.namespace(host));
    }
    println!("  on 0 CMD...        runs CMD in h0; `on switch CMD...` at the switch");
    println!("  $HOST0, $HOST1...  their addresses; inside the hosts the names h0, h1... work too");
    if hosts.links() > 1 {
        println!("  $HOST0_RAIL1...    addresses of further links; inside the hosts h0-rail1...");
    }
    println!("  on switch ip link set h0 down   cuts this link; `up` restores it");
    if has_ssh {
        println!(
            "  ssh h0 CMD...      does the same by a real sshd, and so does tonnage ... --hosts h0,h1"
        );
    }
    if arguments.slurm {
        println!("  srun, sbatch...    a Slurm with these hosts as nodes");
    } else {
        println!("  --slurm (make hosts SLURM=1) would start a Slurm with these hosts as nodes");
    }
    if std::io::stdin().is_terminal() {
        println!("They are removed when this shell ends.");
    }
}

fn rate_in_words(rate: Option<Rate>) -> String {
    rate.map_or_else(
        || "as fast as the CPU".to_owned(),
        |rate| {
            let megabytes = rate.tcp_payload_bytes_per_s() / 1e6;
            format!("{rate} (at most {megabytes:.1} MB/s of TCP payload)")
        },
    )
}
