//! One port of a device: its capabilities, its report and its workers.

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_engine::{
    BoundKind, Caps, DeviceMemoryAccess, Domain, Engine, EngineReport, Facts, LibraryReport,
    OpenRequest, Verb, WorkerConfig,
};
use tonnage_machine::devices::{RdmaDevice, RdmaPort};
use tonnage_sys::kread::KREAD_SLOT_BYTES_MAX;
use tonnage_sys::verbs::{DeviceLimits, piece_stride};
use tonnage_units::{Error, Result, WireDevice, WireKind};

use super::choose::{ChosenPort, unavailable};
use super::cm_port::cm_port;
use super::dc::dc_device;
use super::kernel_session::{depth_max, module_version};
use super::kernel_worker::KernelWorker;
use super::options::{Asked, format_retries};
use super::port::{EventLog, OpenPort};
use super::transport::VerbsTransport;
use super::worker::Worker;

/// Maximum depth of one lane. A greater depth would only fill queues.
const DEPTH_MAX: u32 = 4096;

/// Receives that the loops post per operation of a peer, and the smallest number of operations that they assume
/// (`tonnage_bench::kinds::transfer::flow_driver`).
const RECEIVES_PER_OPERATION: u32 = 2;
const OPERATIONS_MIN: u32 = 8;

/// If the reported maximum registration is at least this large, the device has no limit.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// One port of a device.
pub(super) struct PortDomain {
    port: Arc<OpenPort>,
    caps: Caps,
    /// Whether this rank initiates operations.
    initiates: bool,
}

/// Returns for each queue pair to a peer whether it needs receives. Also returns whether the first one carries
/// write-imms.
fn queue_pairs(verbs: &[Verb]) -> (Vec<bool>, bool) {
    let has = |verb| verbs.contains(&verb);
    match (has(Verb::WriteImm), has(Verb::Send)) {
        (true, true) => (vec![true, true], true),
        (immediates, sends) => (vec![immediates || sends], immediates),
    }
}

/// Whether a rank sends its own payload: it initiates operations other than reads.
pub(super) fn sends_payload(request: &OpenRequest<'_>) -> bool {
    request.initiates && request.verbs.iter().any(|&verb| verb != Verb::Read)
}

impl PortDomain {
    pub(super) fn new(request: &OpenRequest<'_>, chosen: ChosenPort) -> Result<Self> {
        let asked = Asked::from_request(request);
        let name = chosen.context.name();
        let limits = chosen
            .context
            .limits()
            .map_err(|why| Error::Failed(format!("{name}: {why}")))?;
        check_limits(name, &asked, &limits)?;
        let cm = cm_port(request, &asked, &chosen)?;
        let dc = dc_device(asked.transport, &chosen)?;
        let is_kernel = asked.transport == VerbsTransport::Kernel;
        let is_one_sided = is_kernel || dc.is_some();
        // Over DC, messages would need receives that all peers share. The kernel module posts no receives.
        let verbs: &[Verb] = if is_one_sided {
            &Verb::ONE_SIDED
        } else {
            request.verbs
        };
        let (receives, immediates) = queue_pairs(verbs);
        let atomics =
            !is_one_sided && limits.atomics && request.verbs.iter().any(|verb| verb.is_atomic());
        let all: &[Verb] = match limits.atomics {
            _ if is_one_sided => &Verb::ONE_SIDED,
            true => &Verb::ALL,
            false => &Verb::COPYING,
        };
        let region_bytes = asked.region_bytes.unwrap_or(limits.region_bytes);
        let mut message_bytes_max =
            u64::from(chosen.port.message_bytes_max).min(piece_stride(region_bytes));
        let depth = if is_kernel {
            message_bytes_max = message_bytes_max.min(KREAD_SLOT_BYTES_MAX.into());
            depth_max(limits.work_requests, asked.signals_first)
        } else {
            let depth = asked.send_depth.unwrap_or(limits.work_requests);
            depth.saturating_sub(1).clamp(1, DEPTH_MAX)
        };
        let caps = Caps {
            immediate_bits: if is_one_sided { 0 } else { 32 },
            // A device acknowledges a send only after it has stored the message in a receive.
            sends_taken: true,
            passive_target: true,
            arrivals_named: true,
            ordered_writes: !asked.relaxed && !is_kernel,
            carried: is_kernel,
            bound: bound(&chosen.device, &chosen.state),
            ..Caps::new(all, depth, message_bytes_max)
        };
        Ok(Self {
            port: Arc::new(OpenPort {
                chosen,
                asked,
                limits,
                cm,
                dc,
                receives,
                immediates,
                sends_payload: sends_payload(request),
                atomics,
                event_log: EventLog::default(),
            }),
            caps,
            initiates: request.initiates,
        })
    }
}

