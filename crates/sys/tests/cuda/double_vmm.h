/* A double of virtual-memory handles, of files that name memory of a GPU, and of flushing what network cards wrote: the
 * part of double.c that includes it. Physical memory is a memfd; mapped, it is an allocation like others, which a GPU
 * reaches only where access was set. The driver's rules are kept as it documents them, so that a caller who does things
 * in another order, or with other sizes, is told. */

enum { NOT_SUPPORTED = 801, DMABUF_FD = 1 };

typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void *windows; uint8_t compression, gpu_direct; uint16_t usage;
                 uint8_t reserved[4]; } Properties;
typedef struct { Location location; int flags; } Access;
_Static_assert(sizeof(Properties) == 32 && sizeof(Access) == 12, "as in the driver's header");

/* Physical memory: it is there until it is neither mapped nor held by its handle. */
typedef struct { uint64_t bytes; int gpu, file, held, mapped; } Physical;
typedef struct { uint64_t address, bytes; int used; } Reserved;
static Physical physical[ROOM];
static Reserved reserved[ROOM];

static int whole(size_t bytes) { return bytes && bytes % GRANULE_MIN == 0; }

static int describes(const Properties *p) {
    int id = p->location.id;
    return p->type == 1 && p->location.type == 1 && id >= 0 && id < gpus && !p->compression && !p->usage;
}

static void give_back_if_unused(Physical *p) {
    if (p->held || p->mapped) return;
    used[p->gpu] -= p->bytes;
    close(p->file);
    memset(p, 0, sizeof *p);
}

CALL(cuMemGetAllocationGranularity, size_t *out, const Properties *p, int kind)
BODY(cuMemGetAllocationGranularity, out, p, kind)
static int cuMemGetAllocationGranularity_inner(size_t *out, const Properties *p, int kind) {
    if (kind < 0 || kind > 1 || !describes(p)) return INVALID_VALUE;
    *out = kind ? granularity : GRANULE_MIN;
    return 0;
}

CALL(cuMemCreate, uint64_t *out, size_t bytes, const Properties *p, uint64_t flags)
BODY(cuMemCreate, out, bytes, p, flags)
static int cuMemCreate_inner(uint64_t *out, size_t bytes, const Properties *p, uint64_t flags) {
    if (!vmm) return NOT_SUPPORTED;
#ifdef HIP
    if (!handles && p->handles) return NOT_SUPPORTED; /* Older releases. */
#endif
    if (flags || !whole(bytes) || !describes(p) || p->handles != handles) return INVALID_VALUE;
    if (p->gpu_direct && direct != 1) return INVALID_VALUE;
    if (bytes > memory - used[p->location.id]) return OUT_OF_MEMORY;
    for (int i = 0; i < ROOM; i++) {
        if (physical[i].bytes) continue;
        int file = memfd_create("tonnage-double", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, MAPPED(bytes))) return OUT_OF_MEMORY;
        physical[i] = (Physical){bytes, p->location.id, file, 1, 0};
        used[p->location.id] += bytes;
        *out = i + 1;
        return 0;
    }
    return OUT_OF_MEMORY;
}

CALL(cuMemRelease, uint64_t handle) BODY(cuMemRelease, handle)
static int cuMemRelease_inner(uint64_t handle) {
    if (!handle || handle > ROOM || !physical[handle - 1].held) return INVALID_VALUE;
    physical[handle - 1].held = 0;
    give_back_if_unused(&physical[handle - 1]);
    return 0;
}

