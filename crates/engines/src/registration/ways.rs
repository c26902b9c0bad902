//! Methods of registering GPU memory: finds the first that is granted, and builds the error if none is.

use tonnage_units::Error;

use super::AUTO;
use crate::memory::vendor::NicRules;

/// A method of registering GPU memory with a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistrationWay {
    /// By a dmabuf that the GPU's driver exports.
    Dmabuf,
    /// By its address, which a kernel module translates for the NIC.
    Peermem,
    /// By its address, which the libfabric provider knows to be device memory (FI_HMEM).
    Hmem,
}

impl RegistrationWay {
    /// The value of the option that selects this method.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dmabuf => "dmabuf",
            Self::Peermem => "peermem",
            Self::Hmem => "hmem",
        }
    }

    /// Returns the requirements of this method, so that the user can check them after a refusal; `None` if nothing
    /// could help. `rules` are those of the GPU's vendor, if known.
    fn needs(self, rules: Option<&NicRules>) -> Option<String> {
        let built_with = rules.map_or_else(String::new, |rules| {
            format!(", built with {}", rules.built_with)
        });
        match (self, rules) {
            (Self::Dmabuf, _) => {
                let exported =
                    rules.map_or_else(String::new, |rules| format!("{}, and ", rules.dmabuf));
                Some(format!(
                    "dmabuf needs {exported}a NIC whose driver and library support it (mlx5: Linux 5.12 with \
                     CONFIG_INFINIBAND_ON_DEMAND_PAGING; efa, irdma and bnxt_re: 5.16 or newer, and no paging; \
                     rdma-core 34; libfabric 1.20{built_with})"
                ))
            }
            (Self::Peermem, Some(rules)) => Some(format!("peermem needs {}", rules.peermem)),
            (Self::Hmem, Some(rules)) => Some(format!(
                "hmem needs a libfabric that was built with {}, and a provider with FI_HMEM for it",
                rules.built_with
            )),
            // Memory that another process allocated has no address in this process.
            (Self::Peermem | Self::Hmem, None) => None,
        }
    }
}

/// A method that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotGranted {
    /// The refused method.
    pub(crate) way: RegistrationWay,
    /// The reason, with the call that refused.
    pub(crate) why: String,
}

impl std::fmt::Display for NotGranted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.way.name(), self.why)
    }
}

/// Tries the methods that the option's value selects, in order, until one is granted. Returns the granted method, the
/// attempt's result, and the refusals before it.
///
/// # Errors
/// All refusals, if no method is granted.
pub(crate) fn first_granted<T>(
    asked: &str,
    ways: &[RegistrationWay],
    mut attempt: impl FnMut(RegistrationWay) -> Result<T, String>,
) -> Result<(RegistrationWay, T, Vec<NotGranted>), Vec<NotGranted>> {
    let mut refused = Vec::new();
    for &way in ways {
        if asked != AUTO && asked != way.name() {
            continue;
        }
        match attempt(way) {
            Ok(made) => return Ok((way, made, refused)),
            Err(why) => refused.push(NotGranted { way, why }),
        }
    }
    Err(refused)
}

/// Returns the error for `what`, which is GPU memory. `rules` are those of the GPU's vendor. `staging` is the advice to
/// move the bytes through the host.
pub(crate) fn not_granted(
    (what, rules): (String, Option<&NicRules>),
    refused: &[NotGranted],
    staging: &str,
) -> Error {
    let words: Vec<_> = refused.iter().map(NotGranted::to_string).collect();
    let needs = refused.iter().filter_map(|one| one.way.needs(rules));
    let needs: Vec<_> = needs.collect();
    Error::Unavailable {
        what,
        why: format!("it is not registered with the NIC: {}", words.join("; ")),
        how: match needs.as_slice() {
            // If no method could ever be granted, staging is the only advice.
            [] => staging.to_owned(),
            _ => format!(
                "Check the requirements: {}. If none can be met, {staging}",
                needs.join("; ")
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::nvidia::NVIDIA;

    const ALL: [RegistrationWay; 2] = [RegistrationWay::Dmabuf, RegistrationWay::Peermem];

    fn tried(
        asked: &str,
        granted: &[RegistrationWay],
    ) -> (Vec<RegistrationWay>, Option<RegistrationWay>) {
        let mut tried = Vec::new();
        let chosen = first_granted(asked, &ALL, |way| {
            tried.push(way);
            match granted.contains(&way) {
                true => Ok(()),
                false => Err("no".to_owned()),
            }
        });
        let chosen = match chosen {
            Ok((way, (), before)) => {
                assert_eq!(before.len() + 1, tried.len());
                Some(way)
            }
            Err(all) => {
                assert_eq!(all.len(), tried.len());
                None
            }
        };
        (tried, chosen)
    }

    #[test]
    fn the_first_granted_way_is_taken_and_later_ones_are_not_tried() {
        let [dmabuf, peermem] = ALL;
        for (asked, granted, expected) in [
            ("auto", &ALL[..], (vec![dmabuf], Some(dmabuf))),
            ("auto", &[peermem], (vec![dmabuf, peermem], Some(peermem))),
            ("auto", &[], (vec![dmabuf, peermem], None)),
            // A method that the user requested is never replaced by another.
            ("dmabuf", &[peermem], (vec![dmabuf], None)),
            ("peermem", &ALL, (vec![peermem], Some(peermem))),
        ] {
            assert_eq!(tried(asked, granted), expected, "{asked}");
        }
    }

    #[test]
    fn a_refusal_names_each_way_with_its_reason_and_its_needs() {
        let refused = [
            (
                RegistrationWay::Dmabuf,
                "ibv_reg_dmabuf_mr: Operation not supported (os error 95)",
            ),
            (
                RegistrationWay::Peermem,
                "ibv_reg_mr: Bad address (os error 14)",
            ),
        ];
        let refused = refused.map(|(way, why)| NotGranted {
            way,
            why: why.to_owned(),
        });
        let rules = Some(&NVIDIA.cards);
        let text = not_granted(("memory cuda".into(), rules), &refused, "stage it").to_string();
        for part in [
            "memory cuda cannot be used here: it is not registered with the NIC: dmabuf: ibv_reg_dmabuf_mr: Operation not \
             supported (os error 95); peermem: ibv_reg_mr: Bad address (os error 14). Check the requirements",
            "open kernel modules",
            "modprobe nvidia-peermem",
            "If none can be met, stage it",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let text =
            not_granted(("memory cuda".into(), rules), &refused[..1], "stage it").to_string();
        assert!(!text.contains("modprobe"), "{text}");
        // If memory is known only by its dmabuf, the user can check only the NIC's requirements.
        let text = not_granted(("memory far".into(), None), &refused, "stage it").to_string();
        let said = ": dmabuf needs a NIC whose driver and library support it (mlx5";
        assert!(text.contains(said) && !text.contains("NVIDIA"), "{text}");
        let text = not_granted(("memory far".into(), None), &refused[1..], "Stage it").to_string();
        assert!(text.ends_with("(os error 14). Stage it"), "{text}");
    }
}