/// Refuses options that exceed the device's limits or contradict each other.
fn check_limits(name: &str, asked: &Asked, limits: &DeviceLimits) -> Result<()> {
    let (depth, reads, stretches) = (asked.send_depth, asked.reads, asked.stretches);
    for (option, word, asked, verb, most, at_once) in [
        (
            "sq-depth",
            "",
            depth.map(u64::from),
            "takes",
            limits.work_requests.into(),
            "",
        ),
        (
            "rd-atomic",
            "max",
            reads.map(u64::from),
            "takes",
            limits.reads_as_initiator.into(),
            "",
        ),
        (
            "mr-size",
            "auto",
            asked.region_bytes,
            "registers",
            limits.region_bytes,
            " at once",
        ),
        (
            "max-sge",
            "",
            Some(stretches.into()),
            "takes",
            limits.stretches.max(1).into(),
            "",
        ),
    ] {
        if let Some(asked) = asked.filter(|&asked| asked > most) {
            let why = format!("{option}={asked}, but {name} {verb} at most {most}{at_once}");
            let how = match word {
                "" => format!("Choose at most {option}={most}"),
                word => format!("Choose {option}={word} or at most {most}"),
            };
            return Err(unavailable(why, &how));
        }
    }
    if asked.list < asked.stretches as usize {
        let (list, stretches) = (asked.list, asked.stretches);
        let why =
            format!("max-sge={stretches} merges operations of one doorbell, but post-list={list}");
        let how = format!("Choose post-list=all or at least {stretches}, or max-sge={list}");
        return Err(unavailable(why, &how));
    }
    if let (Some(depth), list) = (asked.send_depth, asked.list)
        && list != usize::MAX
        && list > depth as usize
    {
        let why = format!("post-list={list} does not fit sq-depth={depth}");
        let how = format!("Choose at most post-list={depth}");
        return Err(unavailable(why, &how));
    }
    Ok(())
}

/// The upper bound of the bandwidth: the speed of the link. A software device has no link speed of its own.
fn bound(device: &RdmaDevice, port: &RdmaPort) -> BoundKind {
    let is_hardware = device.driver.is_some() || device.pci.is_some();
    match port.link_bits_per_s.filter(|_| is_hardware) {
        Some(bits_per_s) => BoundKind::Link {
            bytes_per_s: bits_per_s / 8,
        },
        None => BoundKind::None,
    }
}

impl Domain for PortDomain {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn report(&self) -> EngineReport {
        let (chosen, asked, limits) = (&self.port.chosen, &self.port.asked, &self.port.limits);
        let path = chosen.context.library().path();
        let gid = chosen.gid.as_ref();
        let firmware = Some(limits.firmware.clone()).filter(|text| !text.is_empty());
        let driver = chosen.device.driver.clone();
        let limited = Some(limits.region_bytes).filter(|&bytes| bytes < UNLIMITED_BYTES);
        let reads_max = self.port.dc.as_ref().and_then(|dc| dc.reads_max);
        EngineReport {
            name: "verbs".to_owned(),
            library: Some(LibraryReport {
                version: format!("libibverbs{}", release(path)),
                library: path.to_owned(),
            }),
            provider: Some(driver.unwrap_or_else(|| "in software".to_owned())),
            provider_version: firmware,
            device: Some(format!("{}:{}", chosen.context.name(), self.port.number())),
            facts: Facts::default()
                .with_fact("transport", asked.transport.name())
                .with_optional_fact("kernel_module", self.kernel_module())
                .with_fact("connect", if asked.by_cm { "cm" } else { "exchange" })
                .with_optional_fact("librdmacm", self.port.cm.as_ref().map(|cm| cm.library.path().to_owned()))
                .with_optional_fact("libmlx5", self.port.dc.as_ref().map(|dc| dc.library.path().to_owned()))
                .with_optional_fact("reads_in_flight_of_dc_max", reads_max.map(|reads| u32::from(reads.as_initiator)))
                .with_optional_fact("device_chosen_because", chosen.why.clone())
                .with_optional_fact("gid_index", gid.map(|gid| gid.index))
                .with_optional_fact("gid", gid.map(|gid| gid.ip().to_string()))
                .with_optional_fact("gid_kind", gid.map(|gid| gid.kind.clone()))
                .with_fact("mtu_bytes_max", self.port.mtu())
                // rdma_cm determines these values when it connects, so they are not known yet.
                .with_optional_fact("service_level", (!asked.by_cm).then_some(u32::from(asked.service_level)))
                .with_optional_fact("traffic_class", (!asked.by_cm).then_some(u32::from(asked.traffic_class)))
                .with_fact("pkey_index", u32::from(asked.pkey_index))
                .with_fact("flow_label", asked.flow_label.to_string())
                .with_fact("retry", format_retries(asked.patience.retry))
                .with_fact("rnr_retry", format_retries(asked.patience.rnr_retry))
                .with_fact("timeout", u32::from(asked.patience.timeout))
                .with_optional_fact("gives_up_after_ms", asked.gives_up_after_ms().map(|it| it.ceil() as u64))
                .with_fact("signal", asked.signal)
                .with_fact("latency_is_coarse", asked.signal > 1 || asked.stretches > 1)
                .with_fact("max_sge", asked.stretches)
                .with_fact("post_list_max", asked.list.min(64) as u64)
                .with_fact("relaxed_ordering", asked.relaxed)
                .with_optional_fact("registration_bytes_max", asked.region_bytes.or(limited))
                .with_optional_fact("queue_pairs_to_a_peer", self.port.dc.is_none().then_some(self.port.receives.len() as u64))
                .with_fact("depth", self.caps.depth)
                .with_fact("progress", "the device's own: targets of write and read rest")
                .with_fact("completion", "acknowledged by the peer's device; trials of writes end with a read behind them"),
            ..EngineReport::default()
        }
    }

