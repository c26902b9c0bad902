//! The kinds of experiments. Each has a folder, and a line in the list below. Nothing else in this crate lists all
//! kinds.
//!
//! | folder | what lives there |
//! | --- | --- |
//! | [`transfer`] | transfers between the memories of ranks |
//! | [`files`] | reads and writes of files |
//! | [`collective`] | collectives: operations that all ranks call together |
//! | [`connect`] | connections that are set up and closed |
//! | [`stress`] | random transfers from a seed, with engines in turn |
//! | [`tune`] | a search for the options that reach a goal best |
//!
//! [`kind`] has the traits of a kind. `repeat` builds the command line that measures a point again.

pub mod collective;
pub mod connect;
pub mod files;
pub mod kind;
mod repeat;
pub mod stress;
pub mod transfer;
pub mod tune;

/// Generates the type that holds the state of all kinds over a whole run.
macro_rules! kinds {
    ($($state:ident: $kind:ty, for $point:ident;)+) => {
        /// The state of all kinds, for one run.
        #[derive(Default)]
        pub struct Kinds {
            $($state: $kind,)+
        }

        $(impl $crate::kinds::kind::PointOfKind for <$kind as $crate::kinds::kind::Kind>::Point {
            fn from_planned(planned: &::tonnage_plan::Planned) -> Option<&Self> {
                match &planned.point {
                    ::tonnage_plan::Point::$point(point) => Some(point),
                    _ => None,
                }
            }
        })+

        impl Kinds {
            /// Measures the stretch of points that begins with `next`.
            pub fn run_points(
                &mut self,
                next: &::tonnage_plan::Point,
                by: &mut impl $crate::kinds::kind::KindRunner,
            ) -> ::tonnage_units::Result<()> {
                match next {
                    $(::tonnage_plan::Point::$point(_) => by.run_points(&mut self.$state),)+
                }
            }
        }
    };
}

kinds! {
    transfers: transfer::Transfers, for Transfer;
    files: files::Files, for File;
    connects: connect::Connects, for Connect;
    stresses: stress::Stresses, for Stress;
    tunes: tune::Tunes, for Tune;
    collectives: collective::CollectiveCalls, for Collective;
}
