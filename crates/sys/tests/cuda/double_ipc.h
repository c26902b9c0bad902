/* A double of sharing a GPU's memory between processes, and of words that streams write: the part of double.c that
 * includes it. The handle of an allocation names the memfd of its pages, which another process opens by /proc. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { IMPORTERS_MAX = 512 };

typedef struct { char magic[8]; int pid, file, gpu; uint64_t bytes, inode; char rest[24]; } Handle;
_Static_assert(sizeof(Handle) == 64, "a handle has 64 bytes");

/* Processes that have an allocation open, on the last page of its mapping. */
static int *importers(Allocation *a) { return (int *)(a->host + MAPPED(a->bytes) - 4096); }

static void set_importer(Allocation *a, int from, int to) {
    for (int i = 0; i < IMPORTERS_MAX; i++) {
        int expected = from;
        if (__atomic_compare_exchange_n(&importers(a)[i], &expected, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    }
}

/* A real driver does not say what happens then; here it is told, so that a test can notice. */
static void complain_if_open(Allocation *a) {
    for (int i = 0; i < IMPORTERS_MAX; i++) {
        int pid = __atomic_load_n(&importers(a)[i], __ATOMIC_SEQ_CST);
        if (pid && kill(pid, 0) == 0)
            fprintf(stderr, "double: process %d frees memory of a GPU that process %d has open\n", getpid(), pid);
    }
}

CALL(cuIpcGetMemHandle, Handle *out, uint64_t address) BODY(cuIpcGetMemHandle, out, address)
static int cuIpcGetMemHandle_inner(Handle *out, uint64_t address) {
    NEEDS_CONTEXT;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        struct stat is;
        /* As the driver refuses mapped memory. */
        if (!a->host || a->address != address || a->imported || a->handle) continue;
        if (fstat(a->file, &is)) return OPERATING_SYSTEM;
        *out = (Handle){"double", getpid(), a->file, a->gpu, a->bytes, is.st_ino, ""};
        return 0;
    }
    return INVALID_VALUE;
}

CALL(cuIpcOpenMemHandle_v2, uint64_t *out, Handle handle, unsigned flags) BODY(cuIpcOpenMemHandle_v2, out, handle, flags)
static int cuIpcOpenMemHandle_v2_inner(uint64_t *out, Handle handle, unsigned flags) {
    NEEDS_CONTEXT;
    if (flags != 1 || strcmp(handle.magic, "double") != 0) return INVALID_VALUE;
    /* As the driver refuses memory of the process itself. */
    if (handle.pid == getpid()) return INVALID_CONTEXT;
    if (handle.gpu != current && (peers != 1 || current == blind)) return NO_WAY;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (a->host) continue;
        char path[64];
        struct stat is;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.file);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) return INVALID_HANDLE;
        if (fstat(file, &is) || is.st_ino != handle.inode) { close(file); return INVALID_HANDLE; }
        a->host = mmap(NULL, MAPPED(handle.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, LEAD);
        a->address = (uint64_t)mmap(NULL, MAPPED(handle.bytes), PROT_NONE, MAP_SHARED, file, LEAD);
        a->bytes = handle.bytes;
        a->gpu = handle.gpu;
        a->file = file;
        a->imported = 1;
        set_importer(a, 0, getpid());
        *out = a->address;
        return 0;
    }
    return OUT_OF_MEMORY;
}

CALL(cuIpcCloseMemHandle, uint64_t address) BODY(cuIpcCloseMemHandle, address)
static int cuIpcCloseMemHandle_inner(uint64_t address) {
    NEEDS_CONTEXT;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (!a->host || a->address != address || !a->imported) continue;
        set_importer(a, getpid(), 0);
        forget(a);
        return 0;
    }
    return INVALID_VALUE;
}

CALL(cuMemGetAddressRange_v2, uint64_t *start, size_t *bytes, uint64_t address)
BODY(cuMemGetAddressRange_v2, start, bytes, address)
static int cuMemGetAddressRange_v2_inner(uint64_t *start, size_t *bytes, uint64_t address) {
    NEEDS_CONTEXT;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (!a->host || address < a->address || address >= a->address + a->bytes) continue;
        *start = a->address;
        *bytes = a->bytes;
        return 0;
    }
    return NOT_FOUND;
}

CALL(cuMemHostGetDevicePointer_v2, uint64_t *out, void *host, unsigned flags)
BODY(cuMemHostGetDevicePointer_v2, out, host, flags)
static int cuMemHostGetDevicePointer_v2_inner(uint64_t *out, void *host, unsigned flags) {
    NEEDS_CONTEXT;
    if (flags || !reach((uint64_t)host, 1)) return INVALID_VALUE;
    *out = (uint64_t)host | FOR_GPUS;
    return 0;
}

CALL(cuStreamWriteValue64_v2, void *stream, uint64_t address, uint64_t word, unsigned flags)
BODY(cuStreamWriteValue64_v2, stream, address, word, flags)
static int cuStreamWriteValue64_v2_inner(void *stream, uint64_t address, uint64_t word, unsigned flags) {
    NEEDS_CONTEXT;
    if (flags || address % 8) return INVALID_VALUE;
    return hand_over((Work){.stream = stream, .to = address, .from = word, .is_word = 1});
}

static int write_word(uint64_t address, uint64_t word) {
    uint8_t *to = address & FOR_GPUS ? reach(address & ~FOR_GPUS, 8) : NULL;
    if (!to) return ILLEGAL_ADDRESS;
    __atomic_store_n((uint64_t *)to, word, __ATOMIC_RELEASE);
    return 0;
}
