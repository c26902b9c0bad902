//! The processes of a run and the control channel between them.
