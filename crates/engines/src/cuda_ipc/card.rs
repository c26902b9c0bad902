//! A worker's address: where its rings are, and what it has registered.

use serde::{Deserialize, Serialize};
use tonnage_engine::{Card, Descriptor, Neighbor, RegionId};
use tonnage_units::{Error, Result};

use crate::rings::Contacts;

#[derive(Serialize, Deserialize)]
struct IpcCard {
    rings: Card,
    regions: Vec<Descriptor>,
}

/// The card of rings and regions.
///
/// # Errors
/// More regions than a card has room for.
pub(super) fn join(rings: Card, described: &[(RegionId, Descriptor)]) -> Result<Card> {
    let regions = described.iter().map(|(_, region)| region.clone()).collect();
    // Lists of bytes: writing them as JSON cannot fail.
    let card = serde_json::to_vec(&IpcCard { rings, regions }).unwrap_or_default();
    match card.len() <= Card::BYTES_MAX {
        true => Ok(Card(card)),
        false => Err(Error::Failed(format!(
            "{} memories are more than a peer can be told of: register those that it needs first",
            described.len()
        ))),
    }
}

/// The parts of a peer's card: the peer with the card of its rings, and its regions.
pub(super) fn split(
    contacts: &Contacts,
    neighbor: &Neighbor,
) -> Result<(Neighbor, Vec<Descriptor>)> {
    let card: IpcCard = serde_json::from_slice(&neighbor.card.0).map_err(|error| {
        let why = format!("the peer's address cannot be read ({error})");
        contacts.unusable(neighbor.peer, why)
    })?;
    let rings = Neighbor {
        card: card.rings,
        ..neighbor.clone()
    };
    Ok((rings, card.regions))
}
