/* A double of the CUDA driver library for tests: the calls that tonnage uses, over memory of the host.
 *
 * "Device" memory is a memfd with two mappings: one without access, whose address the driver's callers get, so that a
 * stray access by the CPU is a fault; and one that this file uses. Work of streams is put off until somebody waits for
 * it, so that a wait that is missing shows as bytes that did not come. Kernels are carried out from their PTX text, by
 * ptx.h: no second version of their arithmetic stands here.
 *
 * The file FILE.conf beside the library FILE says, in lines of a word and a value, what a test wants otherwise:
 *
 *   gpus 2            how many there are
 *   memory 67108864   bytes of each
 *   version 12040     what cuDriverGetVersion says; a number of HIP for that
 *   fail CALL CODE N  the N-th call of that name returns CODE; codes of lost devices are returned by all later calls;
 *                     -6 aborts the process, as AMD's runtime does on an error of a queue
 *   wrong 1           mul.lo is wrong for one number in 4096, as on a broken GPU; of HIP, each kernel leaves a wrong
 *                     byte
 *   ptx 0             the compiler refuses every text, also one of HIP
 *   peers 0           no GPU reaches another one's memory; 2: it does, but opens none of another process's
 *   blind A           GPU A reaches no other one's memory, and they its
 *   spoil HOW N       the N-th copy of a stream goes wrong: flip changes a byte in its middle, swap exchanges its first
 *                     two blocks of 64 bytes, stale copies nothing
 *   starts 20         the driver's start takes so many ms
 *   words 0           streams write no words
 *   uuids 0           GPUs have no identifiers
 *   parts N           so many GPUs are parts of one card, with their numbers in the place of the function's
 *   slow 1            a query carries out one piece of a stream's work, and no more
 *   vmm 0             no memory by virtual-memory handles; handles 0: none that become files, which AMD's runtime says
 *                     only when it is asked for such; direct 0: network cards reach none of it; direct 2: the driver
 *                     does not know that question
 *   granularity 65536 of such memory, of AMD's runtime the one that it recommends
 *   dmabuf 1          memory of GPUs can be exported as a file; 0 cannot; else the driver does not know the question, and
 *                     cannot; 2 it can and does not know the question; 3 it says that it has, and opens no file
 *   ordering 0        no order between what network cards write and a GPU's own work; 100 and 200 there is one
 *   flushes 1         the host can flush what network cards wrote
 *
 * Memory is shared with other processes, and words are written by streams, in double_ipc.h; virtual-memory handles and
 * what network cards need are in double_vmm.h.
 *
 * Compiled with -DOLD_DRIVER, it lacks the newest call; with -DHIP, it is a double of AMD's runtime and of its compiler:
 * double_hip.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       INVALID_CONTEXT = 201, PEER_UNSUPPORTED = 217, INVALID_PTX = 218, OPERATING_SYSTEM = 304, INVALID_HANDLE = 400,
       NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, PEER_ENABLED = 704, ALREADY_REGISTERED = 712,
       NOT_REGISTERED = 713 };

#ifdef HIP
#include "double_hip_names.h"
#else
#define VERSION 12040
#define NO_GPUS NO_DEVICE
#define UUID_BYTE 0xd0
#define REGISTERED_ONCE 1
#define NO_WAY PEER_UNSUPPORTED
#define NO_ACCESS PEER_UNSUPPORTED
#define GRANULE_MIN granularity
#define LEAD 0
#endif

#define GPUS_MAX 8
#define ROOM 256

/* One with a handle is mapped physical memory, which only GPUs of its access reach. */
typedef struct { uint64_t address, bytes, handle; uint8_t *host; int gpu, file, imported, access; } Allocation;

