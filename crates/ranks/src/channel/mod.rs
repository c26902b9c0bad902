//! One authenticated and encrypted connection of the control channel.
//!
//! The protocol is Noise `NNpsk0` over a nonblocking socket. A peer without the run's secret fails at the first
//! message, and until then a frame is limited to 64 bytes. Nothing here blocks except [`Channel::flush_until`], which
//! sends the last messages of a connection.
//!
//! Bounded frames are in [`frame`], and messages in [`message`]. The event loops are in [`crate::join`] and
//! [`crate::tree::node`].

pub mod frame;
pub mod message;
pub(crate) mod pack;
mod waiting;

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::io::Errno;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

use self::frame::FrameDecoder;
use self::frame::LENGTH_BYTES;
use self::message::{Message, MessageHead};
pub(crate) use self::waiting::{Interest, wait_for};
use crate::bootstrap::secret::Secret;
use tonnage_units::{Error, Result};

const NOISE_PARAMS: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Both sides mix this prologue into the handshake, so that another protocol with the same secret cannot be mistaken
/// for this one.
const PROLOGUE: &[u8] = b"tonnage control 1";
/// Limit on a handshake message; the real ones have 48 bytes.
const HANDSHAKE_BYTES_MAX: usize = 64;
/// Longest message that Noise allows, including the tag.
const NOISE_BYTES_MAX: usize = 65535;
const TAG_BYTES: usize = 16;
/// Limit on a message until the peer is accepted as a rank of this run.
pub(crate) const GREETING_BYTES_MAX: usize = 16 << 10;
/// Bytes per read. The buffer is small because it is on the stack, and stack pages stay allocated once they were
/// touched.
const READ_BYTES_MAX: usize = 16 << 10;
/// Maximum number of bytes per call of [`Channel::receive`], so that a busy peer does not starve the others.
const RECEIVE_BYTES_MAX: usize = 1 << 20;

/// Random numbers from the system, for the handshake's ephemeral keys.
struct SystemRandom;

impl Random for SystemRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> std::result::Result<(), snow::Error> {
        getrandom::fill(dest).map_err(|_| snow::Error::Rng)
    }
}

/// `snow`'s own cryptographic primitives, but with the system's random numbers.
struct Primitives;

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SystemRandom))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

enum ChannelState {
    Handshake(Box<snow::HandshakeState>),
    Transport(Box<snow::TransportState>),
    /// A step of the handshake has failed inside `snow`. Every later call fails.
    Broken,
}

/// A connection to another rank, or to a peer that has not yet proved to be a rank.
pub(crate) struct Channel {
    stream: TcpStream,
    pub(crate) peer: SocketAddr,
    state: ChannelState,
    sealed: FrameDecoder,
    plain: FrameDecoder,
    /// Messages that were sent before the handshake was complete. They are encrypted when it is.
    early: Vec<u8>,
    outgoing: Vec<u8>,
    sent: usize,
    /// Whether the connection has ended: the peer closed it, or it broke. Messages that arrived before can still be
    /// taken.
    pub(crate) ended: bool,
    /// Whether the peer's handshake message failed to authenticate.
    pub(crate) wrong_secret: bool,
    /// Bytes received, including encryption overhead.
    pub(crate) received_bytes: u64,
    /// Bytes of the handshake and of all messages that [`Channel::next_message`] has returned, including encryption
    /// overhead.
    pub(crate) taken_bytes: u64,
    /// Bytes of the handshake and of all messages queued for sending, including encryption overhead.
    pub(crate) queued_bytes: u64,
}

impl Channel {
    /// Creates the connecting side. Messages are queued until the peer has answered the handshake.
    pub(crate) fn initiate(stream: TcpStream, secret: &Secret) -> Result<Self> {
        let mut channel = Self::new(stream, secret, true)?;
        channel.step_handshake()?;
        Ok(channel)
    }

    /// Creates the accepting side.
    pub(crate) fn accept(stream: TcpStream, secret: &Secret) -> Result<Self> {
        Self::new(stream, secret, false)
    }

    fn new(stream: TcpStream, secret: &Secret, initiator: bool) -> Result<Self> {
        let peer = stream.peer_addr();
        let peer = peer.map_err(|error| Error::io("a new connection", error))?;
        stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(|error| Error::io(format!("connection to {peer}"), error))?;
        let params: NoiseParams = NOISE_PARAMS.parse().map_err(noise_error)?;
        let builder = snow::Builder::with_resolver(params, Box::new(Primitives))
            .psk(0, secret.key())
            .and_then(|builder| builder.prologue(PROLOGUE))
            .map_err(noise_error)?;
        let handshake = if initiator {
            builder.build_initiator()
        } else {
            builder.build_responder()
        };
        Ok(Self {
            stream,
            peer,
            state: ChannelState::Handshake(Box::new(handshake.map_err(noise_error)?)),
            sealed: FrameDecoder::new(HANDSHAKE_BYTES_MAX),
            plain: FrameDecoder::new(GREETING_BYTES_MAX),
            early: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            ended: false,
            wrong_secret: false,
            received_bytes: 0,
            taken_bytes: 0,
            queued_bytes: 0,
        })
    }

