//! The MPI functions that are used here, as the standard declares them, looked up once.
//!
//! Handles are passed as `usize`. A library with handles of type `int` reads the lower half of the register, and
//! ignores the upper half. Before a function writes a handle, the variable is set to zero, so that an `int` leaves the
//! upper half zero. This works only with little-endian byte order, as asserted below.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::library::functions;

/// Any handle of MPI.
pub(super) type Handle = usize;

const _: () = assert!(
    size_of::<usize>() == 8 && cfg!(target_endian = "little"),
    "handles of MPI are passed as 64-bit little-endian words"
);

/// Twice as large as the largest status of any dialect (32 bytes); only the library reads it.
pub(super) type Status = [u64; 8];

functions! {
    /// Functions that every MPI has since version 3.
    pub(super) Functions by &'static CStr:
    library_version = c"MPI_Get_library_version" => (*mut c_char, *mut c_int) -> c_int;
    init_thread = c"MPI_Init_thread" => (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
    initialized = c"MPI_Initialized" => (*mut c_int) -> c_int;
    finalize = c"MPI_Finalize" => () -> c_int;
    comm_rank = c"MPI_Comm_rank" => (Handle, *mut c_int) -> c_int;
    comm_size = c"MPI_Comm_size" => (Handle, *mut c_int) -> c_int;
    comm_set_errhandler = c"MPI_Comm_set_errhandler" => (Handle, Handle) -> c_int;
    barrier = c"MPI_Barrier" => (Handle) -> c_int;
    error_string = c"MPI_Error_string" => (c_int, *mut c_char, *mut c_int) -> c_int;
    error_class = c"MPI_Error_class" => (c_int, *mut c_int) -> c_int;
    info_create = c"MPI_Info_create" => (*mut Handle) -> c_int;
    info_set = c"MPI_Info_set" => (Handle, *const c_char, *const c_char) -> c_int;
    info_free = c"MPI_Info_free" => (*mut Handle) -> c_int;
    info_get_nkeys = c"MPI_Info_get_nkeys" => (Handle, *mut c_int) -> c_int;
    info_get_nthkey = c"MPI_Info_get_nthkey" => (Handle, c_int, *mut c_char) -> c_int;
    info_get = c"MPI_Info_get" => (Handle, *const c_char, c_int, *mut c_char, *mut c_int) -> c_int;
    type_contiguous = c"MPI_Type_contiguous" => (c_int, Handle, *mut Handle) -> c_int;
    type_create_resized = c"MPI_Type_create_resized" => (Handle, isize, isize, *mut Handle) -> c_int;
    type_commit = c"MPI_Type_commit" => (*mut Handle) -> c_int;
    type_free = c"MPI_Type_free" => (*mut Handle) -> c_int;
    get_count = c"MPI_Get_count" => (*const c_void, Handle, *mut c_int) -> c_int;
    file_open = c"MPI_File_open" => (Handle, *const c_char, c_int, Handle, *mut Handle) -> c_int;
    file_set_errhandler = c"MPI_File_set_errhandler" => (Handle, Handle) -> c_int;
    file_close = c"MPI_File_close" => (*mut Handle) -> c_int;
    file_sync = c"MPI_File_sync" => (Handle) -> c_int;
    file_get_info = c"MPI_File_get_info" => (Handle, *mut Handle) -> c_int;
    file_get_size = c"MPI_File_get_size" => (Handle, *mut i64) -> c_int;
    file_preallocate = c"MPI_File_preallocate" => (Handle, i64) -> c_int;
    file_set_view = c"MPI_File_set_view" => (Handle, i64, Handle, Handle, *const c_char, Handle) -> c_int;
    // Writes only read memory. They are declared like reads, so that all four functions have one type.
    write_at = c"MPI_File_write_at" => (Handle, i64, *mut c_void, c_int, Handle, *mut c_void) -> c_int;
    write_at_all = c"MPI_File_write_at_all" => (Handle, i64, *mut c_void, c_int, Handle, *mut c_void) -> c_int;
    read_at = c"MPI_File_read_at" => (Handle, i64, *mut c_void, c_int, Handle, *mut c_void) -> c_int;
    read_at_all = c"MPI_File_read_at_all" => (Handle, i64, *mut c_void, c_int, Handle, *mut c_void) -> c_int;
}

functions! {
    /// Functions for communicators and types that only collectives need.
    pub(super) GroupFunctions by &'static CStr:
    comm_split = c"MPI_Comm_split" => (Handle, c_int, c_int, *mut Handle) -> c_int;
    comm_free = c"MPI_Comm_free" => (*mut Handle) -> c_int;
    type_get_name = c"MPI_Type_get_name" => (Handle, *mut c_char, *mut c_int) -> c_int;
    type_size = c"MPI_Type_size" => (Handle, *mut c_int) -> c_int;
    reduce_local = c"MPI_Reduce_local" => (*const c_void, *mut c_void, c_int, Handle, Handle) -> c_int;
}

functions! {
    /// Collectives and messages with 32-bit counts, which every MPI has.
    pub(super) PlainFunctions by &'static CStr:
    all_reduce = c"MPI_Allreduce" => (*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
    reduce_scatter_block = c"MPI_Reduce_scatter_block" => (*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;
    reduce = c"MPI_Reduce" => (*const c_void, *mut c_void, c_int, Handle, Handle, c_int, Handle) -> c_int;
    all_gather = c"MPI_Allgather" => (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle) -> c_int;
    all_to_all = c"MPI_Alltoall" => (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle) -> c_int;
    broadcast = c"MPI_Bcast" => (*mut c_void, c_int, Handle, c_int, Handle) -> c_int;
    gather = c"MPI_Gather" => (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, c_int, Handle) -> c_int;
    scatter = c"MPI_Scatter" => (*const c_void, c_int, Handle, *mut c_void, c_int, Handle, c_int, Handle) -> c_int;
    send = c"MPI_Send" => (*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int;
    receive = c"MPI_Recv" => (*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
    send_receive = c"MPI_Sendrecv" => (*const c_void, c_int, Handle, c_int, c_int, *mut c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
}

functions! {
    /// Collectives and messages with 64-bit counts (MPI_Count), which came with MPI 4.
    pub(super) LargeFunctions by &'static CStr:
    all_reduce = c"MPI_Allreduce_c" => (*const c_void, *mut c_void, i64, Handle, Handle, Handle) -> c_int;
    reduce_scatter_block = c"MPI_Reduce_scatter_block_c" => (*const c_void, *mut c_void, i64, Handle, Handle, Handle) -> c_int;
    reduce = c"MPI_Reduce_c" => (*const c_void, *mut c_void, i64, Handle, Handle, c_int, Handle) -> c_int;
    all_gather = c"MPI_Allgather_c" => (*const c_void, i64, Handle, *mut c_void, i64, Handle, Handle) -> c_int;
    all_to_all = c"MPI_Alltoall_c" => (*const c_void, i64, Handle, *mut c_void, i64, Handle, Handle) -> c_int;
    broadcast = c"MPI_Bcast_c" => (*mut c_void, i64, Handle, c_int, Handle) -> c_int;
    gather = c"MPI_Gather_c" => (*const c_void, i64, Handle, *mut c_void, i64, Handle, c_int, Handle) -> c_int;
    scatter = c"MPI_Scatter_c" => (*const c_void, i64, Handle, *mut c_void, i64, Handle, c_int, Handle) -> c_int;
    send = c"MPI_Send_c" => (*const c_void, i64, Handle, c_int, c_int, Handle) -> c_int;
    receive = c"MPI_Recv_c" => (*mut c_void, i64, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
    send_receive = c"MPI_Sendrecv_c" => (*const c_void, i64, Handle, c_int, c_int, *mut c_void, i64, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
    get_count = c"MPI_Get_count_c" => (*const c_void, Handle, *mut i64) -> c_int;
}
