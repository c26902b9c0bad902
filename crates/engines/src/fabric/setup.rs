//! Set-up of a worker before it moves bytes: registering memory, cards, connecting and greeting peers.

use std::sync::Arc;

use tonnage_engine::memory::Memory;
use tonnage_engine::{Card, Neighbor};
use tonnage_sys::libfabric::{self, Action, Posted, RemoteRegion, Route};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::contact::{Address, Awaited, Contact, device};
use super::files::remove_own;
use super::mail::{Greeted, Mail};
use super::queue_sizes::not_registered;
use super::worker::{Ends, FabricWorker, GREETING, PeerState};

impl FabricWorker {
    /// Registers bytes under a key of their own.
    pub(super) fn register_arena(
        &mut self,
        arena: &Arc<Arena>,
    ) -> Result<(u32, libfabric::RegionHandle, RemoteRegion)> {
        let registered = self.endpoint.register(Arc::clone(arena), self.key());
        let region = registered.map_err(|why| not_registered(&self.name, arena.len(), &why))?;
        self.numbered(region)
    }

    /// Registers memory of a GPU in the same way.
    pub(super) fn register_device(
        &mut self,
        memory: &Arc<dyn Memory>,
    ) -> Result<(u32, libfabric::RegionHandle, RemoteRegion)> {
        let region = self.register_card_memory(memory, self.key())?;
        self.numbered(region)
    }

    /// The key of the next region.
    fn key(&self) -> u64 {
        u64::from(self.region_next) + 1
    }

    fn numbered(
        &mut self,
        region: libfabric::RegionHandle,
    ) -> Result<(u32, libfabric::RegionHandle, RemoteRegion)> {
        let number = self.region_next;
        self.region_next += 1;
        let remote = self.endpoint.remote(region);
        let remote = remote.ok_or_else(|| Error::Failed("a region has no address".into()))?;
        Ok((number, region, remote))
    }

    /// True when its receives tell peers apart by tags.
    pub(super) fn tags(&self) -> bool {
        self.config.peers_max > 1
    }

    /// A mailbox for peers that have no place yet.
    pub(super) fn make_mail(&mut self, peers: &[u32]) -> Result<()> {
        let has_place = |peer: &u32| self.mails.iter().any(|mail| mail.place(*peer).is_some());
        let fresh: Vec<u32> = peers
            .iter()
            .copied()
            .filter(|peer| !has_place(peer))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let arena = Mail::allocate(fresh.len())?;
        let (_, region, remote) = self.register_arena(&arena)?;
        let mail = Mail::new(arena, region, remote, fresh, self.config.rank)?;
        self.mails.push(mail);
        Ok(())
    }

    /// Place of a peer's greeting.
    pub(super) fn greeted(&self, rank: u32) -> Result<Greeted> {
        let find = |(index, mail): (usize, &Mail)| {
            let place = mail.place(rank)?;
            Some(Greeted { mail: index, place })
        };
        let found = self.mails.iter().enumerate().find_map(find);
        found.ok_or_else(|| Error::Failed(format!("no card was made for rank {rank}")))
    }

    pub(super) fn card(&self, rank: u32) -> Result<Card> {
        let greeted = self.greeted(rank)?;
        let mail = &self.mails[greeted.mail];
        let address = Address::new(
            &self.attributes,
            self.endpoint.library(),
            self.endpoint.name(),
            (mail, greeted.place),
            (rank, self.tags()),
        );
        Ok(address.card())
    }

