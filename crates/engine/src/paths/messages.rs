//! Cards and descriptors of all paths of a worker as one message.

use tonnage_units::{Error, Result};

use crate::Peer;

/// One message of those of all paths.
pub(super) fn join(of_paths: &[Vec<u8>]) -> Result<Vec<u8>> {
    postcard::to_allocvec(of_paths)
        .map_err(|error| Error::Failed(format!("paths cannot be described: {error}")))
}

/// The messages of all paths of a peer.
pub(super) fn split(message: &[u8], paths: usize, peer: Peer) -> Result<Vec<Vec<u8>>> {
    let unreadable =
        |error| Error::Failed(format!("the paths of rank {peer} cannot be read: {error}"));
    let of_paths: Vec<Vec<u8>> = postcard::from_bytes(message).map_err(unreadable)?;
    if of_paths.len() == paths {
        return Ok(of_paths);
    }
    Err(Error::Failed(format!(
        "rank {peer} has {} paths and this rank has {paths}: start all ranks with the same --qps and devices",
        of_paths.len()
    )))
}
