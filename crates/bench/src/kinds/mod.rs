//! The kinds of experiments: a folder and a line for each. Nothing else in this crate names them all.
//!
//! | folder | what lives there |
//! | --- | --- |
//! | [`transfer`] | transfers between the memories of ranks |
//! | [`files`] | reads and writes of files |
//! | [`collective`] | operations that all ranks call together |
//! | [`connect`] | connections set up and taken down |
//! | [`stress`] | transfers drawn from a seed, engines in turn |
//! | [`tune`] | options that compete for a goal |
//!
//! The traits of a kind are in [`kind`], and the command line that asks for a point again in `repeat`.

pub mod collective;
pub mod connect;
pub mod files;
pub mod kind;
mod list;
mod repeat;
pub mod stress;
pub mod transfer;
pub mod tune;

list::kinds! {
    transfers: transfer::Transfers, for Transfer;
    files: files::Files, for File;
    connects: connect::Connects, for Connect;
    stresses: stress::Stresses, for Stress;
    tunes: tune::Tunes, for Tune;
    collectives: collective::CollectiveCalls, for Collective;
}
