//! A node's reaction to each message, and to calls of its main thread.

use std::time::Duration;

use super::clock::{ClockAnswer, monotonic_ns};
use super::collective::CombinedPart;
use super::missing::{InquiryAnswers, MissingInquiry, OverdueReport, collect_time};
use super::node::{LinkDirection, TreeNode};
use super::shared::{CollectiveCall, CollectiveResult};
use crate::RankInfo;
use crate::channel::message::{
    CallNumber, CollectiveKind, CollectiveTerms, Message, MessageHead, clip_text,
};
use crate::channel::pack::{pack, unpack};
use crate::rank_set::RankSet;
use tonnage_sys::clock::slew_ppb_max;
use tonnage_units::lock::lock;
use tonnage_units::{Error, Result};

impl TreeNode {
    /// Handles a message from the rank behind the link with this index.
    pub(crate) fn handle_message(&mut self, index: usize, message: Message) -> Result<()> {
        let Some(link) = self.links.get_mut(index) else {
            return Ok(());
        };
        let Message { head, payload } = message;
        match (head, link.way) {
            (MessageHead::Beat, _) => {}
            (MessageHead::Goodbye, _) => link.goodbye = true,
            (MessageHead::Abort { cause }, way) => {
                self.has_parent_ended |= way == LinkDirection::Up;
                self.receive_end(cause);
            }
            (head, LinkDirection::Up) => return self.handle_parent_message(head, payload),
            (head, LinkDirection::Down(child)) => {
                let from = link.info.clone();
                return self.handle_child_message(index, (child, &from), head, payload);
            }
        }
        Ok(())
    }

    fn handle_parent_message(&mut self, head: MessageHead, payload: Vec<u8>) -> Result<()> {
        match head {
            MessageHead::Down { call } => self.complete_collective(call, payload)?,
            MessageHead::ClockPong {
                sent_ns,
                at_ns,
                slew_ppb,
            } => {
                self.clock.add_answer(ClockAnswer {
                    sent_ns,
                    at_ns,
                    came_ns: monotonic_ns(),
                    own_slew_ppb: slew_ppb_max(),
                    parent_slew_ppb: slew_ppb,
                });
                self.ask_clock();
                self.publish_clock();
            }
            MessageHead::ClockBase(base) => {
                if self.clock.set_parent_base(base, monotonic_ns()) {
                    self.ask_clock();
                }
                self.publish_clock();
            }
            MessageHead::Who { call, members } => {
                self.check_members(&members)?;
                self.begin_inquiry(call, members);
            }
            _ => return Err(unexpected_message()),
        }
        Ok(())
    }

    fn handle_child_message(
        &mut self,
        index: usize,
        from: (usize, &RankInfo),
        head: MessageHead,
        payload: Vec<u8>,
    ) -> Result<()> {
        match head {
            MessageHead::Up(terms) => {
                self.check_members(&terms.members)?;
                let combined = self.collectives.add_child_part(terms, from, payload)?;
                self.pass_combined(combined);
            }
            MessageHead::Note { rank } => self.pass_note(rank, payload),
            MessageHead::ClockPing { sent_ns } => {
                let pong = MessageHead::ClockPong {
                    sent_ns,
                    at_ns: monotonic_ns(),
                    slew_ppb: self.clock.path_slew_ppb(slew_ppb_max()),
                };
                self.send(index, &pong, &[]);
            }
            MessageHead::Overdue { terms, waited_ms } => {
                self.check_members(&terms.members)?;
                self.report_overdue(terms, Duration::from_millis(waited_ms));
            }
            MessageHead::Answer { call } => {
                let answers: InquiryAnswers = unpack(&payload)?;
                if !answers.is_valid(self.settings.size) {
                    return Err(Error::Failed(
                        "it answered for ranks that do not exist".into(),
                    ));
                }
                self.receive_answers(call, answers);
            }
            _ => return Err(unexpected_message()),
        }
        Ok(())
    }

