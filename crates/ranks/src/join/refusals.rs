//! Refused connections, counted by reason. Errors about missing ranks describe them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tonnage_units::Error;

/// Maximum number of addresses named per reason: enough to find the source, and few enough for one line.
const NAMED_MAX: usize = 4;

/// Why a connection was refused.
#[derive(Debug)]
pub(crate) enum JoinRefusal {
    /// The peer did not finish its greeting in time.
    Silent,
    /// The peer was silent while other connections waited for a slot.
    Crowded,
    /// The peer closed the connection before it finished its greeting.
    Left,
    /// The peer's greeting failed to authenticate.
    WrongSecret,
    /// The peer sent a message that no rank sends at this point.
    Stranger(Error),
}

impl JoinRefusal {
    /// Returns the index of the reason among all reasons.
    fn kind(&self) -> usize {
        match self {
            Self::Silent => 0,
            Self::Crowded => 1,
            Self::Left => 2,
            Self::WrongSecret => 3,
            Self::Stranger(_) => 4,
        }
    }
}

/// Counts of refused connections.
#[derive(Debug)]
pub(crate) struct Refusals {
    timeout: Duration,
    /// One tally for each reason.
    tallies: [RefusalTally; 5],
}

#[derive(Debug, Default)]
struct RefusalTally {
    count: u64,
    from: BTreeSet<IpAddr>,
}

impl Refusals {
    /// Creates counts without refusals. `timeout` is the time allowed for a greeting.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            tallies: Default::default(),
        }
    }

    /// Counts a refusal. Returns whether it is the first refusal of the run.
    pub(crate) fn count(&mut self, from: IpAddr, refusal: &JoinRefusal) -> bool {
        let is_first = self.tallies.iter().all(|tally| tally.count == 0);
        let tally = &mut self.tallies[refusal.kind()];
        tally.count += 1;
        // One more address is kept than messages name, so that a message can show that there are more.
        if tally.from.len() <= NAMED_MAX {
            tally.from.insert(from.to_canonical());
        }
        is_first
    }

    /// Describes the reason of a refusal.
    pub(crate) fn reason(&self, refusal: &JoinRefusal) -> String {
        match refusal {
            JoinRefusal::Silent => {
                format!("it did not introduce itself within {:.1?}", self.timeout)
            }
            JoinRefusal::Crowded => "it was silent while too many others waited".into(),
            JoinRefusal::Left => "it closed the connection before it introduced itself".into(),
            JoinRefusal::WrongSecret => {
                "it is not a rank of this run, or it has another secret (TONNAGE_SECRET)".into()
            }
            JoinRefusal::Stranger(error) => error.to_string(),
        }
    }

    /// Describes all refusals in sentences, each with a space in front. Empty if there were none.
    pub(crate) fn describe(&self) -> String {
        let slow = format!(
            "did not finish the greeting in {:.1?}: is the network slow or lossy, or the host overloaded?",
            self.timeout
        );
        let kinds = [
            &*slow,
            "stayed silent and had to make room for others.",
            "closed before the greeting was finished.",
            "did not know the secret: is TONNAGE_SECRET (or TONNAGE_SECRET_FILE, ~/.config/tonnage/secret) the \
             same for all ranks?",
            "sent messages that no rank of this run sends.",
        ];
        let seen = self
            .tallies
            .iter()
            .zip(kinds)
            .filter(|(tally, _)| tally.count > 0);
        seen.map(|(tally, what)| format!(" {} {what}", tally.subject()))
            .collect()
    }
}

impl RefusalTally {
    fn subject(&self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        let named: Vec<String> = (self.from.iter().take(NAMED_MAX))
            .map(IpAddr::to_string)
            .collect();
        let is_long = self.from.len() > NAMED_MAX;
        let more = if is_long { " and others" } else { "" };
        let named = named.join(", ");
        format!("{} connection{plural} from {named}{more}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_described_by_reason() {
        let mut refusals = Refusals::new(Duration::from_secs(5));
        assert_eq!(refusals.describe(), "");
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert!(refusals.count(from(1), &JoinRefusal::Silent));
        assert!(!refusals.count(from(1), &JoinRefusal::Silent));
        let text = refusals.describe();
        let wanted = " 2 connections from 10.0.0.1 did not finish the greeting in 5.0s: ";
        assert!(text.starts_with(wanted), "{text}");
        assert!(!text.contains("secret"), "{text}");
        for last in 1..9 {
            refusals.count(from(last), &JoinRefusal::WrongSecret);
        }
        let text = refusals.describe();
        let wanted = " 8 connections from 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 and others did not know the secret: ";
        assert!(text.contains(wanted), "{text}");
    }
}
