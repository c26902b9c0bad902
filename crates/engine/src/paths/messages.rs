//! Cards and descriptors of all paths of a worker as one message.

use tonnage_units::{Error, Result};

use crate::Peer;

/// One message of those of all paths.
pub(super) fn join(of_paths: &[Vec<u8>]) -> Result<Vec<u8>> {
    postcard::to_allocvec(of_paths)
        .map_err(|error| Error::Failed(format!("paths cannot be described: {error}")))
}

/// The messages of all paths of a peer, each device having so many queue pairs.
pub(super) fn split(
    message: &[u8],
    paths: usize,
    queue_pairs: u32,
    peer: Peer,
) -> Result<Vec<Vec<u8>>> {
    let unreadable =
        |error| Error::Failed(format!("the paths of rank {peer} cannot be read: {error}"));
    let of_paths: Vec<Vec<u8>> = postcard::from_bytes(message).map_err(unreadable)?;
    if of_paths.len() == paths {
        return Ok(of_paths);
    }
    let (theirs, queue_pairs) = (of_paths.len(), queue_pairs.max(1) as usize);
    let devices = |paths: usize| match paths / queue_pairs {
        1 => "1 device".to_owned(),
        several => format!("{several} devices"),
    };
    Err(Error::Failed(match theirs.is_multiple_of(queue_pairs) {
        true => format!(
            "rank {peer} has {} and this rank has {}, and --rails joins the n-th of both: name as many for each rank \
             with --devices or --devices-of (`all` leaves out what has no way to other hosts: devices_left_out in the \
             record names it)",
            devices(theirs),
            devices(paths)
        ),
        false => format!(
            "rank {peer} has {theirs} paths and this rank has {paths}: start all ranks with the same --qps"
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_of_devices_or_queue_pairs_are_told_apart() {
        let message = join(&vec![vec![1, 2]; 6]).unwrap();
        assert_eq!(split(&message, 6, 2, 1).unwrap().len(), 6);
        let refused = |paths, queue_pairs| {
            let refused = split(&message, paths, queue_pairs, 1).unwrap_err();
            refused.to_string()
        };
        assert_eq!(
            refused(2, 2),
            "rank 1 has 3 devices and this rank has 1 device, and --rails joins the n-th of both: name as many for each \
             rank with --devices or --devices-of (`all` leaves out what has no way to other hosts: devices_left_out in \
             the record names it)"
        );
        assert_eq!(
            refused(4, 4),
            "rank 1 has 6 paths and this rank has 4: start all ranks with the same --qps"
        );
    }
}