/* Mapped bytes of an allocation: whole pages, and one that processes which share it write into. */
#define MAPPED(bytes) (((bytes) + 4095) / 4096 * 4096 + 4096)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation allocations[ROOM], pinned[ROOM];
static int gpus = 2, version = VERSION, wrong, compiles = 1, peers = 1, words = 1, blind = -1, initialised, lost, retained[GPUS_MAX];
static int vmm = 1, dmabuf = -1, ordering = -1, flushes;
static uint64_t memory = 64 << 20, granularity = 2 << 20, used[GPUS_MAX];
static char fail_call[64], spoil[8];
static int slow, parts = 1, uuids = 1, direct = 1, handles = 1, spoil_at, copies_seen, reaches[GPUS_MAX][GPUS_MAX];
static int fail_code, fail_at, fail_seen, starts;
static __thread int current = -1;

/* Called under the lock: a second thread that came in meanwhile would find half of it. */
static void configure(void) {
    static int done;
    if (done) return;
    done = 1;
    Dl_info info;
    char path[4096], line[256];
    if (!dladdr((void *)configure, &info)) return;
    snprintf(path, sizeof path, "%s.conf", info.dli_fname);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long value;
        if (sscanf(line, "gpus %llu", &value) == 1) gpus = value;
        if (sscanf(line, "memory %llu", &value) == 1) memory = value;
        if (sscanf(line, "version %llu", &value) == 1) version = value;
        if (sscanf(line, "wrong %llu", &value) == 1) wrong = value;
        if (sscanf(line, "ptx %llu", &value) == 1) compiles = value;
        if (sscanf(line, "peers %llu", &value) == 1) peers = value;
        if (sscanf(line, "blind %llu", &value) == 1) blind = value;
        sscanf(line, "spoil %7s %d", spoil, &spoil_at);
        if (sscanf(line, "starts %llu", &value) == 1) starts = value;
        if (sscanf(line, "words %llu", &value) == 1) words = value;
        if (sscanf(line, "slow %llu", &value) == 1) slow = value;
        if (sscanf(line, "parts %llu", &value) == 1 && value) parts = value;
        if (sscanf(line, "uuids %llu", &value) == 1) uuids = value;
        if (sscanf(line, "direct %llu", &value) == 1) direct = value;
        if (sscanf(line, "handles %llu", &value) == 1) handles = value;
        if (sscanf(line, "vmm %llu", &value) == 1) vmm = value;
        if (sscanf(line, "granularity %llu", &value) == 1) granularity = value;
        if (sscanf(line, "dmabuf %llu", &value) == 1) dmabuf = value;
        if (sscanf(line, "ordering %llu", &value) == 1) ordering = value;
        if (sscanf(line, "flushes %llu", &value) == 1) flushes = value;
        sscanf(line, "fail %63s %d %d", fail_call, &fail_code, &fail_at);
    }
    if (file) fclose(file);
}

/* The result that a test wants of this call; 0 for none. */
static int failing(const char *call) {
    if (lost) return lost;
    if (strcmp(call, fail_call) == 0 && ++fail_seen == fail_at) {
        if (fail_code == -6) abort();
        /* Errors of kernels and of devices that fell off stay. */
        if (fail_code >= 700 || fail_code == 46 || fail_code == 214) lost = fail_code;
        return fail_code;
    }
    return 0;
}

/* The GPU whose work is carried out. */
static int acting;

/* Whether kernels of a GPU reach memory: mapped memory where access was set, whatever its context may reach. */
static int may_reach(const Allocation *a, int gpu) {
    return a->handle ? a->access >> gpu & 1 : a->gpu == gpu || reaches[gpu][a->gpu];
}

/* Where this file reaches an address of a device, or of pinned memory. */
static uint8_t *reach(uint64_t address, uint64_t bytes) {
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i], *p = &pinned[i];
        if (a->host && address >= a->address && address + bytes <= a->address + a->bytes)
            return a->handle && !(a->access >> acting & 1) ? NULL : a->host + (address - a->address);
        if (p->host && address >= p->address && address + bytes <= p->address + p->bytes)
            return p->host + (address - p->address);
    }
    return NULL;
}

