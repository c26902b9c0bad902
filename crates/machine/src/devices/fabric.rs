//! The usable libfabrics, their providers and domains, and the limits of each, as the libraries report them.
//!
//! The reasons why well-known providers are missing, and how to get a library that has them, are in `providers`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_sys::libfabric::{Libfabric, ListedProvider, Offer};

use super::super::fabric::LIBFABRIC_VARIABLE;
use super::Absent;
use crate::devices::timeout::with_timeout;

/// Longest time that the providers may look for their devices; some providers query name servers.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A usable libfabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricLibrary {
    /// The file that it was loaded from, or a description of the embedded library.
    pub path: String,
    /// Release of the library.
    pub version: String,
    /// True for the library embedded in this program.
    pub embedded: bool,
    /// The providers that can be used here.
    pub providers: Vec<FabricProvider>,
    /// Names of all providers in the library, including those that found no device. Providers that withdrew when the
    /// library was loaded are not listed.
    pub parts: Vec<String>,
}

/// One provider of libfabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricProvider {
    /// The provider's name; layered providers are joined by a semicolon, such as "tcp;ofi_rxm".
    pub name: String,
    /// The provider's own version.
    pub version: String,
    /// The provider's offers. Domains with the same limits share one entry.
    pub offers: Vec<FabricOffer>,
}

/// A provider's offer for one or several domains, as reported for a query without requirements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FabricOffer {
    /// Kind of endpoint: "msg", "datagram", "rdm".
    pub endpoint: String,
    /// Kinds of transfers: "msg" (send and receive), "rma" (write and read).
    pub transfers: Vec<String>,
    /// Maximum number of queued transmit operations.
    pub tx_depth: u64,
    /// Maximum number of posted receives.
    pub rx_depth: u64,
    /// Longest message for which the buffer may be reused as soon as the call returns.
    pub inject_bytes_max: u64,
    /// Size of the immediate data that an operation can carry.
    pub immediate_bytes: u64,
    /// Largest message; the maximum of the integer type if the provider has no limit.
    pub message_bytes_max: u64,
    /// Memory registration modes that the provider requires, the bits of mr_mode: "virt-addr", "prov-key", …
    pub mr_mode: Vec<String>,
    /// Orderings that the provider can guarantee, such as "WAW", a write after a write. W is write, R read, S send.
    pub ordering: Vec<String>,
    /// Progress model of control operations, such as connecting: "auto" or "manual".
    pub control_progress: String,
    /// Progress model of data transfers: "auto" or "manual".
    pub data_progress: String,
    /// Threading model: "safe", "domain", …
    pub threading: String,
    /// Link speed; absent if the provider does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bits_per_s: Option<u64>,
    /// The domains (devices), each with its fabrics (networks).
    pub domains: BTreeMap<String, BTreeSet<String>>,
}

impl FabricOffer {
    /// Copies an offer's limits; the domains are empty.
    fn new(limits: &Offer) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self {
            endpoint: limits.endpoint.clone(),
            transfers: owned(&limits.transfers),
            tx_depth: limits.tx_depth as u64,
            rx_depth: limits.rx_depth as u64,
            inject_bytes_max: limits.inject_bytes_max as u64,
            immediate_bytes: limits.immediate_bytes as u64,
            message_bytes_max: limits.message_bytes_max as u64,
            mr_mode: owned(&limits.mr_mode),
            ordering: owned(&limits.ordering),
            control_progress: limits.control_progress.clone(),
            data_progress: limits.data_progress.clone(),
            threading: limits.threading.clone(),
            link_bits_per_s: limits.link_bits_per_s,
            domains: BTreeMap::new(),
        }
    }
}

/// Returns the library in use first, then the embedded one.
pub(super) fn find(
    library: Result<Libfabric, String>,
    absent: &mut Vec<Absent>,
) -> Vec<FabricLibrary> {
    let mut found = Vec::new();
    let why_no_other = match library {
        Ok(library) if library.is_embedded() => Libfabric::load(None).err().map(String::from),
        Ok(library) => {
            found.push(list(library, absent));
            None
        }
        Err(why) => Some(why),
    };
    if let Some(why) = why_no_other {
        let how = format!(
            "Run `apt-get install libfabric1` (Debian, Ubuntu) or `dnf install libfabric`, or set {LIBFABRIC_VARIABLE} to the path of a libfabric.so.1."
        );
        absent.push(Absent::new("installed libfabric", why, how));
    }
    found.push(list(Libfabric::embedded(), absent));
    found
}

