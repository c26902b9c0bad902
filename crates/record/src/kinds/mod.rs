//! The list of all kinds of experiments.
//!
//! A kind is a folder with its body and figures, and a line in the list below. Nothing else in this crate lists all
//! kinds.

pub mod collective;
pub mod connect;
pub mod files;
pub mod stress;
pub mod transfer;
pub mod tune;

pub use collective::CollectiveBody;
pub use connect::ConnectBody;
pub use files::FileBody;
pub use stress::StressBody;
pub use transfer::TransferBody;
pub use tune::TuneBody;

use serde::{Deserialize, Serialize};

use crate::body::KindBody;

/// Passes the list of kinds to a macro. A line has the variant of [`Body`], the kind's name in records, its module, and
/// its body type. Last come two accessors of [`Record`](crate::Record): one returns the body, the other the typed
/// record.
macro_rules! with_kinds {
    ($then:ident) => {
        $then! {
            /// Bytes between the memories of ranks.
            Transfer = "transfer": transfer::TransferBody { transfer, as_transfer };
            /// Bytes between memory and files.
            File = "file": files::FileBody { file, as_file };
            /// Connection set-up.
            Connect = "connect": connect::ConnectBody { connect, as_connect };
            /// Random transfers from a seed.
            Stress = "stress": stress::StressBody { stress, as_stress };
            /// A search for the best options.
            Tune = "tune": tune::TuneBody { tune, as_tune };
            /// Collective operations.
            Collective = "collective": collective::CollectiveBody { collective, as_collective };
        }
    };
}
pub(crate) use with_kinds;

/// The body type of one kind.
pub trait Kind: KindBody + Sized {
    /// Name of the kind, as in `kind` of a record.
    const NAME: &'static str;

    /// Returns the body, if it is of this kind.
    fn of(body: &Body) -> Option<&Self>;
}

macro_rules! bodies {
    ($($(#[doc = $about:literal])+ $Kind:ident = $name:literal: $module:ident::$Body:ident { $body:ident, $record:ident };)+) => {
        /// Point and results of one kind of experiment.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Body {
            $($(#[doc = $about])+ $Kind(Box<$module::$Body>),)+
        }

        /// Names of the schema definitions to merge into the envelope.
        #[cfg(feature = "schema")]
        pub(crate) const BODIES: &[&str] = &[$(stringify!($Body)),+];

        impl Body {
            /// Returns the name of the kind, as in `kind` of a record.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$Kind(_) => $name),+
                }
            }

            /// Returns the point as JSON, as it appears in the record.
            pub fn point_json(&self) -> serde_json::Value {
                match self {
                    // Serializing cannot fail: every point was already serialized to JSON before.
                    $(Self::$Kind(body) => serde_json::to_value(&body.point).unwrap_or_default()),+
                }
            }

            /// Returns the requested point. Callers compare points by their debug output.
            pub fn point(&self) -> &dyn std::fmt::Debug {
                match self {
                    $(Self::$Kind(body) => &body.point),+
                }
            }

            /// Returns whether this is the body of exactly this point.
            pub fn is_of(&self, point: &tonnage_plan::Point) -> bool {
                match (self, point) {
                    $((Self::$Kind(body), tonnage_plan::Point::$Kind(point)) => body.point == *point,)+
                    _ => false,
                }
            }

            /// Returns the body through its common interface.
            pub fn any(&self) -> &dyn KindBody {
                match self {
                    $(Self::$Kind(body) => &**body),+
                }
            }
        }

        $(
            impl Kind for $module::$Body {
                const NAME: &'static str = $name;

                fn of(body: &Body) -> Option<&Self> {
                    match body {
                        Body::$Kind(body) => Some(body),
                        _ => None,
                    }
                }
            }

            impl From<$module::$Body> for Body {
                fn from(body: $module::$Body) -> Self {
                    Self::$Kind(Box::new(body))
                }
            }
        )+
    };
}

with_kinds!(bodies);
