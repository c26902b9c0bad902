//! Calls from the measuring loops to an engine: the combined meaning of `api` and `session`.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::point::{SessionUse, TransferApi};
use crate::options::{Group, Many, many_of, several, with_default};
use crate::refuse::usage_error;
use tonnage_engine::Verb;
use tonnage_units::Result;

/// Options of the calls between the loops and an engine.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Library", mut_args = with_default::<Self>)]
pub struct LibraryOptions {
    /// Calls that the loops make: those of the engine, or those of tonnage's transfer library, with tickets (poll) or
    /// futures (async); several are joined by commas. [default: engine, or poll with --session]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<TransferApi>(), value_delimiter = ',')]
    pub api: Option<Many<TransferApi>>,

    /// Lifetime of the library's lanes, with --api poll; several are joined by commas. [default: on]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<SessionUse>(), value_delimiter = ',')]
    pub session: Option<Many<SessionUse>>,
}

impl Group for LibraryOptions {}

/// Calls that the measuring loops make, and the session that library calls use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LibraryCall {
    pub(super) api: TransferApi,
    pub(super) session: Option<SessionUse>,
}

/// Returns every combination of api and session to measure. The session varies fastest.
pub(super) fn library_calls(options: &LibraryOptions) -> Result<Vec<LibraryCall>> {
    let sessions = several("session", &options.session, "on")?;
    let default = if sessions.is_some() {
        &[TransferApi::Poll]
    } else {
        &[TransferApi::Engine]
    };
    let apis = several("api", &options.api, "poll")?.unwrap_or(default);
    let mut callings = Vec::new();
    for &api in apis {
        let own = (api != TransferApi::Engine).then_some(&[SessionUse::On][..]);
        let Some(sessions) = sessions.or(own) else {
            callings.push(LibraryCall { api, session: None });
            continue;
        };
        for &session in sessions {
            check_session(api, session)?;
            callings.push(LibraryCall {
                api,
                session: Some(session),
            });
        }
    }
    Ok(callings)
}

fn check_session(api: TransferApi, session: SessionUse) -> Result<()> {
    match (api, session) {
        (TransferApi::Poll, _) | (TransferApi::Async, SessionUse::On) => Ok(()),
        (TransferApi::Engine, session) => usage_error(format!(
            "--session {session} applies to the library, which --api engine does not use: leave --api out, or use \
             --api poll"
        )),
        (TransferApi::Async, session) => usage_error(format!(
            "--session {session} needs --api poll, because futures always use a session: use --api poll, or \
             --session on"
        )),
    }
}

/// Refuses an operation for which the library has no call.
pub(super) fn check_call(api: TransferApi, op: Verb) -> Result<()> {
    if api == TransferApi::Engine {
        return Ok(());
    }
    if op == Verb::Send {
        return usage_error(format!(
            "--api {api} has no --op send, because its sessions name the memory at both ends: use --op write-imm, \
             or --api engine"
        ));
    }
    if op.is_atomic() {
        return usage_error(format!(
            "--api {api} has no --op {op}, because its calls only copy: leave --api out, or use --op write"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options, transfers};

    #[test]
    fn a_session_implies_polling_and_every_api_goes_with_every_session() {
        for (lines, expected) in cases([
            " => engine",
            "session = 'on' => poll on",
            "session = 'fresh,on' => poll fresh, poll on",
            "api = 'engine,poll,async' => engine, poll on, async on",
            "api = 'poll'; session = 'on,off' => poll on, poll off",
            "api = 'async,poll'; session = 'on' => async on, poll on",
        ]) {
            let callings = library_calls(&options(lines)).unwrap();
            let found = callings.iter().map(|calling| match calling.session {
                Some(session) => format!("{} {session}", calling.api),
                None => calling.api.to_string(),
            });
            assert_eq!(found.collect::<Vec<_>>().join(", "), expected);
        }
    }

    #[test]
    fn calls_that_the_library_lacks_are_refused_with_a_valid_choice() {
        for (lines, part) in cases([
            "api = 'poll,engine'; session = 'on' => --session on applies to the library, which --api engine does not use",
            "api = 'async'; session = 'fresh' => --session fresh needs --api poll",
            "session = [] => use --session on",
            "api = [] => use --api poll",
        ]) {
            library_calls(&options(lines)).refused(part);
        }
        let points = |lines: &str| transfers(&format!("engine = 'shm'\nsizes = 8\n{lines}"), 2);
        points("api = 'poll'\nop = 'send'").refused("use op write-imm, or api engine");
        assert!(points("api = 'poll'\nop = 'read'").is_ok());
    }
}
