//! The one list of kinds of experiments.
//!
//! A kind is a folder (its body, and its figures) and a line here. Nothing else of this crate names all kinds.

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

/// Hands the list to a macro. A line has the variant of [`Body`], the kind's name in records, its module and its body,
/// and the names by which a [`Record`](crate::Record) gives the body and itself as one of that kind.
macro_rules! with_kinds {
    ($then:ident) => {
        $then! {
            /// Bytes between the memories of ranks.
            Transfer = "transfer": transfer::TransferBody { transfer, as_transfer };
            /// Bytes between memory and files.
            File = "file": files::FileBody { file, as_file };
            /// Setting up connections.
            Connect = "connect": connect::ConnectBody { connect, as_connect };
            /// Drawing transfers.
            Stress = "stress": stress::StressBody { stress, as_stress };
            /// Searching options.
            Tune = "tune": tune::TuneBody { tune, as_tune };
            /// Calling together.
            Collective = "collective": collective::CollectiveBody { collective, as_collective };
        }
    };
}
pub(crate) use with_kinds;

/// One kind of body.
pub trait Kind: KindBody + Sized {
    /// Name of the kind, as `kind` has it in records.
    const NAME: &'static str;

    /// The body, if it is of this kind.
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

        /// Definitions of the schema whose properties stand beside those of the envelope.
        #[cfg(feature = "schema")]
        pub(crate) const BODIES: &[&str] = &[$(stringify!($Body)),+];

        impl Body {
            /// Name of the kind, as `kind` has it in records.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$Kind(_) => $name),+
                }
            }

            /// The point as the record has it.
            pub fn point_json(&self) -> serde_json::Value {
                match self {
                    // Every point has been written as JSON before it was here.
                    $(Self::$Kind(body) => serde_json::to_value(&body.point).unwrap_or_default()),+
                }
            }

            /// The point that was asked for, as nothing but itself.
            pub fn point(&self) -> &dyn std::fmt::Debug {
                match self {
                    $(Self::$Kind(body) => &body.point),+
                }
            }

            /// Returns whether it was asked for by this very point.
            pub fn is_of(&self, point: &tonnage_plan::Point) -> bool {
                match (self, point) {
                    $((Self::$Kind(body), tonnage_plan::Point::$Kind(point)) => body.point == *point,)+
                    _ => false,
                }
            }

            /// The body as one of any kind.
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