CALL(cuMemAddressReserve, uint64_t *out, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags)
BODY(cuMemAddressReserve, out, bytes, alignment, wanted, flags)
static int cuMemAddressReserve_inner(uint64_t *out, size_t bytes, size_t alignment, uint64_t wanted, uint64_t flags) {
    if (flags || wanted || !whole(bytes) || (alignment & (alignment - 1))) return INVALID_VALUE;
    for (int i = 0; i < ROOM; i++) {
        if (reserved[i].bytes) continue;
        void *at = mmap(NULL, MAPPED(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return OUT_OF_MEMORY;
        reserved[i] = (Reserved){(uint64_t)at, bytes, 0};
        *out = reserved[i].address;
        return 0;
    }
    return OUT_OF_MEMORY;
}

static Reserved *reservation(uint64_t address, size_t bytes) {
    for (int i = 0; i < ROOM; i++)
        if (bytes && reserved[i].bytes == bytes && reserved[i].address == address) return &reserved[i];
    return NULL;
}

CALL(cuMemAddressFree, uint64_t address, size_t bytes) BODY(cuMemAddressFree, address, bytes)
static int cuMemAddressFree_inner(uint64_t address, size_t bytes) {
    Reserved *r = reservation(address, bytes);
    if (!r || r->used) {
        fprintf(stderr, "double: addresses are given back that are %s\n", r ? "mapped" : "not reserved");
        return INVALID_VALUE;
    }
    munmap((void *)address, MAPPED(bytes));
    memset(r, 0, sizeof *r);
    return 0;
}

CALL(cuMemMap, uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
BODY(cuMemMap, address, bytes, offset, handle, flags)
static int cuMemMap_inner(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
    Reserved *r = reservation(address, bytes);
    if (!r || r->used || offset || flags || !handle || handle > ROOM) return INVALID_VALUE;
    Physical *p = &physical[handle - 1];
    if (!p->held || p->bytes != bytes) return INVALID_VALUE;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (a->host) continue;
        a->host = mmap(NULL, MAPPED(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, p->file, 0);
        mmap((void *)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p->file, 0);
        a->address = address;
        a->bytes = bytes;
        a->gpu = p->gpu;
        a->file = p->file;
        a->handle = handle;
        memset(a->host, 0xee, bytes); /* Not zeroed. */
        r->used = p->mapped = 1;
        return 0;
    }
    return OUT_OF_MEMORY;
}

static Allocation *mapped_at(uint64_t address, size_t bytes) {
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (a->host && a->handle && a->address == address && a->bytes == bytes) return a;
    }
    return NULL;
}

CALL(cuMemSetAccess, uint64_t address, size_t bytes, const Access *list, size_t count)
BODY(cuMemSetAccess, address, bytes, list, count)
static int cuMemSetAccess_inner(uint64_t address, size_t bytes, const Access *list, size_t count) {
    Allocation *a = mapped_at(address, bytes);
    if (!a || !count) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        int gpu = list[i].location.id;
        if (list[i].location.type != 1 || gpu < 0 || gpu >= gpus || list[i].flags != 3) return INVALID_VALUE;
        if (gpu != a->gpu && (!peers || gpu == blind)) return NO_ACCESS;
        a->access |= 1 << gpu;
    }
    return 0;
}

CALL(cuMemUnmap, uint64_t address, size_t bytes) BODY(cuMemUnmap, address, bytes)
static int cuMemUnmap_inner(uint64_t address, size_t bytes) {
    Allocation *a = mapped_at(address, bytes);
    Reserved *r = reservation(address, bytes);
    if (!a || !r) return INVALID_VALUE;
    munmap(a->host, MAPPED(bytes));
    mmap((void *)address, MAPPED(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    Physical *p = &physical[a->handle - 1];
    r->used = p->mapped = 0;
    give_back_if_unused(p);
    memset(a, 0, sizeof *a);
    return 0;
}

#ifndef HIP
/* The file is the memory's own memfd, opened anew. */
CALL(cuMemGetHandleForAddressRange, int *out, uint64_t address, size_t bytes, int kind, uint64_t flags)
BODY(cuMemGetHandleForAddressRange, out, address, bytes, kind, flags)
static int cuMemGetHandleForAddressRange_inner(int *out, uint64_t address, size_t bytes, int kind, uint64_t flags) {
    if (dmabuf < 1) return NOT_SUPPORTED;
    if (kind != DMABUF_FD || flags || !bytes || address % 4096 || bytes % 4096) return INVALID_VALUE;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (!a->host || a->imported || address < a->address || address + bytes > a->address + a->bytes) continue;
        *out = dmabuf == 3 ? -1 : dup(a->file);
        return *out < 0 && dmabuf != 3 ? OPERATING_SYSTEM : 0;
    }
    return INVALID_VALUE;
}

CALL(cuFlushGPUDirectRDMAWrites, int target, int scope) BODY(cuFlushGPUDirectRDMAWrites, target, scope)
static int cuFlushGPUDirectRDMAWrites_inner(int target, int scope) {
    NEEDS_CONTEXT;
    if (target || (scope != 100 && scope != 200)) return INVALID_VALUE;
    return flushes & 1 ? 0 : NOT_SUPPORTED;
}
#endif
