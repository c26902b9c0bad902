//! Options that several commands share: placement of ranks, destination of results, and log level.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tonnage_bench::settings::{DeviceNames, Numa};
use tonnage_engine::Libraries;
use tonnage_machine::CpuChoice;
use tonnage_plan::Plan;
use tonnage_plan::options::one_of;
use tonnage_ranks::ExplicitRank;
use tonnage_ranks::spawn::remote::list::HostPlacement;
use tonnage_report::Format;
use tonnage_units::{Error, Nanos, Result};

use super::hosts::HostArgs;
use super::values::{GpuList, Master, devices_of, library, link_speed, ranks, scale};
use super::view::ViewArgs;

/// Options for the placement of ranks, and for how ranks find each other.
#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Start this many ranks on this host, unless a launcher has started them already.
    ///
    /// Under mpirun, srun, torchrun or an Indexed Job of Kubernetes, the launcher starts the ranks.
    #[arg(long, value_name = "N", value_parser = ranks)]
    pub ranks: Option<u32>,

    /// Make this process rank N, counted from 0. This is for ranks that are started by hand or by a launcher that
    /// tonnage does not know. Needs --world-size and --master.
    #[arg(long, value_name = "N", requires = "world_size", requires = "master")]
    pub rank: Option<u32>,

    /// Number of ranks that are started by hand. Needs --rank and --master.
    #[arg(long, value_name = "N", value_parser = ranks, requires = "rank")]
    pub world_size: Option<u32>,

    /// Address on which rank 0 listens for the other ranks, such as 10.0.0.1:29500: its own address or host name, and a
    /// free port. Needs --rank and --world-size.
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    pub master: Option<Master>,

    /// CPUs for the threads of this host, such as 0-3,8, assigned in this order; "none" does not pin.
    ///
    /// By default, each thread is pinned to a separate CPU, close to its memory.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuChoice>,

    /// NUMA node of the buffers: "auto" is the node of the thread's CPU, "none" leaves it to the system.
    #[arg(long, value_name = "NODE", default_value = "auto")]
    pub numa: Numa,

    /// Devices that carry the bytes, such as eth0 or mlx5_0,mlx5_1, or "all". The threads of a host use them in turn,
    /// or as --rails requests. By default, the engine chooses one. `tonnage devices` lists them.
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub devices: Vec<String>,

    /// Devices of one rank, such as 1=mlx5_2,mlx5_3, instead of --devices; may be repeated. The rank's threads use them
    /// in turn, or as --rails requests.
    #[arg(long, value_name = "RANK=NAMES", value_parser = devices_of)]
    pub devices_of: Vec<(u32, Vec<String>)>,

    /// GPUs for the ranks of a host in turn, by their numbers in `tonnage devices`, such as 0-3 or 0,0,1,1. The
    /// memories cuda and hip of a rank are on its GPU, and cuda-pinned and hip-pinned are pinned for it.
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<GpuList>,

    /// Speed of one link, such as 100Gb/s, if the device does not report it. Bandwidth is then compared with the speed
    /// of the used links.
    #[arg(long, value_name = "BANDWIDTH", value_parser = link_speed)]
    pub link_speed: Option<u64>,

    /// A library to load, such as libfabric=/opt/lib/libfabric.so.1 or mpi=auto; may be repeated. `tonnage engines
    /// NAME` has those of an engine.
    #[arg(long, value_name = "NAME=PATH", value_parser = library)]
    pub library: Vec<(String, PathBuf)>,

    /// The libfabric to load, as --library libfabric=PATH: a path, or "embedded" for the one inside this program. By
    /// default, the first of these: TONNAGE_LIBFABRIC, that of an EFA installation, the system's, the embedded one.
    #[arg(long, value_name = "PATH")]
    pub libfabric: Option<PathBuf>,

    /// The MPI library to load, as --library mpi=PATH: a path, or "auto" for the one that fits the launcher.
    #[arg(long, value_name = "PATH|auto")]
    pub mpi: Option<PathBuf>,

    /// Network interface of the control channel, such as eth0; ranks listen only there.
    #[arg(long, alias = "interface", value_name = "NAME")]
    pub control_interface: Option<String>,

    /// Ranks on several hosts.
    #[command(flatten)]
    pub hosts: HostArgs,
}

impl RankArgs {
    /// Returns the libraries that the options name.
    pub fn libraries(&self) -> Result<Libraries> {
        let short = |name: &str, path: &Option<PathBuf>| {
            let path = path.clone();
            path.map(|path| (name.to_owned(), path))
        };
        let mut named: Vec<_> = self.library.clone();
        named.extend(short("libfabric", &self.libfabric));
        named.extend(short("mpi", &self.mpi));
        let mut libraries = Libraries::new();
        for (name, path) in named {
            if libraries.contains_key(&name) {
                return Err(Error::Usage(format!(
                    "library {name} is named twice: leave one of them out"
                )));
            }
            libraries.insert(name, path);
        }
        Ok(libraries)
    }

