//! A backend that consists of the torch workers of all ranks. The data of a whole trial are written before the trial.
//! The times of its calls and the last result are read after the trial.

use std::sync::Arc;
use std::time::Duration;

use tonnage_collective::Reduction;
use tonnage_engine::backends::TORCH_GPU_MEMORY;
use tonnage_engine::memory::MemoryReport;
use tonnage_engine::{EngineReport, Facts, LibraryReport, fact_names};
use tonnage_plan::collective::{CollectivePoint, Refill};
use tonnage_ranks::Rank;
use tonnage_record::Effective;
use tonnage_sys::mapping::{Arena, OutOfRange, Pages, Sharing};
use tonnage_units::{Error, Result};

use super::failure::{self, WorkerFailure};
use super::{
    RunOrder, TorchBackend, TorchBuffers, TorchCall, TorchWorker, WorkerSettings, is_in_place,
};
use crate::deadlines::DEADLINES;
use crate::failure::StepFailure;
use crate::kinds::collective::backend::{Backend, Buffers, CallOrder, Prepared};
use crate::kinds::kind::{Stage, effective_of_all};
use crate::opening::description::interface_of;
use tonnage_loops::calls::CallSpan;

/// Number of inputs in the ring. With two, consecutive iterations have different data.
const SLOTS: u32 = 2;

/// After this number of consecutive points with failed workers, workers are no longer restarted.
const LOST_MAX: u32 = 2;

/// Number of bytes that one step copies within the ring of inputs.
const COPY_BYTES: u64 = 1 << 20;

/// The torch.distributed workers, open on all ranks.
pub struct TorchWorkers {
    backend: TorchBackend,
    /// This rank's worker. `None` after the worker of any rank has failed, because the state of all others is then
    /// unknown.
    worker: Option<TorchWorker>,
    /// Number of consecutive points in which workers failed. It is the same on all ranks.
    lost: u32,
    timeout: Duration,
    ring: Option<TorchBuffers>,
    buffers: Buffers,
    refills: bool,
    /// Failure of this rank's worker in the last run, which must still be reported to all ranks.
    failed: Option<WorkerFailure>,
    effective: Vec<Effective>,
}

