//! Detects hosts that lost hardware and therefore match no kind in the baseline.

use super::host_kind::{CPU, GPU, KindFacts, OTHER_HOST};
use super::{Baseline, HostKind};

/// Hardware that is missing compared with a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct LostHardware<'a> {
    /// Kind that the host belonged to, or would belong to with the missing hardware.
    pub kind: &'a HostKind,
    /// Key of the fact that differs.
    pub fact: &'static str,
    /// Description with the host's and the baseline's value.
    pub why: String,
}

/// Finds missing hardware on a host that matches no kind of the baseline.
///
/// A host that the baseline lists has lost hardware if its CPU differs or it has fewer GPUs. An unlisted host has lost
/// hardware if it has some GPUs, but fewer than a kind that it matches otherwise.
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
        // Hosts of several kinds that measured together have combined facts, so those of a single host are unknown.
        if [&cpu, &gpu].iter().any(|fact| fact.contains(OTHER_HOST)) {
            return None;
        }
        let (left, all) = (count_gpus(&own_gpu), count_gpus(&gpu));
        let without_gpu = |facts: &KindFacts| {
            let mut facts = facts.clone();
            facts.remove(GPU);
            facts
        };
        let is_alike = without_gpu(own) == without_gpu(&kind.facts);
        // An unlisted host without any GPU may have been built that way.
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

/// Returns the number of GPUs in the text of the fact.
fn count_gpus(gpus: &str) -> usize {
    let models = gpus.split(", ").filter_map(|model| model.split_once(" x "));
    models
        .filter_map(|(count, _)| count.parse::<usize>().ok())
        .sum()
}
