//! Raises the limit on open files of ranks with many connections. Rank 0 has a connection to each rank while the ranks
//! join, and other parents have one to each child. The soft limit is often lower than that, and ranks would then fail
//! to join without a clear reason.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::handshake::STRANGERS_MAX;
use crate::RankInfo;
use tonnage_units::{Error, Result};

/// Number of files that a rank may open while it joins, in addition to its connections.
const OTHERS: u64 = 12;

/// Whether a process may open the needed number of files.
#[derive(Debug, PartialEq, Eq)]
enum Allowance {
    Enough,
    /// The soft limit must be raised to the hard limit.
    Raise,
    /// Even the hard limit, given here, is too low.
    TooFew(u64),
}

/// Compares the limits with the needed and the desired number of files. A limit of `None` means no limit.
fn check_limits(soft: Option<u64>, hard: Option<u64>, needed: u64, welcome: u64) -> Allowance {
    match (soft, hard) {
        (_, Some(hard)) if hard < needed => Allowance::TooFew(hard),
        (Some(soft), _) if soft < welcome && hard != Some(soft) => Allowance::Raise,
        _ => Allowance::Enough,
    }
}

/// Makes sure that this rank can have connections to `ranks` other ranks.
pub(super) fn ensure_open_files(me: &RankInfo, ranks: u32) -> Result<()> {
    let limits = getrlimit(Resource::Nofile);
    let more = OTHERS + u64::from(ranks);
    // Unauthenticated connections use files too. But they may be refused, so they are desired, not needed.
    let strangers = STRANGERS_MAX as u64;
    // Avoids counting the open files if possible. Counting is slow if many are open, for example if ranks are threads
    // of one process.
    let most = open_files_max().map(|most| most + more + strangers);
    let has_room =
        |most| check_limits(limits.current, limits.maximum, most, most) == Allowance::Enough;
    if most.is_some_and(has_room) {
        return Ok(());
    }
    let needed = open_files() + more;
    let welcome = needed + strangers;
    match check_limits(limits.current, limits.maximum, needed, welcome) {
        Allowance::Enough => Ok(()),
        Allowance::Raise => {
            let raised = Rlimit {
                current: limits.maximum,
                maximum: limits.maximum,
            };
            match setrlimit(Resource::Nofile, raised) {
                Ok(()) => Ok(()),
                // A container may be unable to raise the limit, for example if the system's own limit (fs.nr_open) is
                // lower.
                Err(error) if limits.current.is_none_or(|soft| soft >= needed) => {
                    log::debug!("the soft limit on open files stays as it is: {error}");
                    Ok(())
                }
                Err(error) => {
                    log::info!("cannot raise the soft limit on open files: {error}");
                    Err(too_few_error(
                        me,
                        ranks,
                        needed,
                        limits.current.unwrap_or(0),
                    ))
                }
            }
        }
        Allowance::TooFew(hard) => Err(too_few_error(me, ranks, needed, hard)),
    }
}

/// Returns the capacity of this process's table of open files, which is at least the number of open files.
fn open_files_max() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let places = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    places?.trim().parse().ok()
}

/// Returns the approximate number of files that this process has open.
fn open_files() -> u64 {
    /// Assumed without /proc: three standard streams, the listening socket, sockets for two signals, and as many
    /// others.
    const USUAL: usize = 16;
    let open = std::fs::read_dir("/proc/self/fd").map_or(USUAL, |files| files.count());
    u64::try_from(open).unwrap_or(u64::MAX / 2)
}

fn too_few_error(me: &RankInfo, ranks: u32, needed: u64, limit: u64) -> Error {
    let most = (limit + u64::from(ranks) + 1).saturating_sub(needed);
    let all = match me.rank {
        0 if most > 1 => format!(", or start at most {most} ranks"),
        0 => String::new(),
        _ => ", or start fewer ranks".into(),
    };
    me.failure(format!(
        "it needs {needed} open files for connections to {ranks} other ranks while they join, but the limit on \
         open files is {limit} here. Raise that (ulimit -Hn as root, LimitNOFILE= of the launcher's service, \
         --ulimit nofile= of a container){all}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{door, identity, options, says};

    #[test]
    fn the_soft_limit_is_raised_only_if_it_is_too_low() {
        let low = |soft, hard| check_limits(soft, hard, 100, 164);
        assert_eq!(low(Some(64), Some(4096)), Allowance::Raise);
        assert_eq!(low(Some(64), None), Allowance::Raise);
        // Room for unauthenticated connections is a reason to raise the limit, but its lack is no reason to fail.
        assert_eq!(low(Some(120), Some(4096)), Allowance::Raise);
        assert_eq!(low(Some(120), Some(120)), Allowance::Enough);
        assert_eq!(low(Some(164), Some(4096)), Allowance::Enough);
        assert_eq!(low(None, None), Allowance::Enough);
        assert_eq!(low(Some(64), Some(99)), Allowance::TooFew(99));
        assert_eq!(low(Some(99), Some(99)), Allowance::TooFew(99));
    }

    #[test]
    fn files_are_counted_if_the_full_table_would_not_fit() {
        // Other tests open files between the two calls, but the table never shrinks.
        let open = open_files();
        let most = open_files_max();
        // Only Linux reports this.
        assert_eq!(most.is_some(), cfg!(target_os = "linux"));
        assert!(most.is_none_or(|most| most >= open), "{most:?} {open}");
        let has_room = |soft, hard| check_limits(soft, hard, 100, 100) == Allowance::Enough;
        assert!(has_room(Some(100), Some(100)) && has_room(None, None));
        assert!(!has_room(Some(99), Some(4096)) && !has_room(None, Some(99)));
    }

    #[test]
    fn a_refusal_names_both_numbers_and_the_largest_possible_run() {
        let identity = identity(0, 100, door().1);
        let me = options(&identity).info(&identity);
        let text = too_few_error(&me, 99, 120, 64).to_string();
        says(
            &text,
            &[
                "rank 0 on h0: it needs 120 open files",
                "99 other ranks",
                "is 64 here",
                "ulimit -Hn",
                "at most 44 ranks",
            ],
        );
        // The number of ranks in the message is right: 21 other files and connections to 43 other ranks make 64 files.
        let own = 120 - 99u64;
        let allowed = |others| check_limits(Some(64), Some(64), own + others, 0);
        assert_eq!(allowed(43), Allowance::Enough);
        assert_eq!(allowed(44), Allowance::TooFew(64));
    }
}
