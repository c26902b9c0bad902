//! libfabric's providers, and how to get the library where it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_sys::libfabric::{Libfabric, Offer};

use super::super::fabric::LIBFABRIC_VARIABLE;
use super::Absent;
use super::patience::within;

/// How long the providers may look for their devices; some ask name servers.
const PATIENCE: Duration = Duration::from_secs(10);

/// A libfabric that could be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricLibrary {
    /// The file that it was loaded from.
    pub path: String,
    /// Its release.
    pub version: String,
    /// The providers that can be used here.
    pub providers: Vec<FabricProvider>,
}

/// One provider of libfabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricProvider {
    /// Its name, layered ones with a semicolon: "tcp;ofi_rxm".
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Kinds of endpoints: "msg", "datagram", "rdm".
    pub endpoints: Vec<String>,
    /// Its domains (devices).
    pub domains: Vec<String>,
    /// The fabrics (networks) that these are in.
    pub fabrics: Vec<String>,
}

pub(super) fn find(
    library: Result<Libfabric, String>,
    absent: &mut Vec<Absent>,
) -> Option<FabricLibrary> {
    let library = match library {
        Ok(library) => library,
        Err(why) => {
            let how = format!(
                "Run `apt-get install libfabric1` (Debian, Ubuntu) or `dnf install libfabric`, or set {LIBFABRIC_VARIABLE} to the path of a libfabric.so.1."
            );
            absent.push(Absent::new("libfabric", why, how));
            return None;
        }
    };
    let (path, version) = (library.path().to_owned(), library.release().to_string());
    let offers = within(PATIENCE, move || library.offers());
    let seconds = PATIENCE.as_secs();
    let offers =
        offers.unwrap_or_else(|| Err(format!("fi_getinfo did not answer within {seconds} s")));
    let why_none = match &offers {
        Ok(offers) if offers.is_empty() => Some(format!("{path} offers none")),
        Ok(_) => None,
        Err(why) => Some(why.clone()),
    };
    if let Some(why) = why_none {
        let how =
            "Run `FI_LOG_LEVEL=info tonnage devices`, in which each provider says what it misses.";
        absent.push(Absent::new("libfabric providers", why, how));
    }
    Some(FabricLibrary {
        path,
        version,
        providers: group(&offers.unwrap_or_default()),
    })
}

/// One entry for each provider and version, in order of their names.
fn group(offers: &[Offer]) -> Vec<FabricProvider> {
    let mut providers = BTreeMap::<(&str, String), Vec<&Offer>>::new();
    for offer in offers {
        let version = offer.provider_version.to_string();
        providers
            .entry((&offer.provider, version))
            .or_default()
            .push(offer);
    }
    let provider = |((name, version), offers): ((&str, String), Vec<&Offer>)| FabricProvider {
        name: name.to_owned(),
        version,
        endpoints: distinct(offers.iter().map(|offer| &offer.endpoint)),
        domains: distinct(offers.iter().map(|offer| &offer.domain)),
        fabrics: distinct(offers.iter().map(|offer| &offer.fabric)),
    };
    providers.into_iter().map(provider).collect()
}

fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let names: BTreeSet<&String> = names.filter(|name| !name.is_empty()).collect();
    names.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_cannot_be_loaded_is_absent_with_the_reason() {
        let mut absent = Vec::new();
        let library = Libfabric::load(Some("/nonexistent/libfabric.so.1"));
        assert_eq!(find(library, &mut absent), None);
        assert!(
            absent[0].why.contains("/nonexistent/libfabric.so.1"),
            "{absent:?}"
        );
        assert!(
            absent[0].how.contains("apt-get install libfabric1"),
            "{absent:?}"
        );
    }

    #[test]
    fn an_installed_library_lists_each_provider_once() {
        let library = match Libfabric::load(None) {
            Ok(library) => library,
            Err(why) => return eprintln!("skip: no libfabric here: {why}"),
        };
        let mut absent = Vec::new();
        let found = find(Ok(library), &mut absent).unwrap();
        let names: Vec<&str> = found.providers.iter().map(|p| p.name.as_str()).collect();
        assert!(names.is_sorted() && !names.is_empty(), "{names:?}");
        assert!(
            found
                .providers
                .iter()
                .all(|provider| !provider.endpoints.is_empty())
        );
        assert!(absent.is_empty(), "{absent:?}");
    }
}
