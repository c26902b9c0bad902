//! Ways to register memory of a GPU: the first that is granted, and the refusal where none is.

use tonnage_units::Error;

use super::AUTO;
use crate::memory::vendor::CardRules;

/// A way to register memory of a GPU with a network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CardWay {
    /// By a file that the GPU's driver exports.
    Dmabuf,
    /// By its address, which a module of the kernel translates for the card.
    Peermem,
    /// By its address, which libfabric's provider knows to be a device's (FI_HMEM).
    Hmem,
}

impl CardWay {
    /// The option's value.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dmabuf => "dmabuf",
            Self::Peermem => "peermem",
            Self::Hmem => "hmem",
        }
    }

    /// Needs of the way, which are the next thing to look at where it was not granted; `None` where there are none that
    /// could be met. `rules` are those of the GPU's maker, where it is known.
    fn needs(self, rules: Option<&CardRules>) -> Option<String> {
        let built_with = rules.map_or_else(String::new, |rules| {
            format!(", built with {}", rules.built_with)
        });
        match (self, rules) {
            (Self::Dmabuf, _) => {
                let exported =
                    rules.map_or_else(String::new, |rules| format!("{}, and ", rules.dmabuf));
                Some(format!(
                    "dmabuf needs {exported}a card whose driver and library take it (mlx5: Linux 5.12 with \
                     CONFIG_INFINIBAND_ON_DEMAND_PAGING; efa, irdma and bnxt_re: 5.16 or newer, and no paging; rdma-core 34; \
                     libfabric 1.20{built_with})"
                ))
            }
            (Self::Peermem, Some(rules)) => Some(format!("peermem needs {}", rules.peermem)),
            (Self::Hmem, Some(rules)) => Some(format!(
                "hmem needs a libfabric that was built with {}, and a provider with FI_HMEM for it",
                rules.built_with
            )),
            // Memory of another process's making has no address here.
            (Self::Peermem | Self::Hmem, None) => None,
        }
    }
}

/// A way that was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotGranted {
    /// The way.
    pub(crate) way: CardWay,
    /// Reason, with the call that refused.
    pub(crate) why: String,
}

impl std::fmt::Display for NotGranted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.way.name(), self.why)
    }
}

/// Tries the ways that an option's value asks for, in their order, up to the first that is granted. Returns what came
/// of it, and those that were tried before.
///
/// # Errors
/// All that were tried, where none is granted.
pub(crate) fn first_granted<T>(
    asked: &str,
    ways: &[CardWay],
    mut attempt: impl FnMut(CardWay) -> Result<T, String>,
) -> Result<(CardWay, T, Vec<NotGranted>), Vec<NotGranted>> {
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

/// The refusal of `what`, memory of a GPU whose maker has these rules. `staging` says how to move the bytes through the
/// host.
pub(crate) fn not_granted(
    (what, rules): (String, Option<&CardRules>),
    refused: &[NotGranted],
    staging: &str,
) -> Error {
    let words: Vec<_> = refused.iter().map(NotGranted::to_string).collect();
    let needs = refused.iter().filter_map(|one| one.way.needs(rules));
    let needs: Vec<_> = needs.collect();
    Error::Unavailable {
        what,
        why: format!("it is not registered with the card: {}", words.join("; ")),
        how: match needs.as_slice() {
            // Without a way that could be granted, the staging is all that is left.
            [] => staging.to_owned(),
            _ => format!(
                "See what each way needs: {}. Without any of them, {staging}",
                needs.join("; ")
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::nvidia::NVIDIA;

    const ALL: [CardWay; 2] = [CardWay::Dmabuf, CardWay::Peermem];

    fn tried(asked: &str, granted: &[CardWay]) -> (Vec<CardWay>, Option<CardWay>) {
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
    fn the_first_that_is_granted_is_taken_and_no_other_is_tried() {
        let [dmabuf, peermem] = ALL;
        for (asked, granted, expected) in [
            ("auto", &ALL[..], (vec![dmabuf], Some(dmabuf))),
            ("auto", &[peermem], (vec![dmabuf, peermem], Some(peermem))),
            ("auto", &[], (vec![dmabuf, peermem], None)),
            // What was asked for is never replaced.
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
                CardWay::Dmabuf,
                "ibv_reg_dmabuf_mr: Operation not supported (os error 95)",
            ),
            (CardWay::Peermem, "ibv_reg_mr: Bad address (os error 14)"),
        ];
        let refused = refused.map(|(way, why)| NotGranted {
            way,
            why: why.to_owned(),
        });
        let rules = Some(&NVIDIA.cards);
        let text = not_granted(("memory cuda".into(), rules), &refused, "stage it").to_string();
        for part in [
            "memory cuda cannot be used here: it is not registered with the card: dmabuf: ibv_reg_dmabuf_mr: Operation not \
             supported (os error 95); peermem: ibv_reg_mr: Bad address (os error 14). See",
            "open kernel modules",
            "modprobe nvidia-peermem",
            "Without any of them, stage it",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let text =
            not_granted(("memory cuda".into(), rules), &refused[..1], "stage it").to_string();
        assert!(!text.contains("modprobe"), "{text}");
        // Of memory that is known by its file alone, the card is all that there is to look at.
        let text = not_granted(("memory far".into(), None), &refused, "stage it").to_string();
        let said = ": dmabuf needs a card whose driver and library take it (mlx5";
        assert!(text.contains(said) && !text.contains("NVIDIA"), "{text}");
        let text = not_granted(("memory far".into(), None), &refused[1..], "Stage it").to_string();
        assert!(text.ends_with("(os error 14). Stage it"), "{text}");
    }
}
