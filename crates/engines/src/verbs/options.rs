//! Names of the libraries and of the engine's options on the command line, and the parsed values.

use tonnage_engine::{EngineOption, OpenRequest, OptionKind};
use tonnage_sys::verbs::Patience;

use super::transport::{DC, KERNEL, RC, VerbsTransport};
use crate::registration::{self, AUTO, REGISTRATION, RegistrationWay};

/// Environment variable that chooses the file of libibverbs.
pub(super) const LIBIBVERBS_VARIABLE: &str = "TONNAGE_LIBIBVERBS";

/// Name of libibverbs for `--library`.
pub(super) const LIBRARY: &str = "libibverbs";

/// Environment variable that chooses the file of librdmacm.
pub(super) const LIBRDMACM_VARIABLE: &str = "TONNAGE_LIBRDMACM";

/// Name of librdmacm for `--library`.
pub(super) const LIBRDMACM: &str = "librdmacm";

const CONNECT: &str = "connect";
const GID: &str = "gid";
const MTU: &str = "mtu";
const SERVICE_LEVEL: &str = "sl";
const TRAFFIC_CLASS: &str = "traffic-class";
const PKEY: &str = "pkey";
const FLOW_LABEL: &str = "flow-label";
const RETRY: &str = "retry";
const RNR_RETRY: &str = "rnr-retry";
const TIMEOUT: &str = "timeout";
const READS: &str = "rd-atomic";
pub(super) const INLINE: &str = "inline";
const SEND_DEPTH: &str = "sq-depth";
const POST_LIST: &str = "post-list";
const SIGNAL: &str = "signal";
const STRETCHES: &str = "max-sge";
const LOCKS: &str = "locks";
const ORDERING: &str = "ordering";
const REGION_BYTES: &str = "mr-size";
const INITIATORS: &str = "dci";
const SIGNALLING: &str = "signalling";

/// Methods of registering GPU memory, in the order in which they are tried.
pub(super) const CARD_WAYS: [RegistrationWay; 2] =
    [RegistrationWay::Dmabuf, RegistrationWay::Peermem];

/// Variants that post operations in user space.
const IN_USER_SPACE: &[&str] = &[RC, DC];

/// Option value for unlimited retries.
const FOREVER: &str = "forever";
/// Retry count that stands for unlimited retries in a queue pair.
const UNLIMITED: u8 = 7;

/// Code for the delay before a retry, if the peer had no receive for a message. In the specification's table, 12 means
/// 0.64 ms. Other tools use this value, too.
const RNR_TIMER: u8 = 12;

/// Number of payload bytes that a work request must be able to hold inline, by default.
pub(super) const INLINE_USUAL: u32 = 220;

