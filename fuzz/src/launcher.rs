//! Any environment is a rank's position in a run or is refused. Any text that a launcher passes on is a rank's advert
//! or is ignored.
//!
//! Each line of the input is a variable, NAME=VALUE, of mpirun, srun, torchrun, Kubernetes or tonnage itself. Slurm's
//! variables include lists of hosts.
use std::collections::HashMap;

use tonnage_ranks::{Meeting, detect, testing};

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    if let Some(again) = testing::advert(text) {
        assert_eq!(testing::advert(&again).as_ref(), Some(&again));
    }
    let variables: HashMap<&str, &str> = text
        .split('\n')
        .filter_map(|line| line.split_once('='))
        .collect();
    let env = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    let identity = match detect(&env, None) {
        Ok(Some(identity)) => identity,
        Ok(None) => return,
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{error}");
            return;
        }
    };
    assert!(identity.rank < identity.size);
    assert!(
        identity
            .local_size
            .is_none_or(|size| identity.local_rank < size)
    );
    match &identity.meeting {
        Meeting::Alone => assert_eq!(identity.size, 1),
        Meeting::FirstHost { host, port, .. } => {
            assert!(!host.is_empty() && *port > 0);
            assert!(!host.contains(['[', ']', ',', '/', ' ']), "{host}");
        }
        Meeting::Master { host, port, .. } => assert!(!host.is_empty() && *port > 0),
        Meeting::Local { .. } | Meeting::Exchange(_) => {}
    }
}