/* Memory of the host that nobody has pinned; NULL for what this process itself cannot reach. */
static uint8_t *pageable(uint64_t address, uint64_t bytes) {
    uint8_t byte[2];
    struct iovec to = {byte, 2}, from[] = {{(void *)address, 1}, {(void *)(address + bytes - 1), 1}};
    return process_vm_readv(getpid(), &to, 1, from, 2, 0) == 2 ? (uint8_t *)address : NULL;
}

/* Pinned memory has another address for kernels and for words, so that a caller who takes the CPU's is found. */
#define FOR_GPUS (1ull << 62)

#ifdef HIP
#include "double_hip_kernels.h"
#else
#include "ptx.h"
#define expect_image(module) (void)(module)
#endif

/* Work of streams, in the order in which it was handed over. */
typedef struct Work {
    struct Work *next;
    void *stream;
    struct Event *event;
    const Kernel *kernel;
    uint64_t to, from, bytes, arguments[PARAMETERS_MAX];
    unsigned blocks, threads;
    int is_word;
} Work;
typedef struct Event { int pending; double ns; } Event;
static Work *first, **last = &first;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int write_word(uint64_t address, uint64_t word);
static int carry_out(Work *w) {
    acting = *(int *)w->stream;
    if (w->event) {
        w->event->ns = now_ns();
        w->event->pending = 0;
        return 0;
    }
    if (w->kernel) return run(w->kernel, w->arguments, w->blocks, w->threads, *(int *)w->stream, wrong);
    if (w->is_word) return write_word(w->to, w->from);
    uint8_t *to = reach(w->to, w->bytes), *from = reach(w->from, w->bytes);
    if (!to) to = pageable(w->to, w->bytes);
    if (!from) from = pageable(w->from, w->bytes);
    if (!to || !from) return ILLEGAL_ADDRESS;
    int spoiled = spoil_at && ++copies_seen == spoil_at;
    if (spoiled && *spoil == 's' && spoil[1] == 't') return 0;
    memmove(to, from, w->bytes);
    if (spoiled && *spoil == 'f') to[w->bytes / 2] ^= 4;
    if (spoiled && spoil[1] == 'w')
        for (int i = 0; i < 64; i++) { uint8_t byte = to[i]; to[i] = to[i + 64]; to[i + 64] = byte; }
    return 0;
}

/* Carries out the work of a stream, of all of them for NULL, up to an event where there is one; at most so many pieces. */
static int carry(void *stream, Event *until, unsigned pieces) {
    for (Work **at = &first; *at && pieces;) {
        Work *w = *at;
        if (stream && w->stream != stream) { at = &w->next; continue; }
        if (until && !until->pending) return 0;
        *at = w->next;
        if (!*at) last = at;
        int code = carry_out(w);
        free(w);
        pieces--;
        if (code) return lost = code;
    }
    return 0;
}
static int drain(void *stream, Event *until) { return carry(stream, until, -1u); }

static int hand_over(Work work) {
    Work *w = malloc(sizeof *w);
    *w = work;
    w->next = NULL;
    *last = w;
    last = &w->next;
    return 0;
}

#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define CALL(name, ...) \
    static int name##_inner(__VA_ARGS__); \
    int name(__VA_ARGS__)
#define BODY(name, ...) \
    { pthread_mutex_lock(&lock); configure(); int code = initialised ? failing(TEXT(name)) : NOT_INITIALIZED; \
      code = code ? code : name##_inner(__VA_ARGS__); pthread_mutex_unlock(&lock); return code; }
#define NEEDS_CONTEXT if (current < 0) return INVALID_CONTEXT

int cuInit(unsigned flags) {
    pthread_mutex_lock(&lock);
    configure();
    int code = failing(TEXT_OF(cuInit));
    if (!initialised) usleep(starts * 1000);
    if (!code) code = gpus == 0 ? NO_GPUS : flags ? INVALID_VALUE : 0;
    initialised = !code;
    pthread_mutex_unlock(&lock);
    return code;
}

int cuDriverGetVersion(int *out) {
    pthread_mutex_lock(&lock);
    configure();
    *out = version;
    pthread_mutex_unlock(&lock);
    return 0;
}

#ifndef HIP
static const struct { int code; const char *name, *text; } names[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "already mapped"},
    {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "not mapped"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
};

static int name_of(int code, const char **out, int text) {
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) *out = text ? names[i].text : names[i].name;
    return *out ? 0 : INVALID_VALUE;
}
int cuGetErrorName(int code, const char **out) { return name_of(code, out, 0); }
int cuGetErrorString(int code, const char **out) { return name_of(code, out, 1); }
#endif