fn list(library: Libfabric, absent: &mut Vec<Absent>) -> FabricLibrary {
    let (path, version) = (library.path().to_owned(), library.release().to_string());
    let embedded = library.is_embedded();
    let ask = move || Ok((library.offers()?, library.parts()?));
    let seconds = TIMEOUT.as_secs();
    let answer: Result<(Vec<Offer>, Vec<ListedProvider>), String> = with_timeout(TIMEOUT, ask)
        .unwrap_or_else(|| Err(format!("fi_getinfo did not answer within {seconds} s")));
    let why_none = match &answer {
        Ok((offers, _)) if offers.is_empty() => Some(format!("{path} offers none")),
        Ok(_) => None,
        Err(why) => Some(why.clone()),
    };
    if let Some(why) = why_none {
        let how =
            "Run `FI_LOG_LEVEL=info tonnage devices`; each provider then prints what it lacks.";
        absent.push(Absent::new("libfabric providers", why, how));
    }
    let (offers, parts) = answer.unwrap_or_default();
    FabricLibrary {
        path,
        version,
        embedded,
        providers: group(&offers),
        parts: parts.into_iter().map(|part| part.provider).collect(),
    }
}

/// Groups offers by provider and version, sorted by name.
fn group(offers: &[Offer]) -> Vec<FabricProvider> {
    let mut providers = BTreeMap::<(&str, String), BTreeMap<FabricOffer, Domains>>::new();
    for offer in offers {
        let version = offer.provider_version.to_string();
        let alike = providers.entry((&offer.provider, version)).or_default();
        let limits = FabricOffer::new(offer);
        let domains = alike.entry(limits).or_default();
        let fabrics = domains.entry(offer.domain.clone()).or_default();
        fabrics.insert(offer.fabric.clone());
    }
    let provider = |((name, version), alike): ((&str, String), BTreeMap<_, _>)| FabricProvider {
        name: name.to_owned(),
        version,
        offers: (alike.into_iter())
            .map(|(offer, domains)| FabricOffer { domains, ..offer })
            .collect(),
    };
    providers.into_iter().map(provider).collect()
}

type Domains = BTreeMap<String, BTreeSet<String>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_cannot_be_loaded_is_absent_with_the_reason_and_the_embedded_one_is_there() {
        let mut absent = Vec::new();
        let library = Libfabric::load(Some("/nonexistent/libfabric.so.1"));
        let found = find(library.map_err(String::from), &mut absent);
        assert!(found.len() == 1 && found[0].embedded, "{found:?}");
        let installed = &absent[0];
        assert_eq!(installed.what, "installed libfabric");
        assert!(installed.why.contains("/nonexistent/libfabric.so.1"));
        assert!(installed.how.contains("apt-get install libfabric1"));
    }

    #[test]
    fn the_embedded_library_lists_its_providers_with_their_limits() {
        let mut absent = Vec::new();
        let found = find(Ok(Libfabric::embedded()), &mut absent);
        let embedded = found.last().unwrap();
        let names: Vec<&str> = embedded.providers.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["shm", "tcp", "tcp;ofi_rxm"]);
        let tcp = &embedded.providers[1];
        let rdm = tcp.offers.iter().find(|offer| offer.endpoint == "rdm");
        let rdm = rdm.unwrap();
        assert!(rdm.domains.contains_key("lo"), "{rdm:?}");
        assert!(rdm.ordering.iter().any(|order| order == "WAW"), "{rdm:?}");
        assert!(rdm.tx_depth > 0 && rdm.inject_bytes_max > 0, "{rdm:?}");
    }

    #[test]
    fn an_installed_library_lists_each_provider_once_and_comes_first() {
        let library = match Libfabric::load(None) {
            Ok(library) => library,
            Err(why) => return eprintln!("skip: no libfabric here: {why}"),
        };
        let mut absent = Vec::new();
        let found = find(Ok(library), &mut absent);
        assert_eq!(found.len(), 2);
        assert!(!found[0].embedded && found[1].embedded);
        let names: Vec<&str> = found[0].providers.iter().map(|p| p.name.as_str()).collect();
        assert!(names.is_sorted() && !names.is_empty(), "{names:?}");
        for provider in &found[0].providers {
            assert!(!provider.offers.is_empty(), "{provider:?}");
            let has_domains = |offer: &FabricOffer| !offer.domains.is_empty();
            assert!(provider.offers.iter().all(has_domains));
        }
        assert!(absent.is_empty(), "{absent:?}");
    }

    #[test]
    fn domains_with_the_same_limits_are_one_entry() {
        let library = Libfabric::embedded();
        let mut offers = library.offers().unwrap();
        offers.retain(|offer| offer.provider == "shm");
        offers.truncate(1);
        let mut other = offers[0].clone();
        other.domain = "another".to_owned();
        let mut different = other.clone();
        different.tx_depth += 1;
        offers.extend([other, different]);
        let found = group(&offers);
        assert_eq!(found.len(), 1);
        let domains = |offer: &FabricOffer| offer.domains.keys().cloned().collect::<Vec<_>>();
        let domains: Vec<_> = found[0].offers.iter().map(domains).collect();
        assert_eq!(domains, [vec!["another", "shm"], vec!["another"]]);
    }
}
