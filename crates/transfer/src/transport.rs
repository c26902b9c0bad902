//! Engines, opened by name on this machine. Each thread then creates its own endpoints.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use tonnage_engine::{
    Caps, DeviceRequest, Domain, EngineOptions, EngineReport, Entry, Libraries, OpenRequest, Verb,
    WorkerConfig, find, split_name,
};
use tonnage_engines::ENGINES;
use tonnage_sys::clock::Clock;
use tonnage_units::Error;

use crate::endpoint::{EndpointConfig, EngineParts, TransferEndpoint};
use crate::error::{ErrorSubject, TransferError, TransferErrorKind, TransferResult};

/// The clock of all endpoints, which is never freed. It is shared because its calibration takes 10 ms.
static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);

/// Options for opening an engine.
#[derive(Debug, Clone)]
pub struct TransportOptions {
    /// The engine's own options, by name. Options that are not named have their defaults.
    pub engine_options: EngineOptions,
    /// Devices by name; if empty, the engine chooses one.
    pub devices: Vec<String>,
    /// Library files by name, to load instead of those that the engine finds. For example, `embedded` for `libfabric`.
    pub libraries: Libraries,
    /// True if all peers are on this host, so that a network engine may use the loopback interface.
    pub one_host: bool,
    /// This host's address in the network that leads to the peers. The engine chooses its device by this address.
    pub address: Option<IpAddr>,
    /// The verbs that will be used. If only few are used, an engine may choose a better configuration.
    pub verbs: Vec<Verb>,
}

impl Default for TransportOptions {
    /// Returns options for peers on other hosts, a device that the engine chooses, and all verbs of sessions.
    fn default() -> Self {
        Self {
            engine_options: EngineOptions::new(),
            devices: Vec::new(),
            libraries: Libraries::new(),
            one_host: false,
            address: None,
            verbs: vec![Verb::Write, Verb::WriteImm, Verb::Read],
        }
    }
}

/// An engine that is open on this machine. Threads can share it, and each creates its own endpoints.
#[derive(Clone)]
pub struct Transport {
    name: String,
    clean_up: fn(u32),
    domains: Vec<Arc<dyn Domain>>,
}

impl Transport {
    /// Opens an engine by name: "shm", "fabric:tcp", "null", …
    ///
    /// # Errors
    /// `Usage` for an unknown name or option, suggesting the nearest known one; `Unavailable` for a resource that this
    /// machine lacks.
    pub fn open(name: &str, options: &TransportOptions) -> TransferResult<Self> {
        Self::open_entry(ENGINES, name, options)
    }

    /// Opens an engine from another list.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_entry(
        engines: &[Entry],
        name: &str,
        options: &TransportOptions,
    ) -> TransferResult<Self> {
        let open = || {
            let entry = find(engines, name)?;
            let variant = split_name(name).1;
            let engine_options = entry.check_options(&options.engine_options, variant)?;
            if !options.devices.is_empty() && !entry.has_devices {
                return Err(Error::Usage(format!(
                    "engine {name} has no devices to choose"
                )));
            }
            let domains = (entry.open)(&OpenRequest {
                variant,
                options: &engine_options,
                devices: match &options.devices[..] {
                    [] => DeviceRequest::Own,
                    names => DeviceRequest::Named(names),
                },
                libraries: &options.libraries,
                one_network: options.one_host,
                address: options.address,
                verbs: &options.verbs,
                ..OpenRequest::default()
            })?;
            Ok(Self {
                name: name.to_owned(),
                clean_up: entry.lifecycle.clean_up,
                domains,
            })
        };
        open().map_err(|error| {
            failed(
                &ErrorSubject::default().with_operation("open", None),
                &error,
            )
        })
    }

    /// Returns the engine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of devices that the engine has opened.
    pub fn devices(&self) -> usize {
        self.domains.len()
    }

    /// Returns the capabilities of a device.
    ///
    /// # Errors
    /// `Usage` for a device that was not opened.
    pub fn caps(&self, device: usize) -> TransferResult<Caps> {
        self.domain(device).map(|domain| *domain.caps())
    }

    /// Returns the library, provider, device and options that a device actually uses.
    ///
    /// # Errors
    /// `Usage` for a device that was not opened.
    pub fn report(&self, device: usize) -> TransferResult<EngineReport> {
        self.domain(device).map(|domain| domain.report())
    }

    /// Creates an endpoint for the calling thread.
    ///
    /// # Errors
    /// `Usage` for a device that was not opened; an error of the engine if its queues cannot be created.
    pub fn endpoint(&self, config: &EndpointConfig) -> TransferResult<TransferEndpoint> {
        let domain = self.domain(config.device)?;
        let engine = domain.worker(&WorkerConfig {
            rank: config.id,
            worker: 0,
            peers_max: config.peers_max,
            depth: config.depth,
            queue_pairs: 1,
            sleeps: config.sleeps,
            clock: *CLOCK,
        });
        let engine = engine.map_err(|error| failed(&self.subject("endpoint"), &error))?;
        let parts = EngineParts {
            engine,
            domain: Some(Arc::clone(domain)),
            caps: *domain.caps(),
            name: self.name.clone(),
            device: domain.report().device,
            clean_up: self.clean_up,
        };
        Ok(TransferEndpoint::from_parts(parts, config))
    }

    fn domain(&self, device: usize) -> TransferResult<&Arc<dyn Domain>> {
        self.domains.get(device).ok_or_else(|| {
            let reason = format!(
                "there is no device {device}: {} devices were opened",
                self.domains.len()
            );
            TransferError::new(TransferErrorKind::Usage, self.subject("device"), reason)
        })
    }

    fn subject(&self, operation: &'static str) -> ErrorSubject {
        let subject = ErrorSubject {
            engine: self.name.as_str().into(),
            ..ErrorSubject::default()
        };
        subject.with_operation(operation, None)
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("name", &self.name)
            .field("devices", &self.domains.len())
            .finish()
    }
}

fn failed(subject: &ErrorSubject, error: &Error) -> TransferError {
    TransferError::from_error(TransferErrorKind::Unavailable, subject.clone(), error)
}