CALL(cuDeviceGetCount, int *out) BODY(cuDeviceGetCount, out)
static int cuDeviceGetCount_inner(int *out) { *out = gpus; return 0; }
CALL(cuDeviceGet, int *out, int n) BODY(cuDeviceGet, out, n)
static int cuDeviceGet_inner(int *out, int n) { *out = n; return n < 0 || n >= gpus ? INVALID_DEVICE : 0; }
CALL(cuDeviceGetName, char *out, int room, int n) BODY(cuDeviceGetName, out, room, n)
static int cuDeviceGetName_inner(char *out, int room, int n) { (void)n; snprintf(out, room, "Double of a GPU"); return 0; }
CALL(cuDeviceGetUuid, uint8_t *out, int n) BODY(cuDeviceGetUuid, out, n)
static int cuDeviceGetUuid_inner(uint8_t *out, int n) {
    memset(out, uuids ? UUID_BYTE + n : 0, 16);
    if (!uuids) strcpy((char *)out, "XX"); /* As AMD's runtime has it of GPUs without one. */
    return 0;
}
CALL(cuDeviceTotalMem_v2, size_t *out, int n) BODY(cuDeviceTotalMem_v2, out, n)
static int cuDeviceTotalMem_v2_inner(size_t *out, int n) { (void)n; *out = memory; return 0; }
CALL(cuDeviceGetPCIBusId, char *out, int room, int n) BODY(cuDeviceGetPCIBusId, out, room, n)
static int cuDeviceGetPCIBusId_inner(char *out, int room, int n) {
    snprintf(out, room, "0000:%02X:00.%x", 0x1b + n / parts, n % parts);
    return 0;
}
CALL(cuDeviceGetAttribute, int *out, int which, int n) BODY(cuDeviceGetAttribute, out, which, n)
static int cuDeviceGetAttribute_inner(int *out, int which, int n) {
    (void)n;
#ifdef HIP
    if (which == 89) { *out = vmm; return 0; }
    if (which == 93 && (dmabuf == 0 || dmabuf == 1)) { *out = dmabuf; return 0; }
    if (which == 94 && direct < 2) { *out = direct; return 0; }
    static const int known[][2] = {{63, 3}, {2, 8}, {23, 9}, {61, 0}}; /* 8 queues for every GPU. */
#else
    if (which == 122) { *out = words; return 0; }
    if (which == 102) { *out = vmm; return 0; }
    if (which == 103) { *out = handles; return 0; }
    if (which == 110 && direct < 2) { *out = direct; return 0; }
    if (which == 117 && ordering >= 0) { *out = flushes; return 0; }
    if (which == 118 && ordering >= 0) { *out = ordering; return 0; }
    if (which == 124 && (dmabuf == 0 || dmabuf == 1)) { *out = dmabuf; return 0; }
    static const int known[][2] = {{16, 3}, {36, 1000000}, {37, 512}, {38, 1 << 20}, {40, 2}, {75, 9}, {76, 0}};
#endif
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] == which) { *out = known[i][1]; return 0; }
    return INVALID_VALUE;
}

