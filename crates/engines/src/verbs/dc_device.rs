//! The device of `verbs:dc`: one of mlx5, with libmlx5 beside libibverbs; one clear error for each thing that is not
//! there.

use std::sync::Arc;

use tonnage_machine::devices::RdmaDevice;
use tonnage_sys::verbs::{DcReads, Libmlx5, probe_dc};
use tonnage_units::{Error, Result};

use super::choose::{ChosenPort, unavailable};
use super::transport::VerbsTransport;

/// The driver of mlx5 cards, and the beginning of the names of its parts.
const DRIVER: &str = "mlx5";

/// A device as DC needs it: with libmlx5, and the limits that this tells of it.
pub(super) struct DcDevice {
    pub(super) library: Arc<Libmlx5>,
    /// `None` where the library is too old to say.
    pub(super) reads: Option<DcReads>,
}

/// Opens what DC needs of a port's device, where it is asked for, and sees whether the device has it.
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
    check_driver(device, drives.map_err(String::as_str))?;
    let library = Arc::new(loaded.map_err(Error::Failed)?);
    let name = context.name();
    probe_dc(context, &library).map_err(|why| {
        let how = "Choose a device that has it: Connect-IB, or ConnectX-4 and later, where firmware and kernel offer it \
                   (a virtual function may have none); or verbs:rc";
        unavailable(format!("{name} makes no queue pairs of DC ({why})"), how)
    })?;
    let reads = library
        .dc_reads(context)
        .map_err(|why| Error::Failed(format!("{name}: {why}")))?;
    Ok(Some(DcDevice { library, reads }))
}

/// Refuses a device that is not mlx5's; and one that is, where the library is missing. `drives` is the library's answer
/// for the device, or the reason why there is no library.
fn check_driver(device: &RdmaDevice, drives: std::result::Result<bool, &str>) -> Result<()> {
    let is_its_driver = |driver: &String| driver.starts_with(DRIVER);
    match drives {
        Ok(true) => Ok(()),
        Err(why) if device.driver.as_ref().is_some_and(is_its_driver) => {
            let how = "Install ibverbs-providers (Debian, Ubuntu) or libibverbs (others), of rdma-core 24 or later, or the \
                       card's OFED";
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

#[cfg(test)]
mod tests {
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
    fn a_device_that_is_not_of_mlx5_is_refused_with_and_without_the_library() {
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
    fn a_card_without_its_library_is_told_what_to_install() {
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
        // A name that the kernel has not told is no reason to refuse what the library drives.
        check_driver(&device(None), Ok(true)).unwrap();
    }
}
