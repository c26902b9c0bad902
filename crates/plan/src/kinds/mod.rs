//! The list of kinds, with a folder and a line for each. Only this module names them all.
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
    /// Between memories.
    Transfer: transfer::Transfer, transfer::TransferPoint;
    /// With files.
    File: files::FileJob, files::FilePoint;
    /// Setting up connections.
    Connect: connect::Connect, connect::ConnectPoint;
    /// Drawing transfers.
    Stress: stress::Stress, stress::StressPoint;
    /// Searching options.
    Tune: tune::Tune, tune::TunePoint;
    /// Calling together.
    Collective: collective::CollectiveJob, collective::CollectivePoint;
}