#ifndef HIP
/* A context is the number of its GPU plus one. */
CALL(cuDevicePrimaryCtxRetain, void **out, int n) BODY(cuDevicePrimaryCtxRetain, out, n)
static int cuDevicePrimaryCtxRetain_inner(void **out, int n) { retained[n]++; *out = (void *)(intptr_t)(n + 1); return 0; }
#ifndef OLD_DRIVER
CALL(cuDevicePrimaryCtxRelease_v2, int n) BODY(cuDevicePrimaryCtxRelease_v2, n)
static int cuDevicePrimaryCtxRelease_v2_inner(int n) { return retained[n]-- > 0 ? 0 : INVALID_CONTEXT; }
#endif
CALL(cuCtxSetCurrent, void *context) BODY(cuCtxSetCurrent, context)
static int cuCtxSetCurrent_inner(void *context) {
    int n = (int)(intptr_t)context - 1;
    if (n >= 0 && retained[n] < 1) return INVALID_CONTEXT;
    current = n;
    return 0;
}
CALL(cuCtxSynchronize, void) BODY(cuCtxSynchronize)
static int cuCtxSynchronize_inner(void) { NEEDS_CONTEXT; return drain(NULL, NULL); }
#endif

CALL(cuDeviceCanAccessPeer, int *out, int n, int peer) BODY(cuDeviceCanAccessPeer, out, n, peer)
static int cuDeviceCanAccessPeer_inner(int *out, int n, int peer) { *out = peers && n != blind && n != peer; return 0; }
/* Attributes of a pair: its rank, access, and native atomics; the first is 0 in HIP. */
CALL(cuDeviceGetP2PAttribute, int *out, int which, int n, int peer) BODY(cuDeviceGetP2PAttribute, out, which, n, peer)
static int cuDeviceGetP2PAttribute_inner(int *out, int which, int n, int peer) {
    if (n == peer || n < 0 || peer < 0 || n >= gpus || peer >= gpus) return INVALID_DEVICE;
#ifdef HIP
    which++;
#endif
    if (which < 1 || which > 3) return INVALID_VALUE;
    int reached = peers && n != blind;
    *out = which == 1 ? !reached : reached;
    return 0;
}
#ifndef HIP
CALL(cuCtxEnablePeerAccess, void *context, unsigned flags) BODY(cuCtxEnablePeerAccess, context, flags)
static int cuCtxEnablePeerAccess_inner(void *context, unsigned flags) {
    NEEDS_CONTEXT;
    int peer = (int)(intptr_t)context - 1;
    if (flags || peer < 0 || retained[peer] < 1) return INVALID_VALUE;
    if (!peers || current == blind || peer == current) return PEER_UNSUPPORTED;
    if (reaches[current][peer]) return PEER_ENABLED;
    reaches[current][peer] = 1;
    return 0;
}
#endif

CALL(cuMemGetInfo_v2, size_t *free_, size_t *all) BODY(cuMemGetInfo_v2, free_, all)
static int cuMemGetInfo_v2_inner(size_t *free_, size_t *all) {
    NEEDS_CONTEXT;
    *free_ = memory - used[current];
    *all = memory;
    return 0;
}

CALL(cuMemAlloc_v2, uint64_t *out, size_t bytes) BODY(cuMemAlloc_v2, out, bytes)
static int cuMemAlloc_v2_inner(uint64_t *out, size_t bytes) {
    NEEDS_CONTEXT;
    if (!bytes) return INVALID_VALUE;
    if (bytes > memory - used[current]) return OUT_OF_MEMORY;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (a->host) continue;
        int file = memfd_create("tonnage-double", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, LEAD + MAPPED(bytes))) return OUT_OF_MEMORY;
        a->host = mmap(NULL, MAPPED(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, LEAD);
        a->address = (uint64_t)mmap(NULL, MAPPED(bytes), PROT_NONE, MAP_SHARED, file, LEAD);
        a->file = file;
        a->bytes = bytes;
        a->gpu = current;
        used[current] += bytes;
        memset(a->host, 0xee, bytes); /* Not zeroed. */
        *out = a->address;
        return 0;
    }
    return OUT_OF_MEMORY;
}
static void forget(Allocation *a) {
    munmap(a->host, MAPPED(a->bytes));
    munmap((void *)a->address, MAPPED(a->bytes));
    close(a->file);
    memset(a, 0, sizeof *a);
}
#include "double_ipc.h"
#include "double_vmm.h"
CALL(cuMemFree_v2, uint64_t address) BODY(cuMemFree_v2, address)
static int cuMemFree_v2_inner(uint64_t address) {
    NEEDS_CONTEXT;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (!a->host || a->address != address || a->imported || a->handle) continue;
        complain_if_open(a);
        used[a->gpu] -= a->bytes;
        forget(a);
        return 0;
    }
    return INVALID_VALUE;
}

