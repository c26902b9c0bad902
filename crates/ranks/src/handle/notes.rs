//! Notes: what a rank tells rank 0 while the run goes on, such as how far it is. Nobody waits for one.
//!
//! Notes of a rank come in the order in which they were sent, and before anything that the rank enters later: once an
//! exchange is over on rank 0, the notes that ranks sent before they entered it are there.

use std::sync::Arc;

use crate::tree::node_handle::NodeHandle;
use crate::tree::shared::Shared;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

/// Bytes of a message beside the note in it.
const HEAD_BYTES: usize = 1024;

/// Sends notes of a rank, and takes those that have come to rank 0.
#[derive(Debug, Clone)]
pub struct Notes {
    shared: Arc<Shared>,
    node: NodeHandle,
    message_bytes_max: usize,
}

impl Notes {
    pub(super) fn new(shared: Arc<Shared>, node: NodeHandle, message_bytes_max: usize) -> Self {
        Self {
            shared,
            node,
            message_bytes_max,
        }
    }

    /// Sends a note to rank 0, which may send some itself.
    ///
    /// # Errors
    /// When it is longer than a message of the control channel.
    pub fn send(&self, note: Vec<u8>) -> Result<()> {
        if note.len() + HEAD_BYTES > self.message_bytes_max {
            return Err(Error::Failed(format!(
                "a note of {} bytes is too long for the control channel: {} are the most",
                note.len(),
                self.message_bytes_max - HEAD_BYTES
            )));
        }
        self.node.note(note);
        Ok(())
    }

    /// Takes the notes that have come to rank 0 since they were taken last, with the ranks that sent them; those of one
    /// rank in their order. Other ranks have none.
    pub fn take(&self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut lock(&self.shared.notes))
    }
}
