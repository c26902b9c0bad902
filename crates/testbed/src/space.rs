//! Work in a network namespace, done by a thread that goes there.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, Result};

/// Does some work in a thread that is in the namespace of this name.
pub(crate) fn within<T: Send>(space: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = Path::new("/run/netns").join(space);
    let failed = |error: String| Error::Failed(format!("cannot work in {space}: {error}"));
    let file = File::open(&path).map_err(|error| failed(error.to_string()))?;
    let done = std::thread::scope(|scope| {
        let work = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok::<T, Errno>(work())
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        thread.map(|thread| thread.join())
    });
    match done.map_err(|error| failed(format!("no thread was started: {error}")))? {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the work panicked".into())),
    }
}
