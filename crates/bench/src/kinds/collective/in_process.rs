//! Backends that call a library in this process. They use memory and CPUs of this program, and one loop times all of
//! them.

use std::sync::Arc;
use std::time::Duration;

use super::backend::{Backend, Buffers, CallOrder, Prepared};
use super::watchdog::{CallProgress, Watchdog};
use crate::deadlines::DEADLINES;
use crate::failure::all_or_none;
use crate::failure::{StepFailure, agree};
use crate::kinds::kind::{Stage, effective_of_all};
use crate::opening::{CommunicatingPairs, SizedBy, check_equal_memory};
use crate::settings::Numa;
use tonnage_engine::backend::{BackendEntry, GroupCall, GroupCalls, OpenGroup, OpenGroupCalls};
use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::split_name;
use tonnage_loops::calls::{Caller, time_aligned_calls, time_back_to_back_calls};
use tonnage_loops::collective::layout::{MemoryLayout, MemoryNeeds};
use tonnage_plan::collective::CollectivePoint;
use tonnage_plan::point::Traffic;
use tonnage_plan::roles::Roles;
use tonnage_record::Effective;
use tonnage_sys::clock::Clock;
use tonnage_units::quantity::human::exact_size;
use tonnage_units::{Error, Result};

/// A library's backend, open on all ranks.
pub struct InProcess {
    calls: Box<dyn GroupCalls>,
    name: &'static str,
    in_place_always: &'static [tonnage_collective::Collective],
    layout: MemoryLayout,
    buffers: Buffers,
    rank: u32,
    clock: Clock,
    effective: Vec<Effective>,
    watchdog: Watchdog,
    /// Description of the prepared call, for messages.
    ready: String,
    // Kept alive because `buffers` refers to it.
    _memory: Arc<dyn Memory>,
}

impl InProcess {
    /// Opens a backend on all ranks, for points that share an open backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on every rank if any rank lacks a requirement. Otherwise the failure, with the rank where
    /// it happened.
    pub fn open(
        (entry, open): (&BackendEntry, OpenGroupCalls),
        points: &[&CollectivePoint],
        stage: &mut Stage<'_>,
    ) -> Result<Self> {
        let none = || Error::Failed("no points to open a backend for".into());
        let first = *points.first().ok_or_else(none)?;
        let needs = points.iter().fold(MemoryNeeds::default(), |needs, point| {
            let in_place = is_in_place(entry.in_place_always, point);
            needs.max(MemoryNeeds::for_shape(&point.shape(), in_place))
        });
        let layout = MemoryLayout::new(needs);
        let sized_by = SizedBy {
            option: "--sizes",
            bytes: first.size_bytes,
        };
        let (rank, settings) = (&mut *stage.rank, stage.settings);
        let fits = check_equal_memory(rank, settings, &first.memory, layout.bytes, sized_by);
        rank.agree("memory of the hosts", fits, DEADLINES.step)?;
        let mine = open(&OpenGroup {
            rank: rank.id(),
            ranks: rank.size(),
            group: first.grouping().position(rank.id()).group,
            groups: first.grouping().count(),
            libraries: &settings.libraries,
        });
        let calls = all_or_none(rank, "open the backend", mine)?;
        let limit = Duration::from_nanos(first.timeout_ns);
        let cpus = stage.host.topology.allowed.clone();
        let watchdog = Watchdog::start(stage.rank.alarm(), limit, cpus);
        let mine = watchdog.and_then(|it| Ok((it, pin_and_allocate(first, layout.bytes, stage)?)));
        let (watchdog, seated) = all_or_none(stage.rank, "find memory", mine)?;
        let mine = Effective {
            engine: calls.report(),
            memory: vec![seated.memory.report()].into(),
            cpus: vec![seated.cpu],
            sockets: vec![seated.socket],
            yielding: seated.is_crowded,
            ..Effective::default()
        };
        let effective = effective_of_all("describe the backends", stage.rank, mine)?;
        let arena = seated.memory.mapped(entry.name)?;
        Ok(Self {
            calls,
            name: entry.name,
            in_place_always: entry.in_place_always,
            buffers: Buffers {
                arena: Arc::clone(arena),
                input: layout.input,
                output: layout.output,
            },
            layout,
            rank: stage.rank.id(),
            clock: stage.settings.clock,
            effective,
            watchdog,
            ready: String::new(),
            _memory: seated.memory,
        })
    }
}

/// Returns whether results of a point overwrite the inputs.
fn is_in_place(always: &[tonnage_collective::Collective], point: &CollectivePoint) -> bool {
    point.in_place || always.contains(&point.op)
}

