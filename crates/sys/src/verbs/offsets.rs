//! Comparison of declarations with the headers that they are of, for the tests of each of them.

/// Lists fields with their offsets by the declarations here, and by the header as a C compiler gave them.
macro_rules! offsets {
    ($($kind:ident: $($field:ident $offset:expr),* $(,)?;)*) => {
        [$($((
            concat!(stringify!($kind), ".", stringify!($field)),
            std::mem::offset_of!($kind, $field),
            $offset,
        ),)*)*]
    };
}

pub(super) use offsets;