    /// Returns the devices that the options name, for all ranks and for single ranks.
    pub fn device_names(&self) -> Result<DeviceNames> {
        let mut names = DeviceNames {
            all_ranks: self.devices.clone(),
            ..DeviceNames::default()
        };
        for (rank, devices) in &self.devices_of {
            let before = names.of_ranks.insert(*rank, devices.clone());
            if before.is_some() {
                return Err(Error::Usage(format!(
                    "--devices-of names the devices of rank {rank} twice: leave one of them out"
                )));
            }
        }
        let lists = names.of_ranks.values().chain([&names.all_ranks]);
        let all = DeviceNames::ALL.to_owned();
        if lists
            .into_iter()
            .any(|list| list.len() > 1 && list.contains(&all))
        {
            return Err(Error::Usage(
                "the word all among the names of devices: write all alone, or only names"
                    .to_owned(),
            ));
        }
        Ok(names)
    }

    /// Returns the hosts with the number of ranks of each, if hosts are named.
    pub fn placement(&self) -> Result<Option<HostPlacement>> {
        self.hosts.placement(self.ranks)
    }

    /// Returns the number of ranks requested by --ranks or by the hosts.
    pub fn asked(&self) -> Result<Option<u32>> {
        let placement = self.placement()?;
        Ok(placement.map(|placement| placement.size()).or(self.ranks))
    }

    /// Returns rank, number of ranks and meeting point if the command line gives them. The parser ensures that all
    /// three are given together.
    pub fn explicit(&self) -> Option<ExplicitRank> {
        let Master { host, port } = self.master.clone()?;
        Some(ExplicitRank {
            rank: self.rank?,
            size: self.world_size?,
            host,
            port,
            source: "--rank/--world-size, --master".to_owned(),
        })
    }
}

/// Maximum of `--runs`.
pub const RUNS_MAX: u32 = 1000;

/// Destination and format of results.
#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(next_help_heading = "Results")]
pub struct ResultArgs {
    /// Append one JSON line for each point to this file, as soon as it is measured.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Continue an interrupted run: points in this file are not measured again, and new ones are appended to it.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,

    /// Format of standard output: tables, JSON lines or CSV.
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<Format>(), default_value_t = Format::Table,
        default_value_if("json", "true", "jsonl"), conflicts_with = "json")]
    pub format: Format,

    /// Write JSON lines: the same as --format jsonl.
    #[arg(short = 'j', long)]
    pub json: bool,

    /// End with exit code 1 unless the devices' own counters prove for every point that the payload crossed the
    /// expected devices.
    #[arg(long)]
    pub require_path: bool,

    /// Print the plan as TOML instead of running it; `tonnage run` runs it.
    #[arg(long, conflicts_with = "runs")]
    pub print_plan: bool,

    /// Print the points and the expected time, instead of running them.
    #[arg(long, conflicts_with = "print_plan")]
    pub dry_run: bool,

    /// End the whole command within this time, with the results so far. Points that no longer fit are not begun. The
    /// exit code is 0 if at least one point was measured and every measured point is sound.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Nanos>,

    /// Measure everything this many times, each time as a separate run. Each run opens everything again and has a
    /// different order of points; file experiments keep their order. With 3 runs or more, `tonnage compare` knows how
    /// much runs differ.
    #[arg(long, alias = "times", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RUNS_MAX)))]
    pub runs: Option<u32>,

    /// Multiply the length of all measurements by this factor, such as 0.1 for a quick look. It applies to the times of
    /// transfers, and to the total bytes of file experiments.
    #[arg(long, value_name = "FACTOR", value_parser = scale)]
    pub scale: Option<f64>,

    /// Tables.
    #[command(flatten)]
    pub view: ViewArgs,
}

impl ResultArgs {
    /// Returns the results file, if any. The flag is true if points in the file are skipped.
    pub fn output(&self) -> Result<Option<(PathBuf, bool)>> {
        match (&self.output, &self.resume) {
            (Some(output), Some(resume)) if !same_file(output, resume) => {
                Err(Error::Usage(format!(
                    "--output {} and --resume {} name different files, and a resumed run goes on in its own file: \
                 leave --output out",
                    output.display(),
                    resume.display()
                )))
            }
            (_, Some(resume)) => Ok(Some((resume.clone(), true))),
            (output, None) => Ok(output.clone().map(|path| (path, false))),
        }
    }

    /// Applies `--scale` to a plan, and adapts it to the run's number of ranks.
    pub fn scaled(&self, mut plan: Plan, ranks: u32) -> Result<Plan> {
        if let Some(factor) = self.scale {
            plan.scale(factor, ranks)?;
        }
        plan.fit_ranks(ranks);
        Ok(plan)
    }
}

/// Returns whether two paths name the same file. A file that does not exist yet can only be compared by its path.
fn same_file(one: &Path, other: &Path) -> bool {
    let known = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    one == other || known(one) == known(other)
}

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Messages that end the run.
    Error,
    /// Also messages about doubtful results.
    Warn,
    /// Also progress, and the choices that were made.
    Info,
    /// Also details for finding out why ranks do not find each other.
    Debug,
}
