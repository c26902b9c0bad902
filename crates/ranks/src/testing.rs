//! Test support for this crate and for crates that use it: whole runs with threads as ranks over loopback, made-up
//! ranks, message sizes, and access to parsers for fuzz targets.
//!
//! The tree has a fan-out of 2, so that 13 ranks have four levels. Ranks do not end the process and catch no signals.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot start its ranks has failed"
)]

use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use tonnage_units::{Error, Result};

use crate::bootstrap::advert::Advert;
use crate::channel::message::Hello;
use crate::join::admission::AdmissionConditions;
use crate::rank_list::RankList;
use crate::tree::exchange::write_messages;
use crate::{Identity, JoinOptions, Meeting, Rank, RankInfo, Secret, pack};

pub(crate) const SECRET: &str = "a secret of the tests";
#[cfg(test)]
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn identity(rank: u32, size: u32, control: SocketAddr) -> Identity {
    Identity {
        rank,
        size,
        local_rank: 0,
        local_size: None,
        source: "test".into(),
        meeting: if size == 1 {
            Meeting::Alone
        } else {
            Meeting::Local { control }
        },
    }
}

/// Returns the identity of a rank that got the meeting address from its launcher.
#[cfg(test)]
pub(crate) fn launched(rank: u32, size: u32, address: SocketAddr) -> Identity {
    Identity {
        meeting: Meeting::Master {
            host: address.ip().to_string(),
            port: address.port(),
            source: crate::AddressSource::Variable,
        },
        ..identity(rank, size, address)
    }
}

pub(crate) fn options(identity: &Identity) -> JoinOptions {
    let secret = Secret::from_text(SECRET).unwrap();
    let mut options = JoinOptions::new(&|_| None, identity, secret, "plan".into()).unwrap();
    options.fanout = 2;
    options.end_process = false;
    options.handle_signals = false;
    options.grace = Duration::from_millis(100);
    options.host = format!("h{}", identity.rank);
    options
}

/// Returns an environment with these `NAME=value` words. If a name occurs twice, the first value counts.
#[cfg(test)]
pub(crate) fn env(variables: &str) -> impl Fn(&str) -> Option<String> + use<> {
    let words = variables.split_whitespace();
    let words = words.filter_map(|word| word.split_once('='));
    let all = words.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let all: Vec<_> = all.collect();
    move |name| {
        let found = all.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }
}

/// Checks that a message contains all of these parts.
#[cfg(test)]
pub(crate) fn says(message: &impl ToString, parts: &[&str]) {
    let text = message.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

/// Returns a listener for rank 0, and the listener's address.
pub(crate) fn door() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn start<T: Send + 'static>(
    rank: u32,
    size: u32,
    door: (Option<TcpListener>, SocketAddr),
    change: impl FnOnce(&mut JoinOptions),
    body: impl FnOnce(Result<Rank>) -> T + Send + 'static,
) -> JoinHandle<T> {
    let identity = identity(rank, size, door.1);
    let mut options = options(&identity);
    options.listener = door.0;
    change(&mut options);
    std::thread::Builder::new()
        .spawn(move || body(Rank::join(identity, options).map_err(tonnage_units::Error::from)))
        .unwrap()
}

/// Runs `body` on each rank, even if joining failed, and returns the results in rank order.
pub fn run_with<T: Send + 'static>(
    size: u32,
    change: impl Fn(u32, &mut JoinOptions),
    body: impl Fn(Result<Rank>) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let (listener, address) = door();
    let mut listener = Some(listener);
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            let listener = if rank == 0 { listener.take() } else { None };
            start(
                rank,
                size,
                (listener, address),
                |options| change(rank, options),
                body.clone(),
            )
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// Runs `body` on each joined rank and returns the results in rank order.
pub fn run<T: Send + 'static>(
    size: u32,
    body: impl Fn(Rank) -> T + Clone + Send + 'static,
) -> Vec<T> {
    run_with(size, |_, _| {}, move |rank| body(rank.unwrap()))
}

/// Makes up a rank on a host. Each host has its own boot ID.
pub fn rank_info(rank: u32, host: &str) -> RankInfo {
    RankInfo {
        rank,
        host: host.into(),
        pid: 1,
        boot_id: format!("boot of {host}").into(),
        network_namespace: "1".into(),
        pid_namespace: "1".into(),
        local_rank: 0,
        local_size: None,
    }
}

/// Returns the encoded size of the list of ranks, for `ranks` ranks on `hosts` hosts.
pub fn list_bytes(ranks: u32, hosts: u32) -> f64 {
    let (namespace, each) = ("4026531840", ranks / hosts.max(1));
    let info = |rank: u32| RankInfo {
        rank,
        host: format!("node-{:04}", rank / each).into(),
        pid: 40_000 + rank,
        boot_id: format!("{:08x}-30a1-4b6c-9bd7-bff6d39d3ce5", rank / each).into(),
        network_namespace: namespace.into(),
        pid_namespace: namespace.into(),
        local_rank: rank % 8,
        local_size: Some(8),
    };
    let list = RankList::from_infos((0..ranks).map(info).collect());
    pack(&list).unwrap().len() as f64
}

/// Returns the number of overhead bytes if each of `ranks` ranks sends one message to a rank of the other half.
pub fn pairs_bytes(ranks: u32) -> f64 {
    let half = ranks / 2;
    let of = |from: u32| {
        let to = (from + half) % ranks;
        let message = (to, Vec::new());
        write_messages(from, ranks, vec![message]).unwrap().len() as f64
    };
    (0..ranks).map(of).sum()
}

/// Parses an advert and formats it again. Returns `None` if the text is not an advert.
pub fn advert(text: &str) -> Option<String> {
    Advert::parse(text).map(|advert| advert.encode())
}

/// Returns rank 0's objection to an introduction, in a made-up run.
pub fn objection(hello: &Hello, size: u32) -> Option<Error> {
    let conditions = AdmissionConditions {
        me: rank_info(0, "h0"),
        size,
        source: "test".into(),
        plan_hash: "plan".into(),
    };
    conditions.objection(None, hello)
}
