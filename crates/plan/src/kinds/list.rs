//! The types that follow from the list of kinds.

/// Declares the enums of all kinds' experiments and points, and a row for each kind, from a list of kinds.
macro_rules! kinds {
    ($($(#[doc = $about:literal])+ $kind:ident: $experiment:ty, $point:ty;)+) => {
        /// One experiment: a table of a plan file, or one command line.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Experiment {
            $($(#[doc = $about])+ $kind(Box<$experiment>),)+
        }

        /// A point of any kind.
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum Point {
            $($(#[doc = $about])+ $kind($point),)+
        }

        /// Every kind, in the order in which help and messages list them.
        pub static KINDS: [$crate::kind::KindEntry<Experiment>; [$(stringify!($kind)),+].len()] =
            [$($crate::kind::KindEntry::new::<$experiment>()),+];

        $(
            impl From<$experiment> for Experiment {
                fn from(experiment: $experiment) -> Self {
                    Self::$kind(Box::new(experiment))
                }
            }

            impl From<$point> for Point {
                fn from(point: $point) -> Self {
                    Self::$kind(point)
                }
            }
        )+

        impl Experiment {
            /// The key of the experiment's tables in a plan file, which is also the name of its command.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => <$experiment as $crate::options::Tables>::KEY,)+
                }
            }

            /// The experiment without its kind, to query.
            pub fn any(&self) -> &dyn $crate::kind::AnyExperiment {
                match self {
                    $(Self::$kind(experiment) => &**experiment,)+
                }
            }

            /// The experiment without its kind, to modify.
            pub fn any_mut(&mut self) -> &mut dyn $crate::kind::AnyExperiment {
                match self {
                    $(Self::$kind(experiment) => &mut **experiment,)+
                }
            }

            /// Writes the experiment's given options as the table of a plan.
            pub(crate) fn write(&self) -> Result<::toml::Table, ::toml::ser::Error> {
                match self {
                    $(Self::$kind(experiment) => $crate::options::Tables::write(&**experiment),)+
                }
            }

            /// Returns the experiment's cells, at most `points_max`, and facts for readers of the results.
            pub(crate) fn points(
                &self,
                ranks: u32,
                lists: &::tonnage_engine::Lists,
                points_max: usize,
            ) -> ::tonnage_units::Result<(Vec<$crate::cells::Cell<Point>>, $crate::point::PointNotes)> {
                match self {
                    $(Self::$kind(experiment) => {
                        let cells = $crate::kind::Kind::cells(&**experiment, ranks, lists, points_max)?;
                        let notes = $crate::kind::Kind::notes(&**experiment)?;
                        let any = |cell: $crate::cells::Cell<$point>| $crate::cells::Cell {
                            point: Point::$kind(cell.point),
                            impossible: cell.impossible,
                        };
                        Ok((cells.into_iter().map(any).collect(), notes))
                    })+
                }
            }
        }

        impl Point {
            /// The point without its kind, to query.
            pub fn any(&self) -> &dyn $crate::kind::AnyPoint {
                match self {
                    $(Self::$kind(point) => point,)+
                }
            }
        }
    };
}

pub(super) use kinds;