    /// Enters a collective on behalf of the main thread.
    pub(crate) fn enter(&mut self, enter: CollectiveCall) {
        if self.aborted.is_some() {
            return enter.slot.set_result(CollectiveResult::Stopped);
        }
        let slot = enter.slot.clone();
        match self.collectives.add_own_part(&self.settings.me, enter) {
            Ok(combined) => self.pass_combined(combined),
            Err(error) => {
                self.fail(&error);
                // The main thread reads the cause as soon as it is released, so the cause is set first.
                slot.set_result(CollectiveResult::Stopped);
            }
        }
    }

    /// Passes on the contribution of a complete subtree. If the subtree contains all members, it goes down as the
    /// result; otherwise it goes to the parent.
    fn pass_combined(&mut self, combined: Option<CombinedPart>) {
        let Some(CombinedPart {
            terms,
            has_all,
            payload,
        }) = combined
        else {
            return;
        };
        let CollectiveTerms { call, kind, .. } = terms;
        let what = &terms.what;
        if payload.len() + what.len() + 1024 > self.settings.message_bytes_max {
            let message = format!(
                "\"{what}\" grew to {} bytes, more than the {} bytes that the control channel carries for {} ranks",
                payload.len(),
                self.settings.message_bytes_max,
                self.settings.size
            );
            return self.fail(&Error::Failed(message));
        }
        if !has_all {
            // In a broadcast, only rank 0's contribution counts.
            let is_broadcast = kind == CollectiveKind::Broadcast;
            let payload = if is_broadcast { Vec::new() } else { payload };
            return self.send_to_parent(&MessageHead::Up(terms), &payload);
        }
        let payload = match kind {
            CollectiveKind::Start => {
                pack(&self.start_ns(&terms.members)).map(|start| [start, payload].concat())
            }
            _ => Ok(payload),
        };
        if let Err(error) = payload.and_then(|payload| self.complete_collective(call, payload)) {
            self.fail(&error);
        }
    }

    /// Returns a start time on rank 0's clock, so far ahead that all members of the collective learn of it in time.
    fn start_ns(&self, members: &RankSet) -> u64 {
        let now_ns = monotonic_ns();
        let lead = self.settings.start_lead.get();
        let lead_ns = lead.map_or(0, |lead| lead.ns(members.count()));
        let offset_ns = lock(&self.shared.clock).offset_at(now_ns).offset_ns;
        now_ns
            .saturating_add_signed(offset_ns.saturating_neg())
            .saturating_add(lead_ns)
    }

    /// Sends the result to the children, and then hands it to the main thread.
    fn complete_collective(&mut self, call: CallNumber, payload: Vec<u8>) -> Result<()> {
        let are_below = self.collectives.children_in_call(call);
        let delivery = self.collectives.deliver(call, &payload)?;
        let bytes_max = self.settings.message_bytes_max - 1024;
        let children = delivery.iter().flat_map(|delivery| &delivery.children);
        if let Some(bytes) = children
            .map(Vec::len)
            .max()
            .filter(|bytes| *bytes > bytes_max)
        {
            return Err(Error::Failed(format!(
                "the messages for the ranks below one child have {bytes} bytes, more than the {bytes_max} bytes that \
                 the control channel carries"
            )));
        }
        for index in 0..self.links.len() {
            if let LinkDirection::Down(child) = self.links[index].way
                && are_below.get(child) == Some(&true)
            {
                let own = delivery.as_ref().map(|delivery| &delivery.children[child]);
                self.send(index, &MessageHead::Down { call }, own.unwrap_or(&payload));
            }
        }
        let mine = delivery.map_or(payload, |delivery| delivery.mine);
        self.collectives.finish(call, mine);
        Ok(())
    }

    /// Fails if a peer sent a set of members that are not ranks of this run.
    fn check_members(&self, members: &RankSet) -> Result<()> {
        if !members.is_valid(self.settings.size) {
            return Err(Error::Failed(
                "it named members that are not ranks of this run".into(),
            ));
        }
        Ok(())
    }

