//! The type that follows from the list of kinds.

/// Makes of a list of kinds the state that they keep for as long as a run lasts.
macro_rules! kinds {
    ($($state:ident: $kind:ty, for $point:ident;)+) => {
        /// All kinds, for one run.
        #[derive(Default)]
        pub struct Kinds {
            $($state: $kind,)+
        }

        $(impl $crate::kinds::kind::OfKind for <$kind as $crate::kinds::kind::Kind>::Point {
            fn of(planned: &::tonnage_plan::Planned) -> Option<&Self> {
                match &planned.point {
                    ::tonnage_plan::Point::$point(point) => Some(point),
                    _ => None,
                }
            }
        })+

        impl Kinds {
            /// Measures a stretch of points that begins with this one.
            pub fn stretch(
                &mut self,
                next: &::tonnage_plan::Point,
                by: &mut impl $crate::kinds::kind::Stretches,
            ) -> ::tonnage_units::Result<()> {
                match next {
                    $(::tonnage_plan::Point::$point(_) => by.stretch(&mut self.$state),)+
                }
            }
        }
    };
}

pub(super) use kinds;
