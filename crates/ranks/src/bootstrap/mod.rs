//! Finds out everything that a process needs to join a run, such as its identity and the ranks' meeting place.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`mod@detect`] | the sources of a rank's number, in order of precedence |
//! | `launchers`, `slurm`, `variables` | the variables of launchers, and all others |
//! | [`rendezvous`] | ranks that a launcher started agree on a place and a secret |
//! | `first_host`, `advert` | the two ways to agree: from a list of hosts, or from each rank's description of its host |
//! | `store`, `pmi1` | a launcher's key-value store, and PMI-1 |
//! | `launch_watch` | signals and time while a library waits for the other ranks |
//! | [`secret`] | the proof that a connection belongs to the run |
//! | [`launcher_process`] | the launcher's process, if its death would leave ranks running |
//! | [`options`] | deadlines and other settings of a run |
//!
//! Ranks do not connect to each other here; they only use the launcher's channels. They connect in `crate::join`.

pub(crate) mod advert;
pub mod detect;
mod first_host;
mod launch_watch;
pub mod launcher_process;
pub(crate) mod launchers;
pub mod options;
mod pmi1;
pub mod rendezvous;
pub mod secret;
mod slurm;
mod store;
pub(crate) mod variables;

pub use store::LauncherDisconnect;
pub use variables::Env;
