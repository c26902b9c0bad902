//! The worker of a rank, with a method for each order.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_ranks::Rank;
use tonnage_units::{Error, Result};

use super::backend::TorchBackend;
use super::buffers::{TimeStamps, TorchBuffers};
use super::call::{TorchCall, is_in_place};
use super::failure::WorkerFailure;
use super::rounds::complete_on_all_ranks;
use super::worker_connection::{WorkerConnection, WorkerOrder};
use tonnage_loops::calls::CallSpan;

/// Time limit for starting Python and loading torch, possibly from a remote file system.
const LOAD_TIMEOUT: Duration = Duration::from_secs(180);

/// Time limit for a worker to shut down its process group. Afterwards the worker is killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Name of the ranks' clock in Python.
const CLOCK: &str = "clock_gettime(CLOCK_MONOTONIC)";

/// Variables that select the network interface of a library. They are set unless the environment has them already.
const INTERFACE_VARIABLES: [&str; 2] = ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"];

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Path of Python, or a name to look up in PATH.
    pub python: String,
    /// The library that makes the calls.
    pub backend: TorchBackend,
    /// CPUs that the rank could use before it was pinned. The worker may use all of them.
    pub cpus: Vec<u32>,
    /// Number of the GPU that holds the tensors; `None` if they are in host memory.
    pub gpu: Option<u32>,
    /// Network interface for gloo and NCCL, unless the environment names one.
    pub interface: Option<String>,
    /// Time limit for one call, and for an order without calls.
    pub timeout: Duration,
}

/// The worker's versions and hardware, as the worker reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchVersions {
    /// Version of Python.
    pub python: String,
    /// Path of Python.
    pub executable: String,
    /// Version of torch.
    pub torch: String,
    /// Libraries that this torch was built with, under torch's names.
    pub backends: Vec<String>,
    /// Version of CUDA that this torch was built for.
    pub cuda: Option<String>,
    /// Number of GPUs.
    pub devices: u32,
    /// CPUs that the worker may use.
    pub cpus: Vec<u32>,
    /// Number of threads that torch uses for operations on tensors. gloo and NCCL have additional threads.
    pub threads: u32,
    clock: String,
    /// Time namespace of the worker's `CLOCK_MONOTONIC`; empty if the kernel has no time namespaces.
    time_namespace: String,
    no_torch: Option<String>,
    torch_is_absent: bool,
}

/// A command to make calls.
#[derive(Debug, Clone, Copy)]
pub struct RunOrder {
    /// Number of calls.
    pub iterations: u64,
    /// Whether a barrier of all ranks precedes each call, outside the call's time. Otherwise, calls run back to back
    /// after a single barrier.
    pub align: bool,
    /// Whether the next input of the ring is copied into the call's tensor before each iteration, outside its time.
    /// Otherwise, one input is copied before the first iteration.
    pub refill_each: bool,
    /// Slot of the first input.
    pub slot: u32,
    /// Whether the output file is first copied into the call's output tensor. A call without any effect is then
    /// detected.
    pub poison: bool,
}

/// The worker of this rank. When this value is dropped, the worker's process is killed.
#[derive(Debug)]
pub struct TorchWorker {
    talk: WorkerConnection,
    settings: WorkerSettings,
    rank: u32,
    size: u32,
    /// Versions and hardware that the worker reported.
    pub found: TorchVersions,
    /// Variables with network interfaces for gloo and NCCL that the worker was started with.
    pub environment: Vec<(String, String)>,
    /// Calls that were probed, reduced to a few bytes, each with the function of torch that makes it.
    probed: Vec<(TorchCall, String)>,
    buffers: Option<TorchBuffers>,
    stamps: Option<TimeStamps>,
}