impl TorchWorkers {
    /// Starts the workers of all ranks and connects them to each other.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank if any rank lacks Python, torch, the library or a GPU.
    pub fn open(
        backend: TorchBackend,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Self> {
        check_memory(&point.memory, stage.settings.lists.default_memory())?;
        let (worker, effective) = start(backend, point, stage)?;
        let nothing = Arena::allocate(1, Pages::Normal, Sharing::Private, None);
        let nothing = nothing.map_err(|error| Error::io("cannot allocate a byte", error))?;
        Ok(Self {
            backend,
            worker: Some(worker),
            lost: 0,
            timeout: Duration::from_nanos(point.timeout_ns),
            ring: None,
            buffers: Buffers {
                arena: Arc::new(nothing),
                input: 0,
                output: 0,
            },
            refills: false,
            failed: None,
            effective,
        })
    }

    /// Restarts workers after a failure. Gives up if workers failed in `LOST_MAX` consecutive points, because each
    /// failure may take the whole timeout.
    fn restart_lost(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<(), StepFailure> {
        if self.worker.is_some() {
            self.lost = 0;
            return Ok(());
        }
        if self.lost >= LOST_MAX {
            let backend = self.backend.variant();
            return Err(StepFailure::Point(Error::Unavailable {
                what: format!("backend torch:{backend}"),
                why: format!("its workers failed in the last {LOST_MAX} points"),
                how: "Look up the reasons in the records of these points".into(),
            }));
        }
        let started = start(self.backend, point, stage);
        let (worker, effective) = started.map_err(|error| {
            // A worker that cannot start counts as failed too. Otherwise a start would be tried for every further
            // point.
            self.lost += 1;
            StepFailure::from_agreed(stage.rank, error)
        })?;
        (self.worker, self.effective) = (Some(worker), effective);
        Ok(())
    }

    /// Time after which every rank must know the outcome of its own worker.
    fn deadline(&self) -> Duration {
        self.timeout + DEADLINES.step
    }

    /// Combines the outcomes of a step on all ranks. After a failure, all workers are dropped. If only a feature is
    /// missing, they are kept, because all workers have noticed this and stay usable.
    fn agree_on(
        &mut self,
        rank: &mut Rank,
        what: &str,
        mine: Result<(), WorkerFailure>,
    ) -> Result<(), StepFailure> {
        let agreed = failure::agree(rank, what, mine, self.deadline());
        self.drop_if_failed(rank, agreed)
    }

    fn drop_if_failed<T>(&mut self, rank: &Rank, agreed: Result<T>) -> Result<T, StepFailure> {
        agreed.map_err(|error| {
            if !matches!(error, Error::Unavailable { .. }) {
                self.worker = None;
                self.lost += 1;
            }
            StepFailure::from_agreed(rank, error)
        })
    }

    fn worker(&mut self) -> Result<&mut TorchWorker> {
        let gone =
            || Error::Failed("torch's workers were ended after the failure of one of them".into());
        self.worker.as_mut().ok_or_else(gone)
    }

    /// Fills the ring with the inputs of the last iterations, each in its own slot. The last iteration then has its own
    /// data.
    fn fill(&self, order: &mut CallOrder<'_>) -> Result<()> {
        let ring = self.ring.as_ref().ok_or_else(not_prepared_error)?;
        // Without refills, all iterations use the first input.
        let iterations = if self.refills {
            order.iterations.saturating_sub(ring.slots.into())..order.iterations
        } else {
            0..order.iterations.min(1)
        };
        let slot_of = |iteration: u64| (iteration % u64::from(ring.slots)) as u32;
        // `before` always writes into the first slot, from which inputs are copied to other slots. So the first slot is
        // filled last.
        let (own, others): (Vec<u64>, Vec<u64>) = iterations.partition(|&it| slot_of(it) == 0);
        for iteration in others.into_iter().chain(own) {
            (order.before)(iteration)?;
            let to = ring.input_offset(slot_of(iteration));
            copy(&ring.arena, to, ring.slot_bytes)?;
        }
        Ok(())
    }

    fn read_spans(&mut self, order: &mut CallOrder<'_>) -> Result<()> {
        let (iterations, worker) = (order.iterations, self.worker()?);
        let span = |iteration| worker.span(iteration);
        if order.align {
            order.spans.extend((0..iterations).map(span));
        } else {
            order.spans.push(CallSpan {
                begin_ns: span(0).begin_ns,
                end_ns: span(iterations - 1).end_ns,
            });
        }
        Ok(())
    }

    fn call(&mut self, order: &mut CallOrder<'_>) -> Result<(), WorkerFailure> {
        self.fill(order)?;
        let refills = self.refills;
        let (iterations, checked) = (order.iterations, order.is_checked);
        let worker = self.worker()?;
        worker.run(RunOrder {
            iterations,
            align: order.align,
            refill_each: refills,
            slot: 0,
            poison: checked,
        })?;
        if checked {
            worker.fetch()?;
        }
        Ok(self.read_spans(order)?)
    }
}

/// Starts the workers of all ranks and connects them. Returns this rank's worker, and the effective configuration of
/// all ranks.
fn start(
    backend: TorchBackend,
    point: &CollectivePoint,
    stage: &mut Stage<'_>,
) -> Result<(TorchWorker, Vec<Effective>)> {
    let settings = settings(backend, point, stage);
    let timeout = settings.timeout;
    let rank = &mut *stage.rank;
    let started = TorchWorker::start(rank, settings, &|name| std::env::var(name).ok());
    // Loading torch from a remote file system can take minutes.
    let most = timeout + DEADLINES.step * 4;
    let mut worker = failure::agree(rank, "start torch's workers", started, most)?;
    rank.set_phase("connecting torch's workers");
    worker.init(rank)?;
    let kind = match backend {
        TorchBackend::Nccl => TORCH_GPU_MEMORY,
        _ => "host",
    };
    let memory = MemoryReport {
        kind: kind.to_owned(),
        ..MemoryReport::default()
    };
    let mine = Effective {
        engine: report(backend, &worker),
        memory: vec![memory].into(),
        ..Effective::default()
    };
    Ok((
        worker,
        effective_of_all("describe torch's workers", rank, mine)?,
    ))
}

fn not_prepared_error() -> Error {
    Error::Failed("no call of torch.distributed was prepared".into())
}

/// Returns the settings for this rank's worker.
fn settings(backend: TorchBackend, point: &CollectivePoint, stage: &Stage<'_>) -> WorkerSettings {
    let (rank, named) = (&*stage.rank, &stage.settings.devices.all_ranks);
    let own = || rank.local_ip().and_then(interface_of);
    WorkerSettings {
        python: point.python.clone(),
        backend,
        // CPUs that the rank could use before it was pinned.
        cpus: stage.host.topology.allowed.clone(),
        gpu: gpu_of(backend, rank.identity().local_rank, |local| {
            stage.settings.gpu(local)
        }),
        interface: named.first().cloned().or_else(own),
        timeout: Duration::from_nanos(point.timeout_ns),
    }
}

/// Returns the GPU of a rank: the one that `--gpus` names, or otherwise the one with the rank's number on its host.
/// `None` if the backend uses no GPU.
fn gpu_of(
    backend: TorchBackend,
    local_rank: u32,
    named: impl Fn(u32) -> Option<u32>,
) -> Option<u32> {
    let own = || named(local_rank).unwrap_or(local_rank);
    (backend == TorchBackend::Nccl).then(own)
}

/// Rejects any memory except the default, because torch's worker allocates its own.
fn check_memory(asked: &str, own: &str) -> Result<()> {
    if asked == own {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: format!("memory {asked} for torch.distributed"),
        why: "torch allocates its tensors itself".into(),
        how: format!("Use --memory {own}, or other backends"),
    })
}

fn report(backend: TorchBackend, worker: &TorchWorker) -> EngineReport {
    let found = &worker.found;
    let facts = Facts::default()
        .with_fact(fact_names::PYTHON, found.python.clone())
        .with_fact("threads", found.threads)
        .with_optional_fact(fact_names::CUDA, found.cuda.clone());
    let interfaces = worker.environment.iter();
    let facts = interfaces.fold(facts, |facts, (name, value)| {
        facts.with_fact(&name.to_lowercase(), value.clone())
    });
    EngineReport {
        name: format!("torch:{}", backend.variant()),
        library: Some(LibraryReport {
            version: format!("PyTorch {}", found.torch),
            library: found.executable.clone(),
        }),
        facts,
        ..EngineReport::default()
    }
}

/// Copies the first input of the ring to the offset `to`.
fn copy(arena: &Arena, to: u64, bytes: u64) -> Result<()> {
    let failed = |error: OutOfRange| Error::Failed(format!("inputs of torch's worker: {error}"));
    let mut part = vec![0; bytes.min(COPY_BYTES) as usize];
    let mut done = 0;
    while to > 0 && done < bytes {
        let part = &mut part[..(bytes - done).min(COPY_BYTES) as usize];
        arena.read(done, part).map_err(failed)?;
        arena.write(to + done, part).map_err(failed)?;
        done += part.len() as u64;
    }
    Ok(())
}

impl Backend for TorchWorkers {
    fn prepare(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Prepared, StepFailure> {
        self.restart_lost(point, stage)?;
        let rank = &mut *stage.rank;
        let grouping = point.grouping();
        let call = TorchCall {
            shape: point.shape(),
            reduction: point.reduction.unwrap_or(Reduction::Sum),
            in_place: point.in_place,
            groups: (0..grouping.count())
                .map(|group| grouping.members(group).collect())
                .collect(),
        };
        self.refills = point.refill == Refill::Iteration;
        let slots = if self.refills { SLOTS } else { 1 };
        let probed = self.worker()?.probe(rank, &call);
        self.drop_if_failed(rank, probed)?;
        let made = self.worker()?.prepare(&call, slots);
        let made = made.map(|ring| {
            self.buffers = Buffers {
                arena: Arc::clone(&ring.arena),
                input: ring.input_offset(0),
                output: ring.output,
            };
            self.ring = Some(ring);
        });
        self.agree_on(rank, "memory of torch's workers", made)?;
        Ok(Prepared {
            in_place: is_in_place(point.op, point.in_place),
            has_results: self.backend != TorchBackend::Null,
        })
    }

    fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn run(&mut self, order: &mut CallOrder<'_>) -> Result<()> {
        self.call(order).map_err(|failure| {
            let error = Error::Failed(failure.error.to_string());
            self.failed = Some(failure);
            error
        })
    }

    fn agree(&mut self, stage: &mut Stage<'_>, ended: Result<()>) -> Result<(), StepFailure> {
        let mine = match self.failed.take() {
            Some(failure) => Err(failure),
            None => ended.map_err(WorkerFailure::from),
        };
        self.agree_on(stage.rank, "calls of torch.distributed", mine)
    }

    fn effective(&self) -> Vec<Effective> {
        self.effective.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--gpus 2,3` assigns these GPUs in turn to the ranks of a host, if the backend needs GPUs.
    #[test]
    fn a_rank_gets_its_gpu_from_the_list() {
        let named = |local: u32| Some([2, 3][local as usize % 2]);
        let of = |backend, local| gpu_of(backend, local, named);
        assert_eq!(
            [0, 1, 2].map(|local| of(TorchBackend::Nccl, local)),
            [Some(2), Some(3), Some(2)]
        );
        assert_eq!(gpu_of(TorchBackend::Nccl, 1, |_| None), Some(1));
        assert_eq!(of(TorchBackend::Gloo, 0), None);
    }

    #[test]
    fn memory_other_than_torchs_own_is_rejected() {
        assert!(check_memory("host", "host").is_ok());
        let refused = check_memory("huge", "host").unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }));
        assert!(refused.to_string().contains("--memory host"), "{refused}");
    }

    #[test]
    fn an_input_is_copied_completely() {
        let bytes = COPY_BYTES + 7;
        let arena = Arena::allocate(3 << 20, Pages::Normal, Sharing::Private, None).unwrap();
        arena.write(COPY_BYTES, &[1, 2, 3, 4, 5, 6, 7]).unwrap();
        copy(&arena, bytes, bytes).unwrap();
        let mut found = [0; 7];
        arena.read(bytes + COPY_BYTES, &mut found).unwrap();
        assert_eq!(found, [1, 2, 3, 4, 5, 6, 7]);
    }
}
