//! Any environment is a place in a run or refused, and any text that a launcher passes on is a rank's advert or none.
//!
//! Each line of the input is a variable, NAME=VALUE: those of mpirun, srun, torchrun, Kubernetes and tonnage itself,
//! and with them Slurm's lists of hosts.
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
