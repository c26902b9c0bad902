//! The list of kinds: each has a folder and one line here. No other module names all kinds.
//!
//! | folder | what lives there |
//! | --- | --- |
//! | [`transfer`] | experiments between memories |
//! | [`files`] | experiments with files |
//! | [`connect`] | experiments with connections |
//! | [`stress`] | random transfers from a seed |
//! | [`tune`] | options searched for the best transfer |
//! | [`collective`] | operations that all ranks call together |
//!
//! The traits of a kind are in [`crate::kind`].

pub mod collective;
pub mod connect;
pub mod files;
mod list;
pub mod stress;
pub mod transfer;
pub mod tune;

list::kinds! {
    /// Transfers between memories.
    Transfer: transfer::Transfer, transfer::TransferPoint;
    /// Reads and writes of files.
    File: files::FileJob, files::FilePoint;
    /// Setting up connections.
    Connect: connect::Connect, connect::ConnectPoint;
    /// Random transfers.
    Stress: stress::Stress, stress::StressPoint;
    /// A search for the best options.
    Tune: tune::Tune, tune::TunePoint;
    /// Collective operations.
    Collective: collective::CollectiveJob, collective::CollectivePoint;
}