CALL(cuMemHostRegister_v2, void *host, size_t bytes, unsigned flags) BODY(cuMemHostRegister_v2, host, bytes, flags)
static int cuMemHostRegister_v2_inner(void *host, size_t bytes, unsigned flags) {
    NEEDS_CONTEXT;
    if (!bytes || flags > 15) return INVALID_VALUE;
    if (REGISTERED_ONCE && reach((uint64_t)host, 1)) return ALREADY_REGISTERED;
    for (int i = 0; i < ROOM; i++)
        if (!pinned[i].host) {
            pinned[i] = (Allocation){.address = (uint64_t)host, .bytes = bytes, .host = host, .gpu = current};
            return 0;
        }
    return OUT_OF_MEMORY;
}
CALL(cuMemHostUnregister, void *host) BODY(cuMemHostUnregister, host)
static int cuMemHostUnregister_inner(void *host) {
    NEEDS_CONTEXT;
    for (int i = 0; i < ROOM; i++)
        if (pinned[i].host == host && host) { memset(&pinned[i], 0, sizeof *pinned); return 0; }
    return NOT_REGISTERED;
}

/* Copies that wait do so for themselves alone: streams here are none that the default one waits for. */
CALL(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t bytes) BODY(cuMemcpyHtoD_v2, to, from, bytes)
static int cuMemcpyHtoD_v2_inner(uint64_t to, const void *from, size_t bytes) {
    NEEDS_CONTEXT;
    acting = current;
    uint8_t *there = reach(to, bytes);
    return there ? (memcpy(there, from, bytes), 0) : INVALID_VALUE;
}
CALL(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t bytes) BODY(cuMemcpyDtoH_v2, to, from, bytes)
static int cuMemcpyDtoH_v2_inner(void *to, uint64_t from, size_t bytes) {
    NEEDS_CONTEXT;
    acting = current;
    uint8_t *there = reach(from, bytes);
    return there ? (memcpy(to, there, bytes), 0) : INVALID_VALUE;
}
#ifndef HIP
static int cuMemcpyAsync_inner(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) BODY(cuMemcpyAsync, to, from, bytes, stream)
#endif
static int cuMemcpyAsync_inner(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    NEEDS_CONTEXT;
    acting = *(int *)stream;
    int known = reach(to, bytes) && reach(from, bytes);
    int code = hand_over((Work){.stream = stream, .to = to, .from = from, .bytes = bytes});
    /* Pageable memory goes by way of pinned memory of the driver's, while the caller waits. */
    return known || !pageable(reach(to, bytes) ? from : to, bytes) ? code : drain(stream, NULL);
}

CALL(cuStreamCreate, void **out, unsigned flags) BODY(cuStreamCreate, out, flags)
static int cuStreamCreate_inner(void **out, unsigned flags) {
    NEEDS_CONTEXT;
    (void)flags;
    int *gpu = malloc(sizeof *gpu);
    *gpu = current;
    *out = gpu;
    return 0;
}
CALL(cuStreamSynchronize, void *stream) BODY(cuStreamSynchronize, stream)
static int cuStreamSynchronize_inner(void *stream) { NEEDS_CONTEXT; return drain(stream, NULL); }
CALL(cuStreamDestroy_v2, void *stream) BODY(cuStreamDestroy_v2, stream)
static int cuStreamDestroy_v2_inner(void *stream) { NEEDS_CONTEXT; int code = drain(stream, NULL); free(stream); return code; }

