//! Hardware that a host has lost beside a baseline, so that it is of none of its kinds.

use super::host_kind::{CPU, GPU, KindFacts, OTHER_HOST};
use super::{Baseline, HostKind};

/// Hardware that a host has lost beside a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct LostHardware<'a> {
    /// Kind that the host was of, or would be.
    pub kind: &'a HostKind,
    /// Key of the fact that differs.
    pub fact: &'static str,
    /// Both values in words.
    pub why: String,
}

/// Hardware that a host of no kind of a baseline has lost: it is of the baseline by its name and has other processors
/// or fewer GPUs, or it differs from a kind in some of its GPUs alone.
pub fn lost_hardware<'a>(
    baseline: &'a Baseline,
    own: &KindFacts,
    host: &str,
) -> Option<LostHardware<'a>> {
    baseline.kinds.iter().find_map(|kind| {
        let is_named = kind
            .hosts
            .iter()
            .any(|names| names.split(',').any(|name| name == host));
        let fact_of = |facts: &KindFacts, key: &str| facts.get(key).cloned().unwrap_or_default();
        let [own_cpu, own_gpu] = [CPU, GPU].map(|key| fact_of(own, key));
        let [cpu, gpu] = [CPU, GPU].map(|key| fact_of(&kind.facts, key));
        // Hosts of several kinds that measured together tell nothing of one.
        if [&cpu, &gpu].iter().any(|fact| fact.contains(OTHER_HOST)) {
            return None;
        }
        let (left, all) = (count(&own_gpu), count(&gpu));
        let without_gpu = |facts: &KindFacts| {
            let mut facts = facts.clone();
            facts.remove(GPU);
            facts
        };
        let is_alike = without_gpu(own) == without_gpu(&kind.facts);
        // A host without any GPU that nobody has measured may be meant to have none.
        let has_lost_gpus = left < all && (is_named || (is_alike && left > 0));
        let (fact, own, fleet) = match () {
            () if has_lost_gpus => (GPU, own_gpu, gpu),
            () if is_named && own_cpu != cpu => (CPU, own_cpu, cpu),
            () => return None,
        };
        let own = if own.is_empty() { "none" } else { &own };
        let why = format!("{fact} {own}, fleet {fleet}");
        Some(LostHardware { kind, fact, why })
    })
}

/// Number of GPUs of a fact.
fn count(gpus: &str) -> usize {
    let models = gpus.split(", ").filter_map(|model| model.split_once(" x "));
    models
        .filter_map(|(count, _)| count.parse::<usize>().ok())
        .sum()
}
