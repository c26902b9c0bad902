//! Declarations of C headers, each written down once: structs (`structures!`) and numbers (`numbers!`), and in tests
//! the layout that a comparison with the header needs.

/// Declares structs as a C compiler lays them out. With `fn name;` in front, a test gets all of them by that function:
/// for each struct its size ("struct s"), and for each field offset and size ("s.field"). A word that Rust keeps for
/// itself has a line behind it.
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

/// Gives structs a value of zeros, which the compiler has to find valid: they are of numbers, raw pointers, optional
/// calls, and arrays of them.
macro_rules! zeroed {
    ($($name:ident)*) => {$(
        impl $name {
            pub const ZEROED: Self = {
                // SAFETY: as above; the evaluation of the constant fails for a type with another field.
                unsafe { std::mem::zeroed() }
            };
        }
    )*};
}

/// Declares numbers, by their types. `fn name;` is as for `structures!`: the values, of size 0.
macro_rules! numbers {
    (fn $values:ident; $($kind:ty: $($(#[$about:meta])* $name:ident = $value:expr),* $(,)?;)*) => {
        $($($(#[$about])* pub const $name: $kind = $value;)*)*

        #[cfg(test)]
        pub fn $values() -> Vec<(String, (u64, u64))> {
            vec![$($((stringify!($name).to_owned(), ($name as i64 as u64, 0)),)*)*]
        }
    };
}

/// Compares offsets of fields by the declarations here with those by the header, as a C compiler gave them.
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

/// Compares sizes of structs with those by the header.
#[cfg(test)]
macro_rules! assert_sizes {
    ($($kind:ident $size:literal),* $(,)?) => {
        $(assert_eq!(size_of::<$kind>(), $size, stringify!($kind));)*
    };
}

#[cfg(test)]
pub(crate) use {assert_offsets, assert_sizes};
pub(crate) use {numbers, structures, zeroed};