    pub(super) fn connect_one(&mut self, neighbor: &Neighbor) -> Result<PeerState> {
        let rank = neighbor.peer;
        let about = |error: Error| {
            Error::Failed(format!(
                "{} between ranks {} and {rank}: {error}",
                self.name, self.config.rank
            ))
        };
        if self.peers.len() >= self.config.peers_max as usize {
            let most = self.config.peers_max;
            return Err(about(Error::Failed(format!(
                "it was opened for {most} peers and has as many"
            ))));
        }
        let address = Address::parse(&neighbor.card).map_err(about)?;
        let own = (&self.attributes, self.endpoint.library());
        address.check_fits(own, [self.config.rank, rank], neighbor.locality)?;
        address.check_is_for(self.config.rank).map_err(about)?;
        let greeted = self.greeted(rank).map_err(about)?;
        if self.ways.is_shm {
            self.try_to_attach(rank, &address)?;
        }
        let peer = self.endpoint.insert(&address.name).map_err(|why| {
            Error::Failed(format!("{} cannot address rank {rank}: {why}", self.name))
        })?;
        Ok(PeerState {
            rank,
            device: address.device,
            peer,
            mailbox: address.mailbox.into(),
            place: address.place,
            greeted,
            tags: address.tags,
        })
    }

    /// Greets every peer that is new, and waits until all have greeted this worker.
    pub(super) fn first_contact(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let fresh = &self.peers[self.met..];
        let awaited = |peer: &PeerState| Awaited {
            rank: peer.rank,
            device: peer.device.clone(),
            mailbox: Arc::clone(&self.mails[peer.greeted.mail].arena),
            place: peer.greeted.place,
        };
        let own = device(&self.attributes);
        let mut contact = Contact::new(own, fresh.iter().map(awaited).collect());
        let all = fresh.len();
        let mut left: Vec<u32> = fresh.iter().map(|peer| peer.rank).collect();
        let mut completed = 0;
        loop {
            // An earlier call that was stopped may have left greetings, which complete in this one.
            let in_flight = all.saturating_sub(left.len() + completed);
            if contact.is_complete(self.config.rank, &left, in_flight)? {
                // Who has greeted this worker has mapped it. Its name goes once nobody else is to come.
                self.met = self.peers.len();
                if self.met == self.config.peers_max as usize {
                    remove_own(self.endpoint.name());
                }
                return Ok(());
            }
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            left = self.greet(&left)?;
            let ends = Ends {
                lanes: &self.lanes,
                peers: &self.peers,
                named: self.named,
            };
            let early = &mut self.early;
            let polled = self.endpoint.poll(usize::MAX, |event| match event.user {
                GREETING => completed += 1,
                // A peer that has met all of its own writes at once.
                _ => early.keep(ends.completion(&event)),
            });
            polled.map_err(|failure| self.dead(&failure, None))?;
        }
    }

    /// Greets the peers that have not been greeted, each that takes it now; returns those that are left. A peer that is
    /// not ready must not keep the others waiting.
    pub(super) fn greet(&mut self, left: &[u32]) -> Result<Vec<u32>> {
        let mut later = Vec::new();
        for peer in self.peers.iter().filter(|peer| left.contains(&peer.rank)) {
            let mail = &self.mails[peer.greeted.mail];
            let route = Route {
                action: Action::Write,
                peer: peer.peer,
                remote: peer.mailbox,
                local: mail.region,
                delivered: false,
                inject_bytes_max: 0,
            };
            match self
                .endpoint
                .post(&route, mail.own(), peer.place, 8, 0, GREETING)
            {
                Ok(Posted::Again) => later.push(peer.rank),
                Ok(Posted::Pending | Posted::Injected) => {}
                Err(failure) => return Err(self.dead(&failure, Some(peer.rank))),
            }
        }
        Ok(later)
    }

    /// Finds out whether this process may read and write a peer's memory directly.
    pub(super) fn try_to_attach(&mut self, rank: u32, address: &Address) -> Result<()> {
        let tried = address.try_to_attach();
        self.attachable = Some(self.attachable.unwrap_or(true) && tried.is_ok());
        match tried {
            Err(error) if self.ways.attaches => Err(Error::Unavailable {
                what: format!("shm-writes=cma between ranks {} and {rank}", self.config.rank),
                why: format!("process_vm_readv of the peer's memory failed: {error}"),
                how: "Start both ranks as one user in one container, with kernel.yama.ptrace_scope at most 1, or use \
                      shm-writes=ordered"
                    .into(),
            }),
            _ => Ok(()),
        }
    }
}
