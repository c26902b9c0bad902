//! `verbs:dc`: a worker's initiators and its target, which are created once for all peers, and the addresses of the
//! peers' targets.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_engine::{EndpointAddress, PeerEndpoint};
use tonnage_machine::devices::RdmaDevice;
use tonnage_sys::error::LibraryError;
use tonnage_sys::verbs::{DcReadsMax, Libmlx5, LinkLayer, PathTo, probe_dc};
use tonnage_units::{Error, Result};

use super::choose::{ChosenPort, unavailable};
use super::options::FlowLabel;
use super::peers::{FarBytes, PeerPairs, first_packet};
use super::port::OpenPort;
use super::transport::VerbsTransport;
use super::worker::Worker;

/// Rank of an initiator's peer before any of its operations has failed.
const NO_RANK: u32 = u32::MAX;

impl Worker {
    /// Creates the initiators and the target, if the transport is DC.
    pub(super) fn open_dc(&mut self) -> Result<()> {
        let port = Arc::clone(&self.port);
        let Some(device) = &port.dc else {
            return Ok(());
        };
        let about = |why| Error::Failed(format!("verbs:dc on {}: {why}", port.in_words()));
        self.queues.open_dc(&device.library).map_err(about)?;
        for _ in 0..port.asked.initiators {
            self.add_initiator(&port, device)?;
        }
        // The target accepts only requests with this key, so strangers on the network cannot access it.
        let access_key = AccessKey::fresh()?;
        let target = self.queues.make_target(access_key.0).map_err(about)?;
        let path = PathTo {
            gids: port.own_gids(),
            lid: port.chosen.port.lid,
            flow_label: match port.asked.flow_label {
                FlowLabel::Fixed(label) => label,
                FlowLabel::Auto | FlowLabel::Spread => 0,
            },
            ..port.path()
        };
        let started = self.queues.start_target(target, &path, port.asked.patience);
        let number = started.map_err(about)?;
        self.target = Some(OwnTarget { number, access_key });
        self.peers.agree_on_mtu(port.mtu());
        Ok(())
    }

    fn add_initiator(&mut self, port: &OpenPort, device: &DcDevice) -> Result<()> {
        let about = |why: LibraryError| {
            let depth = self.send_depth;
            Error::Failed(format!(
                "verbs:dc on {}: {why}; an initiator needs {depth} work requests (engine-options dci and sq-depth)",
                port.in_words()
            ))
        };
        let made = self
            .queues
            .make_initiator(self.send_depth, port.inline_bytes());
        let handle = made.map_err(about)?;
        let pair = self.pair(handle, NO_RANK)?;
        let most = device.reads_max.map_or(u8::MAX, |reads| reads.as_initiator);
        let asked = port.asked.reads;
        let too_many = |most: u8| match asked.filter(|&asked| asked > most) {
            None => Ok(()),
            Some(asked) => {
                let name = port.chosen.context.name();
                let why = format!("rd-atomic={asked}, but an initiator of {name} supports {most}");
                let how = format!("Choose rd-atomic=max or at most {most}");
                Err(unavailable(why, &how))
            }
        };
        too_many(most)?;
        let path = PathTo {
            reads_out: port.reads().min(most).max(1),
            first_packet_out: first_packet(self.peers.pairs().len()),
            ..port.path()
        };
        let started = self
            .queues
            .start_initiator(handle, &path, port.asked.patience);
        let granted = started
            .map_err(|why| Error::Failed(format!("verbs:dc on {}: {why}", port.in_words())))?;
        too_many(granted)?;
        self.peers.agree_on_reads(granted);
        self.peers.add_pair(pair);
        Ok(())
    }

    /// Assigns the next initiator in turn to a peer, and returns the endpoint address that contains this worker's
    /// target.
    pub(super) fn target_address(&mut self, rank: u32) -> Result<EndpointAddress> {
        let (Some(target), false) = (self.target, self.peers.pairs().is_empty()) else {
            return Err(Error::Failed("verbs:dc has no target".into()));
        };
        let mailbox = self.memories.mailbox(&self.queues)?;
        let place = self.peers.all().len() % self.peers.pairs().len();
        self.peers.add(PeerPairs::new(rank, place));
        let port = &self.port;
        Ok(EndpointAddress::encode(&TargetAddress {
            device: port.in_words(),
            target: target.number,
            access_key: target.access_key,
            mtu: port.mtu(),
            gid: port.gid(),
            lid: port.chosen.port.lid,
            over_ethernet: port.chosen.port.link_layer == LinkLayer::Ethernet,
            mailbox,
            peer: rank,
        }))
    }