impl TorchWorker {
    /// Starts Python and loads torch. `env` looks up environment variables, which may select network interfaces. The
    /// kernel ends the worker when the calling thread ends, even if the rank is killed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Python, torch, the backend or the GPU is missing.
    pub fn start(
        rank: &Rank,
        settings: WorkerSettings,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, WorkerFailure> {
        let environment = environment(&settings, env);
        let mut talk = WorkerConnection::start(rank, &settings.python, &environment)?;
        let order = WorkerOrder::Hello {
            cpus: &settings.cpus,
        };
        talk.order(&order, &[])?;
        let answer = await_answer(&mut talk, LOAD_TIMEOUT.max(settings.timeout))?;
        let found: TorchVersions = serde_json::from_value(answer)
            .map_err(|error| Error::Failed(format!("the first answer of the worker: {error}")))?;
        check(&found, &settings)?;
        Ok(Self {
            talk,
            rank: rank.id(),
            size: rank.size(),
            settings,
            found,
            environment,
            probed: Vec::new(),
            buffers: None,
            stamps: None,
        })
    }

    /// Returns the process ID.
    pub fn process_id(&mut self) -> u32 {
        self.talk.process.id()
    }

    /// Connects the workers of all ranks. All ranks call this.
    pub fn init(&mut self, rank: &mut Rank) -> Result<()> {
        let limit = self.settings.timeout;
        let order = WorkerOrder::Init {
            backend: self.settings.backend.name(),
            rank: self.rank,
            size: self.size,
            device: self.settings.gpu,
            // The worker's timeout is longer than the rank's, because the rank's message is more specific.
            timeout_s: 2.0 * limit.as_secs_f64() + 60.0,
        };
        let given = self.talk.order(&order, &[]);
        complete_on_all_ranks(
            &mut self.talk,
            rank,
            "connect the workers of torch.distributed",
            given,
            limit,
        )?;
        Ok(())
    }

    /// Makes a call with a few bytes. All ranks call this. Afterwards, the group and its connections exist, and a
    /// missing feature is known. Returns the function of torch that makes the call. If an earlier call differed only in
    /// its size, it is not repeated.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the backend lacks the operation, type or reduction. Workers then remain usable.
    /// Otherwise the failure closest to the cause, which is the same on all ranks.
    pub fn probe(&mut self, rank: &mut Rank, call: &TorchCall) -> Result<String> {
        let small = call.with_few_bytes();
        if let Some((_, form)) = self.probed.iter().find(|(known, _)| *known == small) {
            return Ok(form.clone());
        }
        let order = small
            .order(self.rank)
            .map(|call| WorkerOrder::Probe { call });
        let given = order
            .map_err(WorkerFailure::from)
            .and_then(|order| self.talk.order(&order, &[]));
        let what = "a call of torch.distributed with a few bytes";
        let answer =
            complete_on_all_ranks(&mut self.talk, rank, what, given, self.settings.timeout)?;
        let form = text(&answer, "form")?;
        self.probed.push((small, form.clone()));
        Ok(form)
    }

    /// Creates tensors and memory files for a probed call. Returns the memory of `slots` inputs ([`TorchBuffers`]
    /// explains why there can be several), and of the output.
    pub fn prepare(&mut self, call: &TorchCall, slots: u32) -> Result<TorchBuffers, WorkerFailure> {
        let (input, output) = call.bytes(self.rank)?;
        // Frees the old memory first, because there may not be enough for both.
        self.buffers = None;
        let buffers = TorchBuffers::new(input, output, slots)?;
        let order = WorkerOrder::Prepare {
            call: call.order(self.rank)?,
            slot_bytes: buffers.slot_bytes,
            slots: buffers.slots,
            output_offset: buffers.output,
        };
        self.talk.order(&order, &[buffers.file()?])?;
        let answer = await_answer(&mut self.talk, self.settings.timeout)?;
        let expected = is_in_place(call.shape.op, call.in_place);
        if answer.get("in_place").and_then(Value::as_bool) != Some(expected) {
            return Err(WorkerFailure::from(Error::Failed(
                "torch's worker and its rank disagree about whether the call is in place".into(),
            )));
        }
        self.buffers = Some(buffers.clone());
        Ok(buffers)
    }

    /// Makes calls. Afterwards, [`Self::span`] returns their times.
    pub fn run(&mut self, order: RunOrder) -> Result<(), WorkerFailure> {
        let RunOrder {
            iterations, slot, ..
        } = order;
        let known = self.stamps.take().filter(|known| known.holds(iterations));
        let new_stamps = known.is_none();
        let stamps = known.map_or_else(|| TimeStamps::new(iterations), Ok)?;
        stamps.clear(iterations);
        let line = WorkerOrder::Run {
            iterations,
            refill_each: order.refill_each,
            align: if order.align { "world" } else { "none" },
            slot,
            poison: order.poison,
            new_stamps,
        };
        let file = [stamps.file()?];
        self.talk
            .order(&line, if new_stamps { &file } else { &[] })?;
        await_run_end(&mut self.talk, &stamps, iterations, self.settings.timeout)?;
        self.stamps = Some(stamps);
        Ok(())
    }

    /// Returns start and end of an iteration in the last run, by this host's `CLOCK_MONOTONIC`. Returns zeros without a
    /// run.
    pub fn span(&self, iteration: u64) -> CallSpan {
        let stamps = self.stamps.as_ref();
        stamps.map_or_else(CallSpan::default, |stamps| stamps.span(iteration))
    }

    /// Copies the result of the last call into the output file.
    pub fn fetch(&mut self) -> Result<(), WorkerFailure> {
        self.talk.order(&WorkerOrder::Fetch, &[])?;
        await_answer(&mut self.talk, self.settings.timeout)?;
        Ok(())
    }

    /// Shuts down the process group and ends the process.
    pub fn close(mut self) -> Result<(), WorkerFailure> {
        self.talk.order(&WorkerOrder::Close, &[])?;
        await_answer(&mut self.talk, CLOSE_TIMEOUT)?;
        self.talk.process.leave(CLOSE_TIMEOUT);
        Ok(())
    }
}

/// Waits for an answer. Meanwhile, no entries of the store are exchanged. Entries that libraries write are sent with
/// the next order for all ranks.
fn await_answer(talk: &mut WorkerConnection, limit: Duration) -> Result<Value, WorkerFailure> {
    let until = Instant::now() + limit;
    loop {
        if let Some(answer) = talk.await_answer(until)? {
            return Ok(answer);
        }
        if Instant::now() >= until {
            return Err(talk.overdue(limit, ""));
        }
    }
}

/// Waits for the end of a run. The rank sleeps for the timeout of one call, and only then reads the time stamps. So the
/// worker need not report progress.
fn await_run_end(
    talk: &mut WorkerConnection,
    stamps: &TimeStamps,
    iterations: u64,
    limit: Duration,
) -> Result<(), WorkerFailure> {
    let mut ended = 0;
    let mut until = Instant::now() + limit;
    loop {
        if talk.await_answer(until)?.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        if now < until {
            continue;
        }
        let before = ended;
        ended = stamps.count_ended(before, iterations);
        if ended == before {
            let progress = format!(" (iteration {} of {iterations})", ended + 1);
            return Err(talk.overdue(limit, &progress));
        }
        until = now + stamps.time_until_overdue(ended, limit);
    }
}

fn text(answer: &Value, name: &str) -> Result<String> {
    let found = answer.get(name).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| Error::Failed(format!("torch's worker did not send \"{name}\"")))
}