/// All options of this engine.
pub(super) static OPTIONS: [EngineOption; 23] = [
    EngineOption::choice(
        CONNECT,
        &["exchange", "cm"],
        "exchange: ranks exchange addresses over the control channel; cm: librdmacm connects the queue pairs, along IP \
         routes",
    ).on(&["rc"]),
    or_number(
        GID,
        (&["auto"], None),
        [0, 255],
        "index of the port's address: auto takes that of RoCE v2 with an IPv4 address, then any of RoCE v2",
    ),
    EngineOption::choice(
        MTU,
        &["auto", "256", "512", "1024", "2048", "4096"],
        "payload of a packet in bytes: auto is the smaller MTU of both ports",
    ),
    EngineOption::bounded(SERVICE_LEVEL, 0, [0, 15], "service level"),
    EngineOption::bounded(
        TRAFFIC_CLASS,
        0,
        [0, 255],
        "traffic class of packets that carry addresses: six bits of DSCP, two of ECN",
    ),
    EngineOption::bounded(PKEY, 0, [0, 65_535], "index of the partition key"),
    or_number(
        FLOW_LABEL,
        (&["auto", "spread"], None),
        [1, 0xf_ffff],
        "flow label of packets that carry addresses: auto leaves it to the driver, spread gives each queue pair a \
         different one, so that switches spread them over equal-cost paths",
    ),
    or_number(
        RETRY,
        (&[FOREVER], Some(3)),
        [0, 6],
        "retries of a packet without an answer; forever is 7 on the wire, and some devices then never give up",
    ),
    or_number(
        RNR_RETRY,
        (&[FOREVER], None),
        [0, 6],
        "retries of a message without a posted receive at the peer, each after 0.64 ms",
    ).on(&["rc"]),
    EngineOption::bounded(
        TIMEOUT,
        14,
        [1, 31],
        "time until a packet is resent: 4.096 us times two to this power; devices may take four times as long",
    ),
    or_number(
        READS,
        (&["max"], None),
        [1, 128],
        "reads in flight on a queue pair: max is the most that both devices support",
    ),
    or_number(
        INLINE,
        (&["auto"], None),
        [0, 4096],
        "maximum size of writes and sends whose payload is copied into the work request: auto requests 220 bytes, and \
         uses the granted size",
    ).on(IN_USER_SPACE),
    or_number(
        SEND_DEPTH,
        (&["auto"], None),
        [2, 32_768],
        "work requests of a send queue: auto has room for the depth; operations beyond it are posted as room appears",
    ).on(IN_USER_SPACE),
    or_number(
        POST_LIST,
        (&["all"], None),
        [1, 64],
        "operations posted with one doorbell: all that a loop posts at once, 64 at most",
    ).on(IN_USER_SPACE),
    EngineOption::bounded(
        STRETCHES,
        1,
        [1, 64],
        "maximum number of writes or reads that share a work request, with one stretch of local memory each, if they \
         are posted together and adjacent at the peer; they complete together",
    ).on(&["rc"]),
    EngineOption::choice(
        LOCKS,
        &["auto", "on"],
        "auto: queue pairs of a thread domain, which need no locks, if the driver supports it; on: the driver's locks \
         stay",
    ).on(&["rc"]),
    or_number(
        SIGNAL,
        (&["auto"], None),
        [1, 1024],
        "every Nth operation of a queue pair is signalled, and the others complete with it, so that latencies are coarse, \
         at least two of a depth; auto signals each",
    ).on(IN_USER_SPACE),
    EngineOption::choice(
        ORDERING,
        &["strict", "relaxed"],
        "relaxed lets the device write the bytes of memory in another order (PCIe relaxed ordering)",
    ),
    or_number(
        REGION_BYTES,
        (&["auto"], None),
        [8192, 1 << 40],
        "bytes of one registration: auto is the device's maximum; longer memory is registered in overlapping pieces, \
         each with its own key; an operation may have half of it",
    ).on(IN_USER_SPACE),
    EngineOption::bounded(
        INITIATORS,
        1,
        [1, 1024],
        "initiators of a thread over verbs:dc: peers are assigned to them in turn",
    ).on(&[DC]),
    EngineOption::choice(
        SIGNALLING,
        &["each", "first"],
        "first: of each group of depth operations, only the first is signalled, and waited for once all are posted, as \
         in the published benchmark of one-sided reads; each: all are waited for",
    ).on(&[KERNEL]),
    registration::option(
        &[AUTO, CARD_WAYS[0].name(), CARD_WAYS[1].name()],
        IN_USER_SPACE,
        "how to register GPU memory with the device: dmabuf (a file that the GPU's driver exports), peermem (its \
         address, which a kernel module of the GPU's vendor translates: nvidia-peermem, amdgpu of amdgpu-dkms), or \
         auto: the first of these that is granted",
    ),
    crate::staged::option(&["rc"]),
];

const fn or_number(
    name: &'static str,
    (words, default): (&'static [&'static str], Option<u64>),
    [min, max]: [u64; 2],
    about: &'static str,
) -> EngineOption {
    EngineOption {
        name,
        kind: OptionKind::NumberOr {
            words,
            default,
            min,
            max,
        },
        variants: &[],
        about,
    }
}

/// Flow labels of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowLabel {
    /// The driver chooses the label.
    Auto,
    /// Each queue pair has a different label.
    Spread,
    /// The same label for all queue pairs.
    Fixed(u32),
}

impl FlowLabel {
    /// Returns the flow label between two queue pairs; 0 leaves the choice to the driver.
    pub(super) fn between(self, one: u32, other: u32) -> u32 {
        match self {
            Self::Auto => 0,
            Self::Fixed(label) => label,
            Self::Spread => spread(one, other),
        }
    }
}

/// Computes a 20-bit flow label that is the same on both sides and differs between queue pairs.
fn spread(one: u32, other: u32) -> u32 {
    let product = u64::from(one).wrapping_mul(u64::from(other));
    let label = (product ^ product >> 20 ^ product >> 40) as u32 & 0xf_ffff;
    label.max(1)
}