    /// Asks the parent for its time, if another answer is needed.
    pub(crate) fn ask_clock(&mut self) {
        if self.clock.wants_sample() {
            let sent_ns = monotonic_ns();
            self.send_to_parent(&MessageHead::ClockPing { sent_ns }, &[]);
        }
    }

    /// Publishes this rank's clock estimate to the main thread and to the children. It does so once the estimate is
    /// known. If the clock is tracked, it does so again after each answer of the parent.
    pub(crate) fn publish_clock(&mut self) {
        let Some(known) = self.clock.result(monotonic_ns()) else {
            return;
        };
        if self.shared.clock_known.is_done() && !self.clock.needs_resampling() {
            return;
        }
        *lock(&self.shared.clock) = known;
        self.shared
            .clock_known
            .set_result(CollectiveResult::Result(Vec::new()));
        self.send_to_children(&MessageHead::ClockBase(known.base), &[]);
    }

    /// Handles a report that a rank has waited too long in a collective. The root asks all ranks; other ranks forward
    /// the report.
    pub(crate) fn report_overdue(&mut self, terms: CollectiveTerms, waited: Duration) {
        let call = terms.call;
        // No inquiry is needed if the result is already known. Rank 0 runs one inquiry at a time.
        let is_root = self.settings.me.rank == 0;
        if self.collectives.has_finished(call) || is_root && self.inquiry.is_some() {
            return;
        }
        if !is_root {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            let terms = CollectiveTerms {
                what: clip_text(&terms.what),
                ..terms
            };
            return self.send_to_parent(&MessageHead::Overdue { terms, waited_ms }, &[]);
        }
        let members = terms.members.clone();
        self.complaint = Some(OverdueReport { terms, waited });
        self.begin_inquiry(call, members);
    }

    /// Forwards a note to rank 0. Rank 0 keeps it until `take_received` is called.
    pub(crate) fn pass_note(&mut self, rank: u32, note: Vec<u8>) {
        match self.settings.me.rank {
            0 => lock(&self.shared.notes).push((rank, note)),
            _ => self.send_to_parent(&MessageHead::Note { rank }, &note),
        }
    }

    /// Asks the ranks at and below this one whether they have entered a collective with these members.
    fn begin_inquiry(&mut self, call: CallNumber, members: RankSet) {
        if self.settings.me.rank != 0 {
            // A new inquiry ends an older one. The answers so far are sent to rank 0.
            self.close_inquiry();
        }
        let settings = &self.settings;
        let time = collect_time(settings.collect_time, settings.me.rank, settings.fanout);
        self.inquiry = Some(MissingInquiry::new(
            call,
            self.collectives.routes.subtree.count(),
            time,
        ));
        let answer = self.own_answer(call, &members);
        self.send_to_children(&MessageHead::Who { call, members }, &[]);
        self.receive_answers(call, answer);
    }

    /// Handles answers of some ranks. If their inquiry is no longer open here, they are forwarded separately.
    fn receive_answers(&mut self, call: CallNumber, answers: InquiryAnswers) {
        let asked = self.inquiry.as_mut();
        let Some(inquiry) = asked.filter(|inquiry| inquiry.call == call) else {
            return self.pass_answers(call, &answers);
        };
        inquiry.answer(answers);
        if inquiry.is_complete() {
            self.close_inquiry();
        }
    }

    /// Sends ranks' answers to the parent.
    pub(crate) fn pass_answers(&mut self, call: CallNumber, answers: &InquiryAnswers) {
        match pack(answers) {
            Ok(payload) => self.send_to_parent(&MessageHead::Answer { call }, &payload),
            Err(error) => self.fail(&error),
        }
    }
}

fn unexpected_message() -> Error {
    Error::Failed("it sent a message that is not allowed here".into())
}