    /// Creates the address handle for a peer's target.
    pub(super) fn address_one(&mut self, neighbor: &PeerEndpoint) -> Result<()> {
        let (rank, own) = (neighbor.peer, self.config.rank);
        let failed =
            |why: String| Error::Failed(format!("verbs:dc between ranks {own} and {rank}: {why}"));
        let mtu = self.port.mtu();
        let target = TargetAddress::parse(&neighbor.address, own, mtu).map_err(failed)?;
        let at = self.peers.unconnected(rank).map_err(failed)?;
        let gids = self
            .port
            .gids_with(target.over_ethernet, target.gid, &target.device)
            .map_err(failed)?;
        let number = self.peers.pair(self.peers.at(at).one_sided).number;
        let path = PathTo {
            number: target.target,
            gids,
            lid: target.lid,
            flow_label: self.port.asked.flow_label.between(number, target.target),
            ..self.port.path()
        };
        let made = self.queues.make_address(&path, target.access_key.0);
        let mailbox = target.mailbox.keyed().map_err(failed)?;
        let address = made.map_err(|why| {
            let ends = self.port.both_ends(&target.device);
            failed(format!("{why}; {ends}"))
        })?;
        let peer = self.peers.at_mut(at);
        peer.device = target.device;
        peer.mailbox = Some(mailbox);
        peer.mtu = mtu;
        peer.address = Some(address);
        peer.is_connected = true;
        Ok(())
    }
}

/// Prefix of the names of mlx5 drivers.
const DRIVER: &str = "mlx5";

/// The libmlx5 that drives a DC device, and the device's limits for DC.
pub(super) struct DcDevice {
    pub(super) library: Arc<Libmlx5>,
    /// Limits of reads; `None` if the library is too old to report them.
    pub(super) reads_max: Option<DcReadsMax>,
}

/// Loads libmlx5 and checks that the port's device supports DC, if the transport is DC.
pub(super) fn dc_device(
    transport: VerbsTransport,
    chosen: &ChosenPort,
) -> Result<Option<DcDevice>> {
    if transport != VerbsTransport::Dc {
        return Ok(None);
    }
    let (context, device) = (&chosen.context, &chosen.device);
    let loaded = Libmlx5::load(context.library());
    let drives = loaded.as_ref().map(|library| library.drives(context));
    let drives = drives.map_err(ToString::to_string);
    check_driver(device, drives.as_ref().copied().map_err(String::as_str))?;
    let library = Arc::new(loaded.map_err(|error| Error::Failed(error.into()))?);
    let name = context.name();
    probe_dc(context, &library).map_err(|why| {
        let how = "Choose a device with DC: Connect-IB, or ConnectX-4 and later, if firmware and kernel support it (a \
                   virtual function may not); or verbs:rc";
        unavailable(format!("{name} cannot create DC queue pairs ({why})"), how)
    })?;
    let reads_max = library
        .dc_reads_max(context)
        .map_err(|why| Error::Failed(format!("{name}: {why}")))?;
    Ok(Some(DcDevice { library, reads_max }))
}

/// Refuses a device that is not mlx5, or lacks its library. `drives` is whether the library drives the device, or the
/// reason why the library is missing.
fn check_driver(device: &RdmaDevice, drives: std::result::Result<bool, &str>) -> Result<()> {
    let is_its_driver = |driver: &String| driver.starts_with(DRIVER);
    match drives {
        Ok(true) => Ok(()),
        Err(why) if device.driver.as_ref().is_some_and(is_its_driver) => {
            let how = "Install ibverbs-providers (Debian, Ubuntu) or libibverbs (others), of rdma-core 24 or later, or \
                       the NIC's OFED";
            Err(unavailable(format!("libmlx5 cannot be loaded: {why}"), how))
        }
        Ok(false) if device.driver.as_ref().is_some_and(is_its_driver) => {
            let why = format!(
                "{} is an mlx5 device, but libmlx5 is not the one that libibverbs has loaded for it",
                device.name
            );
            let how = "Set LD_LIBRARY_PATH to the folder of that installation's libmlx5.so.1, or name the system's libibverbs \
                       by --library libibverbs=PATH";
            Err(unavailable(why, how))
        }
        Ok(false) | Err(_) => {
            let why = format!("{} is not an mlx5 device; DC is mlx5's own", device.name);
            let how =
                "Choose an mlx5 device (ConnectX-4 or later, Connect-IB) by --devices, or verbs:rc";
            Err(unavailable(why, how))
        }
    }
}

/// Largest queue pair number.
const NUMBER_MAX: u32 = 0xff_ffff;

/// Key that initiators need for access to a target.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccessKey(u64);

impl AccessKey {
    /// Generates a random key.
    pub(super) fn fresh() -> Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Failed(format!("no random bytes from the system: {error}")))?;
        Ok(Self(u64::from_ne_bytes(bytes)))
    }
}

/// Hides the key from logs.
impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessKey(…)")
    }
}

/// The target of a worker: its number and its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnTarget {
    pub(super) number: u32,
    pub(super) access_key: AccessKey,
}