impl std::fmt::Display for FlowLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Spread => f.write_str("spread"),
            Self::Fixed(label) => write!(f, "{label}"),
        }
    }
}

/// The requested values; `None` if the engine decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// Whether rdma_cm connects the queue pairs.
    pub(super) by_cm: bool,
    pub(super) transport: VerbsTransport,
    /// Number of initiators of a worker over DC.
    pub(super) initiators: u32,
    pub(super) gid: Option<u8>,
    pub(super) mtu: Option<u32>,
    pub(super) service_level: u8,
    pub(super) traffic_class: u8,
    pub(super) pkey_index: u16,
    pub(super) flow_label: FlowLabel,
    pub(super) patience: Patience,
    pub(super) reads: Option<u8>,
    pub(super) inline_bytes: Option<u32>,
    pub(super) send_depth: Option<u32>,
    /// Maximum number of work requests per doorbell.
    pub(super) list: usize,
    /// Whether the driver's locks are kept.
    pub(super) locks: bool,
    /// Maximum number of local memory ranges (SGEs) in a work request.
    pub(super) stretches: u32,
    /// One in `signal` operations is signalled.
    pub(super) signal: u32,
    pub(super) relaxed: bool,
    /// Method of registering GPU memory.
    pub(super) registration: String,
    /// Maximum bytes of one registration.
    pub(super) region_bytes: Option<u64>,
    /// Whether the kernel signals only the first operation of a window.
    pub(super) signals_first: bool,
}

impl Asked {
    pub(super) fn from_request(request: &OpenRequest<'_>) -> Self {
        let text = |name| request.option(&OPTIONS, name);
        let number = |name| text(name).parse::<u32>().ok();
        // All values were checked against their bounds, so no conversion can fail.
        let byte = |name| number(name).and_then(|value| u8::try_from(value).ok());
        let times = |name| byte(name).unwrap_or(UNLIMITED);
        Self {
            by_cm: text(CONNECT) == "cm",
            transport: VerbsTransport::from_variant(request.variant),
            initiators: number(INITIATORS).unwrap_or(1).max(1),
            gid: byte(GID),
            mtu: number(MTU),
            service_level: byte(SERVICE_LEVEL).unwrap_or(0),
            traffic_class: byte(TRAFFIC_CLASS).unwrap_or(0),
            pkey_index: number(PKEY)
                .and_then(|it| u16::try_from(it).ok())
                .unwrap_or(0),
            flow_label: match (text(FLOW_LABEL).as_str(), number(FLOW_LABEL)) {
                (_, Some(label)) => FlowLabel::Fixed(label),
                ("spread", None) => FlowLabel::Spread,
                _ => FlowLabel::Auto,
            },
            patience: Patience {
                timeout: byte(TIMEOUT).unwrap_or(0),
                retry: times(RETRY),
                rnr_retry: times(RNR_RETRY),
                rnr_timer: RNR_TIMER,
            },
            reads: byte(READS),
            inline_bytes: number(INLINE),
            send_depth: number(SEND_DEPTH),
            list: number(POST_LIST).map_or(usize::MAX, |it| it as usize),
            locks: text(LOCKS) == "on",
            stretches: number(STRETCHES).unwrap_or(1),
            signal: number(SIGNAL).unwrap_or(1),
            relaxed: text(ORDERING) == "relaxed",
            registration: text(REGISTRATION),
            region_bytes: text(REGION_BYTES).parse().ok(),
            signals_first: text(SIGNALLING) == "first",
        }
    }

    /// Minimum time in milliseconds before an unanswered packet is a failure; `None` if retries are unlimited.
    pub(super) fn gives_up_after_ms(&self) -> Option<f64> {
        let once_us = 4.096 * f64::from(self.patience.timeout).exp2();
        let times = f64::from(self.patience.retry) + 1.0;
        (self.patience.retry != UNLIMITED).then_some(once_us * times / 1000.0)
    }
}

/// Formats a retry count.
pub(super) fn format_retries(number: u8) -> String {
    match number {
        UNLIMITED => FOREVER.to_owned(),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_match_on_both_sides_and_differ_between_queue_pairs() {
        let labels: std::collections::BTreeSet<u32> = (17..81).map(|n| spread(n, n + 1)).collect();
        assert!(labels.len() > 60, "{labels:?}");
        assert!(labels.iter().all(|label| (1..=0xf_ffff).contains(label)));
        assert_eq!(spread(0x1234, 0x77), spread(0x77, 0x1234));
    }
}
