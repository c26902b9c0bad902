//! The engine mpiio under real launchers; see [`plays`].

#[cfg(test)]
mod plays;