    fn stream_address(&self) -> Option<IpAddr> {
        self.port.chosen.gid.as_ref().map(|gid| gid.ip())
    }

    fn device_memory_by(&self) -> DeviceMemoryAccess {
        DeviceMemoryAccess::Cards
    }

    fn wire_devices(&self) -> Vec<WireDevice> {
        vec![WireDevice {
            kind: WireKind::RdmaPort,
            name: self.port.chosen.context.name().to_owned(),
            port: u32::from(self.port.number()),
        }]
    }

    fn worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let opened = match self.port.asked.transport {
            VerbsTransport::Rc => self.connected_depths(config),
            VerbsTransport::Dc => self.shared_depths(config),
            VerbsTransport::Kernel => return self.kernel_worker(config),
        };
        let opened = opened.and_then(|depths| Worker::open(&self.port, config, depths));
        let worker = opened.map_err(|error| self.port.asked.transport.named(error))?;
        Ok(Box::new(worker))
    }
}

impl PortDomain {
    /// Opens a worker that posts operations in the kernel. Its own queue pairs are targets, one for each lane of a
    /// peer.
    fn kernel_worker(&self, config: &WorkerConfig) -> Result<Box<dyn Engine + Send>> {
        let targets = WorkerConfig {
            depth: 1,
            peers_max: config.peers_max.saturating_mul(config.queue_pairs.max(1)),
            sleeps: false,
            ..config.clone()
        };
        let opened = self.connected_depths(&targets);
        let opened = opened.and_then(|depths| Worker::open(&self.port, &targets, depths));
        let worker = opened.map_err(|error| self.port.asked.transport.named(error))?;
        Ok(Box::new(KernelWorker::new(worker, config, self.initiates)))
    }

    /// Version of the kernel module, if the module posts for this rank.
    fn kernel_module(&self) -> Option<String> {
        let posts = self.port.asked.transport == VerbsTransport::Kernel && self.initiates;
        module_version().filter(|_| posts)
    }

    /// Depths of the send queue, receive queue and completion queue, if each peer has its own queue pairs.
    fn connected_depths(&self, config: &WorkerConfig) -> Result<[u32; 3]> {
        let (name, limits) = (self.port.chosen.context.name(), &self.port.limits);
        let window = config.depth.min(self.caps.depth);
        let send_depth = self.port.send_depth(window);
        let receive_depth = RECEIVES_PER_OPERATION
            .saturating_mul(window.max(OPERATIONS_MIN))
            .min(limits.work_requests.max(1));
        let each = self.port.receives.len() as u32;
        let pairs = config.peers_max.max(1).saturating_mul(each);
        let receives = if self.port.receives.contains(&true) {
            receive_depth
        } else {
            1
        };
        let of_one = send_depth.saturating_add(receives);
        let fits = (limits.completions / of_one).min(limits.queue_pairs) / each;
        if pairs / each > fits {
            let why = format!(
                "{} peers need {pairs} queue pairs and {} completions per thread and path, but {name} has {} and {}",
                config.peers_max,
                u64::from(pairs) * u64::from(of_one),
                limits.queue_pairs,
                limits.completions
            );
            let how = format!(
                "Choose a smaller --depth, or at most {fits} peers of each rank (--traffic)"
            );
            return Err(unavailable(why, &how));
        }
        let completions = pairs.saturating_mul(of_one);
        Ok([send_depth, receive_depth, completions])
    }

    /// Depths of the send queue, receive queue and completion queue, if peers share initiators.
    fn shared_depths(&self, config: &WorkerConfig) -> Result<[u32; 3]> {
        let (name, limits) = (self.port.chosen.context.name(), &self.port.limits);
        let window = config.depth.min(self.caps.depth);
        let depth = self.port.initiator_depth(window, config.peers_max);
        let initiators = self.port.asked.initiators;
        let fits = (limits.completions / depth).min(limits.queue_pairs.saturating_sub(1));
        if initiators > fits {
            let why = format!(
                "dci={initiators} needs {initiators} queue pairs and {} completions per thread and path, but {name} \
                 has {} and {}",
                u64::from(initiators) * u64::from(depth),
                limits.queue_pairs,
                limits.completions
            );
            let how = format!("Choose at most dci={fits}, or a smaller sq-depth");
            return Err(unavailable(why, &how));
        }
        Ok([depth, 0, initiators.saturating_mul(depth)])
    }
}

/// The release in a library's file name, with a space before it; empty if there is none.
fn release(path: &str) -> String {
    let real = std::fs::canonicalize(path).ok();
    let name = real.as_ref().and_then(|path| path.file_name()?.to_str());
    let release = name.and_then(|name| name.split_once(".so."));
    release.map_or_else(String::new, |(_, release)| format!(" {release}"))
}
