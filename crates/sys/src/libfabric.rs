//! libfabric
