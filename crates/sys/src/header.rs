//! Macros to declare structs (`structures!`) and numbers (`numbers!`) of C headers once. In tests, they also provide
//! the layout for a comparison with the header.

/// Declares structs with C layout. With `fn name;` in front, the macro also defines a function for tests that returns
/// all layouts: for each struct its size ("struct s"), and for each field offset and size ("s.field"). If a field's
/// name is a Rust keyword, an underscore is appended.
macro_rules! structures {
    (fn $layouts:ident; $($structures:tt)*) => {
        $crate::header::structures! { $($structures)* }
        $crate::header::structures! { @layouts $layouts $($structures)* }
    };
    (@layouts $layouts:ident $(
        $(#[$about:meta])*
        $name:ident { $($(#[$note:meta])* $field:ident: $kind:ty),* $(,)? }
    )*) => {
        #[cfg(test)]
        pub fn $layouts() -> Vec<(String, (u64, u64))> {
            let mut all = Vec::new();
            $(
                let whole = concat!("struct ", stringify!($name)).to_owned();
                all.push((whole, (0, size_of::<$name>() as u64)));
                $(
                    let field = stringify!($field).trim_end_matches('_');
                    let layout = (std::mem::offset_of!($name, $field) as u64, size_of::<$kind>() as u64);
                    all.push((format!("{}.{field}", stringify!($name)), layout));
                )*
            )*
            all
        }
    };
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$note:meta])* $field:ident: $kind:ty),* $(,)? }
    )*) => {$(
        $(#[$about])*
        #[repr(C)]
        pub struct $name {
            $($(#[$note])* pub $field: $kind,)*
        }
    )*};
}

/// Gives structs a constant of all zeros. The compiler rejects types for which zeros are not valid. Valid fields are
/// numbers, raw pointers, optional functions, and arrays of them.
macro_rules! zeroed {
    ($($name:ident)*) => {$(
        impl $name {
            pub const ZEROED: Self = {
                // SAFETY: zeros are valid for the fields listed above; for any other field, evaluating the constant
                // fails.
                unsafe { std::mem::zeroed() }
            };
        }
    )*};
}

/// Declares numbers, grouped by type. `fn name;` works as for `structures!` and returns the values, with size 0.
macro_rules! numbers {
    (fn $values:ident; $($kind:ty: $($(#[$about:meta])* $name:ident = $value:expr),* $(,)?;)*) => {
        $($($(#[$about])* pub const $name: $kind = $value;)*)*

        #[cfg(test)]
        pub fn $values() -> Vec<(String, (u64, u64))> {
            vec![$($((stringify!($name).to_owned(), ($name as i64 as u64, 0)),)*)*]
        }
    };
}

/// Compares field offsets of these declarations with those of the header, as printed by a C compiler.
#[cfg(test)]
macro_rules! assert_offsets {
    ($($kind:ident: $($field:ident $offset:expr),* $(,)?;)*) => {
        $($(assert_eq!(
            std::mem::offset_of!($kind, $field),
            $offset,
            concat!(stringify!($kind), ".", stringify!($field))
        );)*)*
    };
}

/// Compares struct sizes with those of the header.
#[cfg(test)]
macro_rules! assert_sizes {
    ($($kind:ident $size:literal),* $(,)?) => {
        $(assert_eq!(size_of::<$kind>(), $size, stringify!($kind));)*
    };
}

#[cfg(test)]
pub(crate) use {assert_offsets, assert_sizes};
pub(crate) use {numbers, structures, zeroed};