CALL(cuEventCreate, void **out, unsigned flags) BODY(cuEventCreate, out, flags)
static int cuEventCreate_inner(void **out, unsigned flags) { NEEDS_CONTEXT; (void)flags; *out = calloc(1, sizeof(Event)); return 0; }
CALL(cuEventRecord, Event *event, void *stream) BODY(cuEventRecord, event, stream)
static int cuEventRecord_inner(Event *event, void *stream) {
    NEEDS_CONTEXT;
    event->pending = 1;
    return hand_over((Work){.stream = stream, .event = event});
}
static void *stream_of(Event *event) {
    for (Work *w = first; w; w = w->next)
        if (w->event == event) return w->stream;
    return NULL;
}
/* Asked once, it is not there yet; the next time it is. */
CALL(cuEventQuery, Event *event) BODY(cuEventQuery, event)
static int cuEventQuery_inner(Event *event) {
    NEEDS_CONTEXT;
    if (!event->pending) return 0;
    int code = carry(stream_of(event), event, slow ? 1 : -1u);
    return code ? code : NOT_READY;
}
CALL(cuEventSynchronize, Event *event) BODY(cuEventSynchronize, event)
static int cuEventSynchronize_inner(Event *event) {
    NEEDS_CONTEXT;
    return event->pending ? drain(stream_of(event), event) : 0;
}
CALL(cuEventElapsedTime, float *out, Event *from, Event *to) BODY(cuEventElapsedTime, out, from, to)
static int cuEventElapsedTime_inner(float *out, Event *from, Event *to) {
    NEEDS_CONTEXT;
    if (from->pending || to->pending) return NOT_READY;
    *out = (to->ns - from->ns) / 1e6;
    return 0;
}
CALL(cuEventDestroy_v2, Event *event) BODY(cuEventDestroy_v2, event)
static int cuEventDestroy_v2_inner(Event *event) {
    NEEDS_CONTEXT;
    int code = event->pending ? drain(stream_of(event), event) : 0;
    free(event);
    return code;
}

#ifndef HIP
CALL(cuModuleLoadDataEx, Module **out, const char *image, unsigned count, int *options, void **values)
BODY(cuModuleLoadDataEx, out, image, count, options, values)
static int cuModuleLoadDataEx_inner(Module **out, const char *image, unsigned count, int *options, void **values) {
    NEEDS_CONTEXT;
    char why[256] = "";
    *out = compiles ? compile(image, why, sizeof why) : NULL;
    if (*out) return 0;
    if (count == 2 && options[0] == 5 && options[1] == 6)
        snprintf(values[0], (size_t)values[1], "ptxas double, %s\n", compiles ? why : "line 1; fatal : told to refuse");
    return INVALID_PTX;
}
#endif
CALL(cuModuleGetFunction, const Kernel **out, Module *module, const char *name) BODY(cuModuleGetFunction, out, module, name)
static int cuModuleGetFunction_inner(const Kernel **out, Module *module, const char *name) {
    NEEDS_CONTEXT;
    expect_image(module);
    for (int i = 0; i < module->count; i++)
        if (strcmp(module->kernels[i].name, name) == 0) { *out = &module->kernels[i]; return 0; }
    return NOT_FOUND;
}
CALL(cuModuleUnload, Module *module) BODY(cuModuleUnload, module)
static int cuModuleUnload_inner(Module *module) {
    NEEDS_CONTEXT;
    expect_image(module);
#ifdef HIP
    free(module->copy);
#endif
    free(module);
    return 0;
}
#ifdef HIP
#include "double_hip.h"
#endif
CALL(cuLaunchKernel, const Kernel *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
     unsigned shared, void *stream, void **arguments, void **extra)
BODY(cuLaunchKernel, f, x, y, z, tx, ty, tz, shared, stream, arguments, extra)
static int cuLaunchKernel_inner(const Kernel *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                                unsigned shared, void *stream, void **arguments, void **extra) {
    NEEDS_CONTEXT;
    if (!x || y != 1 || z != 1 || !tx || tx > 1024 || ty != 1 || tz != 1 || shared || extra) return INVALID_VALUE;
    Work work = {.stream = stream, .kernel = f, .blocks = x, .threads = tx};
    for (int i = 0; i < f->parameters; i++) work.arguments[i] = *(uint64_t *)arguments[i];
    return hand_over(work);
}
