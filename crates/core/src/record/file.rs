//! Reading and writing files of records.
