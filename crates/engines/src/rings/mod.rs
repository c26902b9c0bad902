//! Rings in shared memory by which two workers of one host tell each other what arrived and where sends may land: what
//! engines have in common whose initiator moves the bytes itself.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mailbox` | the rings |
//! | `contacts` | making them for peers, and mapping those of peers |
//! | `refusals` | why a send does not land |
//!
//! Bytes and whoever moves them are the engines': see [`crate::shm`] and [`crate::cuda_ipc`].

mod contacts;
mod mailbox;
mod refusals;

pub(crate) use contacts::Contacts;
#[cfg(test)]
pub(crate) use mailbox::tests::pair;
pub(crate) use mailbox::{Arrival, ArrivalEntry, DEPTH, Outbox, PeerRings, take_arrivals};
#[cfg(test)]
pub(crate) use refusals::OTHER_REGION;
pub(crate) use refusals::{described, failure, torn};