/// Endpoint address of a worker for one peer. It may contain the access key, because only ranks of the run can read the
/// channel over which addresses are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TargetAddress {
    /// Description of device and port.
    pub(super) device: String,
    /// Number of the target.
    pub(super) target: u32,
    /// The target's access key.
    pub(super) access_key: AccessKey,
    /// Maximum payload of a packet.
    pub(super) mtu: u32,
    pub(super) gid: Option<[u8; 16]>,
    pub(super) lid: u16,
    pub(super) over_ethernet: bool,
    /// Bytes of this worker that peers read in first contact.
    pub(super) mailbox: FarBytes,
    /// The rank that this address is for.
    pub(super) peer: u32,
}

impl TargetAddress {
    /// Parses an endpoint address for rank `own`. This rank's initiators send packets of `mtu` bytes.
    pub(super) fn parse(address: &EndpointAddress, own: u32, mtu: u32) -> Result<Self, String> {
        let address: Self = serde_json::from_slice(&address.0)
            .map_err(|error| format!("cannot decode the peer's address ({error})"))?;
        if address.peer != own {
            return Err("the peer does not expect this rank".into());
        }
        if address.target == 0 || address.target > NUMBER_MAX {
            return Err(format!(
                "its target cannot have the number {}",
                address.target
            ));
        }
        if address.mtu != mtu {
            return Err(format!(
                "its packets carry {} bytes and those of this side {mtu}: DC initiators need one MTU for all their \
                 targets; give all ranks the engine-option mtu={}",
                address.mtu,
                address.mtu.min(mtu)
            ));
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use tonnage_sys::verbs::{KeyedRegion, RegionKeys};

    use super::*;

    fn device(driver: Option<&str>) -> RdmaDevice {
        RdmaDevice {
            name: "rxeA".into(),
            driver: driver.map(str::to_owned),
            firmware: None,
            board: None,
            pci: None,
            ports: Vec::new(),
        }
    }

    #[test]
    fn a_device_other_than_mlx5_is_refused_with_and_without_the_library() {
        for drives in [Ok(false), Err("libmlx5.so.1: cannot open")] {
            for driver in [None, Some("bnxt_en")] {
                let refused = check_driver(&device(driver), drives).unwrap_err();
                let refused = refused.to_string();
                let expected = "rxeA is not an mlx5 device; DC is mlx5's own";
                assert!(refused.contains(expected), "{refused}");
            }
        }
    }

    #[test]
    fn a_missing_library_is_refused_with_the_packages_to_install() {
        let card = device(Some("mlx5_core"));
        let missing = check_driver(&card, Err("libmlx5.so.1: cannot open")).unwrap_err();
        let missing = missing.to_string();
        assert!(missing.contains("libmlx5.so.1: cannot open"), "{missing}");
        assert!(missing.contains("ibverbs-providers"), "{missing}");
        let other = check_driver(&card, Ok(false)).unwrap_err().to_string();
        assert!(
            other.contains("not the one that libibverbs has loaded"),
            "{other}"
        );
        check_driver(&card, Ok(true)).unwrap();
        // A device that the library drives is accepted, even if the kernel does not report its driver.
        check_driver(&device(None), Ok(true)).unwrap();
    }

    fn address() -> TargetAddress {
        TargetAddress {
            device: "mlx5_0:1".into(),
            target: 0x1234,
            access_key: AccessKey(u64::MAX - 1),
            mtu: 4096,
            gid: Some([7; 16]),
            lid: 9,
            over_ethernet: true,
            mailbox: FarBytes::from(&KeyedRegion {
                base: 1 << 40,
                keys: RegionKeys::one(77),
                len: 8192,
            }),
            peer: 3,
        }
    }

    #[test]
    fn a_card_that_does_not_fit_is_refused() {
        // InfiniBand NICs may have no GID.
        let without_gid = TargetAddress {
            gid: None,
            ..address()
        };
        for address in [address(), without_gid] {
            let read = TargetAddress::parse(&EndpointAddress::encode(&address), 3, 4096);
            assert_eq!(read, Ok(address));
        }
        let refused =
            |address: &EndpointAddress| TargetAddress::parse(address, 3, 4096).unwrap_err();
        assert!(
            refused(&EndpointAddress(b"{}".to_vec())).contains("cannot decode the peer's address")
        );
        assert!(
            refused(&EndpointAddress(vec![0xff; 9])).contains("cannot decode the peer's address")
        );
        let other = TargetAddress {
            peer: 4,
            ..address()
        };
        assert!(refused(&EndpointAddress::encode(&other)).contains("does not expect"));
        for target in [0, 1 << 24] {
            let nowhere = TargetAddress {
                target,
                ..address()
            };
            assert!(refused(&EndpointAddress::encode(&nowhere)).contains("number"));
        }
        let small = TargetAddress {
            mtu: 1024,
            ..address()
        };
        assert!(refused(&EndpointAddress::encode(&small)).contains("mtu=1024"));
    }
}