/// CPU and memory that this rank's calls use.
struct PinnedMemory {
    cpu: Option<u32>,
    socket: Option<u32>,
    is_crowded: bool,
    memory: Arc<dyn Memory>,
}

/// Pins this thread to the CPU that an engine's worker would get, and allocates memory near this CPU.
fn pin_and_allocate(
    point: &CollectivePoint,
    bytes: u64,
    stage: &Stage<'_>,
) -> Result<PinnedMemory> {
    let (settings, host) = (stage.settings, stage.host);
    let pairs = CommunicatingPairs {
        roles: Roles::new(Traffic::AllToAll, point.ranks),
        asked: point.place,
    };
    let placement = pairs.placement(stage.rank, 1.into(), settings, host)?;
    let cpu = placement.cpus.first().copied().flatten();
    if let Some(cpu) = cpu {
        tonnage_machine::pin_thread(cpu)?;
    }
    let allocate = settings.lists.memory_of_point(&point.memory)?.allocate;
    let memory = allocate(&Request {
        variant: split_name(&point.memory).1,
        bytes,
        shared: false,
        node: settings.numa.node(&host.topology, cpu)?,
        node_required: matches!(settings.numa, Numa::Node(_)),
        gpu: settings.gpu(stage.rank.identity().local_rank),
        options: None,
        libraries: Some(&settings.libraries),
    })?;
    Ok(PinnedMemory {
        cpu,
        socket: cpu.and_then(|cpu| host.topology.socket_of_cpu(cpu)),
        is_crowded: placement.yielding,
        memory,
    })
}

/// The calls of a trial with a barrier before each call. At the barrier, outside the timed interval, the watchdog
/// learns which call follows.
struct AlignedCalls<'a> {
    calls: &'a mut dyn GroupCalls,
    progress: &'a CallProgress,
    begun: u64,
}

impl Caller for AlignedCalls<'_> {
    fn align(&mut self) -> Result<()> {
        self.begun += 1;
        self.progress.enter(self.begun);
        self.calls.align()
    }

    fn call(&mut self) -> Result<()> {
        self.calls.call()
    }
}

/// The calls of a trial without barriers between them.
struct BackToBackCalls<'a>(AlignedCalls<'a>);

impl Caller for BackToBackCalls<'_> {
    fn align(&mut self) -> Result<()> {
        self.0.progress.enter(1);
        self.0.calls.align()
    }

    fn call(&mut self) -> Result<()> {
        self.0.begun += 1;
        self.0.progress.enter(self.0.begun);
        self.0.calls.call()
    }
}

impl Backend for InProcess {
    fn prepare(
        &mut self,
        point: &CollectivePoint,
        stage: &mut Stage<'_>,
    ) -> Result<Prepared, StepFailure> {
        let in_place = is_in_place(self.in_place_always, point);
        let (shape, places) = (point.shape(), (self.layout.input, self.layout.output));
        let arena = Arc::clone(&self.buffers.arena);
        let place = point.grouping().position(self.rank).place;
        self.buffers = Buffers::new(&arena, places, &shape, place, in_place);
        let ready = self.calls.prepare(GroupCall {
            shape,
            reduction: point.reduction,
            in_place,
            memory: arena,
            input: self.buffers.input,
            output: self.buffers.output,
        });
        self.ready = match shape.size_bytes() {
            0 => format!("{} by {}", point.op, self.name),
            bytes => format!("{} of {} by {}", point.op, exact_size(bytes), self.name),
        };
        self.buffers.output = agree(stage.rank, "a call of a library", ready, DEADLINES.step)?;
        Ok(Prepared {
            in_place,
            has_results: true,
        })
    }

    fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn run(&mut self, order: &mut CallOrder<'_>) -> Result<()> {
        self.watchdog.watch(Some(self.ready.clone()));
        let progress = self.watchdog.progress();
        let mut calls = AlignedCalls {
            calls: &mut *self.calls,
            progress,
            begun: 0,
        };
        let (iterations, clock) = (order.iterations, &self.clock);
        // Writing the inputs is not a call, so the watchdog's timeout does not apply to it.
        let mut before = |iteration| {
            progress.leave();
            (order.before)(iteration)
        };
        let ended = if order.align {
            time_aligned_calls(&mut calls, clock, iterations, &mut before, order.spans)
        } else {
            let calls = &mut BackToBackCalls(calls);
            time_back_to_back_calls(calls, clock, iterations, &mut before, order.spans)
        };
        self.watchdog.watch(None);
        ended
    }

    fn effective(&self) -> Vec<Effective> {
        self.effective.clone()
    }
}