/// Returns the variables with network interfaces for gloo and NCCL, from the environment or otherwise from the
/// settings.
fn environment(
    settings: &WorkerSettings,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<(String, String)> {
    let chosen = |name: &&str| env(name).or_else(|| settings.interface.clone());
    let all = INTERFACE_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), chosen(name)?)));
    all.collect()
}

/// Returns an error if a requirement is missing or unsuitable.
fn check(found: &TorchVersions, settings: &WorkerSettings) -> Result<()> {
    let TorchVersions { executable, .. } = found;
    let unavailable = |why: String, how: String| {
        Err(Error::Unavailable {
            what: format!("backend torch:{}", settings.backend.name()),
            why,
            how,
        })
    };
    if found.clock != CLOCK {
        return unavailable(
            format!("the clock of {executable} is {}, not {CLOCK}", found.clock),
            "Name another Python by --python".into(),
        );
    }
    let own = tonnage_sys::host::time_namespace();
    if found.time_namespace != own {
        return unavailable(
            format!(
                "{executable} runs in the time namespace {:?} and its rank in {own:?}, so that their clocks differ",
                found.time_namespace
            ),
            "Start tonnage by a process of that namespace (`unshare --time --fork ...`), or name a Python that stays in \
             its rank's by --python"
                .into(),
        );
    }
    if let Some(why) = &found.no_torch {
        let how = if found.torch_is_absent {
            format!(
                "Install PyTorch ({executable} -m pip install torch, or Debian's python3-torch), or name a Python that \
                 has it by --python"
            )
        } else {
            format!(
                "Repair this installation of PyTorch ({executable} -c 'import torch' shows it), or name another Python by \
                 --python"
            )
        };
        return unavailable(format!("{executable} cannot import torch ({why})"), how);
    }
    let backend = settings.backend;
    let has = |name| found.backends.iter().any(|each| each == name);
    if backend != TorchBackend::Null && !has(backend.name()) {
        return unavailable(
            format!(
                "PyTorch {} of {executable} was built without it (it has: {})",
                found.torch,
                found.backends.join(", ")
            ),
            backend.advice().into(),
        );
    }
    let gpus_needed = settings.gpu.map(|gpu| gpu + 1);
    let gpus_needed = gpus_needed.unwrap_or(u32::from(backend == TorchBackend::Nccl));
    if found.devices < gpus_needed {
        return unavailable(
            format!(
                "PyTorch {} of {executable} sees {} GPUs, and this rank needs {gpus_needed}",
                found.torch, found.devices
            ),
            "Use fewer ranks on this host, a host with more GPUs (nvidia-smi lists them), or --memory host with torch:gloo"
                .into(),
        );
    }
    Ok(())
}