    /// Raises the limit on messages; call it once the peer is known to be a rank of this run.
    pub(crate) fn raise_message_max(&mut self, message_bytes_max: usize) {
        self.plain.set_max(message_bytes_max);
    }

    pub(crate) fn local_addr(&self) -> Result<SocketAddr> {
        self.stream
            .local_addr()
            .map_err(|error| Error::io("own address of a connection", error))
    }

    /// Returns whether the peer is on another machine, judged by addresses alone.
    pub(crate) fn is_remote(&self) -> bool {
        let own = self.stream.local_addr().map(|own| own.ip());
        !self.peer.ip().is_loopback() && own.is_ok_and(|own| own != self.peer.ip())
    }

    /// Returns whether the handshake is complete. The peer has then proved that it has the secret.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.state, ChannelState::Transport(_))
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.ended && self.sent < self.outgoing.len()
    }

    /// Queues a message; [`Channel::flush`] writes it to the socket.
    pub(crate) fn send(&mut self, head: &MessageHead, payload: &[u8]) -> Result<()> {
        let mut framed = Vec::new();
        frame::encode(&Message::encode(head, payload)?, &mut framed)?;
        match self.state {
            ChannelState::Transport(_) => self.seal(&framed),
            _ => {
                self.early.extend_from_slice(&framed);
                Ok(())
            }
        }
    }

    fn seal(&mut self, plain: &[u8]) -> Result<()> {
        let ChannelState::Transport(transport) = &mut self.state else {
            return Err(Error::Failed(format!(
                "the connection to {} is not ready",
                self.peer
            )));
        };
        for chunk in plain.chunks(NOISE_BYTES_MAX - TAG_BYTES) {
            let mut sealed = vec![0; chunk.len() + TAG_BYTES];
            let len = transport
                .write_message(chunk, &mut sealed)
                .map_err(noise_error)?;
            let before = self.outgoing.len();
            frame::encode(sealed.get(..len).unwrap_or_default(), &mut self.outgoing)?;
            self.queued_bytes += (self.outgoing.len() - before) as u64;
        }
        Ok(())
    }

    /// Writes as many bytes as the socket accepts now. A broken connection is not an error here; see
    /// [`Channel::ended`].
    pub(crate) fn flush(&mut self) {
        while self.wants_write() {
            match self
                .stream
                .write(self.outgoing.get(self.sent..).unwrap_or_default())
            {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // `receive` will detect the end, because earlier messages of the peer may still be unread.
                Err(_) => break,
            }
        }
        frame::empty(&mut self.outgoing);
        self.sent = 0;
    }

    /// Reads the bytes that have arrived, up to [`RECEIVE_BYTES_MAX`].
    pub(crate) fn receive(&mut self) -> Result<()> {
        self.read_socket(true)
    }

    /// Reads arrived bytes; a single system call suffices if they fit into one read. [`Channel::receive`] needs a
    /// second call to find out that no more bytes have arrived. Bytes that remain, or the end of the connection, keep
    /// the socket readable for the next wait.
    pub(crate) fn receive_some(&mut self) -> Result<()> {
        self.read_socket(false)
    }

    fn read_socket(&mut self, until_empty: bool) -> Result<()> {
        let mut taken = 0;
        #[cfg(test)]
        RECEIVES.set(RECEIVES.get() + 1);
        // The buffer is on the stack, so that all connections of a thread share one.
        let mut incoming = [const { MaybeUninit::uninit() }; READ_BYTES_MAX];
        while taken < RECEIVE_BYTES_MAX && !self.ended {
            match rustix::io::read(&self.stream, &mut incoming) {
                Ok(([], _)) => self.ended = true,
                Ok((bytes, _)) => {
                    taken += bytes.len();
                    self.received_bytes += bytes.len() as u64;
                    let is_full = bytes.len() == READ_BYTES_MAX;
                    self.sealed.push(bytes);
                    self.open_frames()?;
                    if !until_empty && !is_full {
                        return Ok(());
                    }
                }
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => self.ended = true,
            }
        }
        Ok(())
    }

    fn open_frames(&mut self) -> Result<()> {
        while let Some(frame) = self.sealed.next_frame()? {
            match &mut self.state {
                ChannelState::Handshake(handshake) => {
                    let read = handshake.read_message(&frame, &mut [0; HANDSHAKE_BYTES_MAX]);
                    self.wrong_secret = read.is_err();
                    read.map_err(noise_error)?;
                    self.taken_bytes += (LENGTH_BYTES + frame.len()) as u64;
                    self.step_handshake()?;
                }
                ChannelState::Transport(transport) => {
                    let mut opened = vec![0; frame.len()];
                    let len = transport
                        .read_message(&frame, &mut opened)
                        .map_err(noise_error)?;
                    self.plain.push(opened.get(..len).unwrap_or_default());
                }
                ChannelState::Broken => {
                    return Err(Error::Failed("the connection is broken".into()));
                }
            }
        }
        Ok(())
    }

    /// Sends this side's part of the handshake, if it is this side's turn. Switches to encrypted messages once the
    /// handshake is complete.
    fn step_handshake(&mut self) -> Result<()> {
        if let ChannelState::Handshake(handshake) = &mut self.state
            && handshake.is_my_turn()
            && !handshake.is_handshake_finished()
        {
            let mut answer = [0; HANDSHAKE_BYTES_MAX];
            let len = handshake
                .write_message(&[], &mut answer)
                .map_err(noise_error)?;
            frame::encode(answer.get(..len).unwrap_or_default(), &mut self.outgoing)?;
            self.queued_bytes += (LENGTH_BYTES + len) as u64;
        }
        self.state = match std::mem::replace(&mut self.state, ChannelState::Broken) {
            ChannelState::Handshake(handshake) if handshake.is_handshake_finished() => {
                ChannelState::Transport(Box::new(
                    handshake.into_transport_mode().map_err(noise_error)?,
                ))
            }
            other => other,
        };
        if self.is_established() {
            self.sealed.set_max(NOISE_BYTES_MAX);
            let early = std::mem::take(&mut self.early);
            self.seal(&early)?;
        }
        self.flush();
        Ok(())
    }

    /// Returns the next whole message, if one has arrived.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message>> {
        match self.plain.next_frame()? {
            None => Ok(None),
            Some(bytes) => {
                let plain = LENGTH_BYTES + bytes.len();
                let chunks = plain.div_ceil(NOISE_BYTES_MAX - TAG_BYTES);
                self.taken_bytes += (plain + chunks * (LENGTH_BYTES + TAG_BYTES)) as u64;
                Message::decode(&bytes).map(Some)
            }
        }
    }

    /// Writes all queued messages, until the deadline passes or the connection breaks.
    pub(crate) fn flush_until(&mut self, deadline: Instant) {
        self.flush();
        while self.wants_write() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || wait_for(&[self.interest()], left).is_err() {
                return;
            }
            // Reading avoids a deadlock with a peer that waits until its own writes are read.
            if self.receive().is_err() {
                return;
            }
            self.flush();
        }
    }

    /// Shuts down the sending side. Data from the peer can still be read.
    pub(crate) fn finish_writing(&self) {
        // `shutdown` fails only if the connection is already gone.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads and drops all arrived bytes.
    pub(crate) fn discard(&mut self) {
        let mut unread = [const { MaybeUninit::uninit() }; READ_BYTES_MAX];
        loop {
            match rustix::io::read(&self.stream, &mut unread) {
                Ok(([], _)) => self.ended = true,
                Ok(_) => continue,
                Err(Errno::WOULDBLOCK) => {}
                Err(_) => self.ended = true,
            }
            return;
        }
    }

    /// Returns the events of this connection that a caller should wait for.
    pub(crate) fn interest(&self) -> Interest<'_> {
        Interest {
            fd: self.stream.as_fd(),
            write: self.wants_write(),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
thread_local! {
    /// Number of reads of connections by this thread. Each is at least one system call.
    pub(crate) static RECEIVES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn noise_error(error: snow::Error) -> Error {
    Error::Failed(format!(
        "the peer is not a rank of this run, or it has another secret ({error})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SECRET, SOON, door};
    use tonnage_sys::counting_alloc::{Counting, counts};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// Both ends of a connection after the handshake.
    fn pair() -> (Channel, Channel) {
        let (listener, address) = door();
        let secret = Secret::from_text(SECRET).unwrap();
        let mut far = Channel::initiate(TcpStream::connect(address).unwrap(), &secret).unwrap();
        let mut near = Channel::accept(listener.accept().unwrap().0, &secret).unwrap();
        for channel in [&mut near, &mut far] {
            wait_for(&[channel.interest()], SOON).unwrap();
            channel.receive().unwrap();
            assert!(channel.is_established());
        }
        (near, far)
    }

    /// Memory matters, because rank 0 has a connection to every rank while the ranks join.
    #[test]
    fn a_connection_costs_little_memory() {
        let before = counts();
        let ends: Vec<_> = (0..8).map(|_| pair()).collect();
        let each = counts().since(before).allocated_bytes / 16;
        assert!((500..16_000).contains(&each), "{each}");
        drop(ends);
    }

    #[test]
    fn a_long_message_leaves_no_memory_behind() {
        let (mut near, mut far) = pair();
        let payload = vec![7; 1 << 20];
        far.raise_message_max(2 << 20);
        near.send(&MessageHead::Beat, &payload).unwrap();
        let message = loop {
            near.flush();
            far.receive().unwrap();
            if let Some(message) = far.next_message().unwrap() {
                break message;
            }
        };
        assert!(message.payload == payload);
        near.flush();
        assert!(near.outgoing.capacity() <= 4 << 10);
    }
}
