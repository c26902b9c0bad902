/* Calls of AMD's runtime that have forms of their own, and its compiler: the part of double.c that includes it with
 * -DHIP. */

static const struct { int code; const char *name, *text; } names[] = {
    {INVALID_VALUE, "hipErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory"},
    {NOT_INITIALIZED, "hipErrorNotInitialized", "initialization error"},
    {INVALID_DEVICE, "hipErrorInvalidDevice", "hipErrorInvalidDevice"}, /* Older releases have no other words. */
    {INVALID_CONTEXT, "hipErrorInvalidContext", "invalid device context"},
    {NO_WAY, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {NOT_READY, "hipErrorNotReady", "device not ready"},
    {ILLEGAL_ADDRESS, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {801, "hipErrorNotSupported", "operation not supported"},
    {OPERATING_SYSTEM, "hipErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
};
static const char *name_of(int code, int text) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return text ? names[i].text : names[i].name;
    return text ? "unrecognized error" : "hipErrorUnknown";
}
const char *hipGetErrorName(int code) { return name_of(code, 0); }
const char *hipGetErrorString(int code) { return name_of(code, 1); }

/* A thread has a GPU, and no context. */
CALL(hipSetDevice, int n) BODY(hipSetDevice, n)
static int hipSetDevice_inner(int n) {
    if (n < 0 || n >= gpus) return INVALID_DEVICE;
    retained[n] = 1;
    current = n;
    return 0;
}
CALL(hipDeviceSynchronize, void) BODY(hipDeviceSynchronize)
static int hipDeviceSynchronize_inner(void) { NEEDS_CONTEXT; return drain(NULL, NULL); }

CALL(hipDeviceEnablePeerAccess, int peer, unsigned flags) BODY(hipDeviceEnablePeerAccess, peer, flags)
static int hipDeviceEnablePeerAccess_inner(int peer, unsigned flags) {
    NEEDS_CONTEXT;
    if (flags) return INVALID_VALUE;
    if (!peers || current == blind || peer == current || peer < 0 || peer >= gpus) return INVALID_DEVICE;
    if (reaches[current][peer]) return PEER_ENABLED;
    reaches[current][peer] = 1;
    return 0;
}

/* The direction is found out from the addresses. */
CALL(hipMemcpyAsync, uint64_t to, uint64_t from, size_t bytes, int kind, void *stream)
BODY(hipMemcpyAsync, to, from, bytes, kind, stream)
static int hipMemcpyAsync_inner(uint64_t to, uint64_t from, size_t bytes, int kind, void *stream) {
    return kind == 4 ? cuMemcpyAsync_inner(to, from, bytes, stream) : INVALID_VALUE;
}

/* The struct as it was when this symbol was frozen. */
#define GENERATION "gfx90a:sramecc+:xnack-"
CALL(hipGetDeviceProperties, char *out, int n) BODY(hipGetDeviceProperties, out, n)
static int hipGetDeviceProperties_inner(char *out, int n) {
    if (n < 0 || n >= gpus) return INVALID_DEVICE;
    if ((uintptr_t)out % 8) return INVALID_VALUE; /* Of a struct with sizes and pointers, nobody says what comes then. */
    memset(out, 0, 792);
    strcpy(out + 396, GENERATION);
    return 0;
}

/* Physical memory becomes a file by its handle, and an allocation by a call of the runtime below, which tells where in the
 * file it begins. */
CALL(hipMemExportToShareableHandle, int *out, uint64_t handle, int kind, uint64_t flags)
BODY(hipMemExportToShareableHandle, out, handle, kind, flags)
static int hipMemExportToShareableHandle_inner(int *out, uint64_t handle, int kind, uint64_t flags) {
    if (kind != 1 || flags || !handle || handle > ROOM || !physical[handle - 1].held || dmabuf < 1) return INVALID_VALUE;
    *out = dmabuf == 3 ? -1 : dup(physical[handle - 1].file);
    return *out < 0 && dmabuf != 3 ? OPERATING_SYSTEM : 0;
}
enum { HSA_ERROR = 0x1000, HSA_INVALID_ALLOCATION = 0x1004 };
static int hsa_amd_portable_export_dmabuf_inner(uint64_t address, size_t bytes, int *out, uint64_t *offset) {
    if (dmabuf < 1) return HSA_ERROR;
    for (int i = 0; i < ROOM; i++) {
        Allocation *a = &allocations[i];
        if (!a->host || a->handle || a->imported) continue;
        if (address < a->address || address + bytes > a->address + a->bytes) continue;
        *out = dmabuf == 3 ? -1 : dup(a->file);
        *offset = LEAD + (address - a->address);
        return *out < 0 && dmabuf != 3 ? HSA_ERROR : 0;
    }
    return HSA_INVALID_ALLOCATION;
}
int hsa_amd_portable_export_dmabuf(uint64_t address, size_t bytes, int *out, uint64_t *offset)
BODY(hsa_amd_portable_export_dmabuf, address, bytes, out, offset)
int hsa_status_string(int code, const char **out) {
    *out = code == HSA_ERROR ? "HSA_STATUS_ERROR: A generic error has occurred."
                             : "HSA_STATUS_ERROR_INVALID_ALLOCATION: The requested allocation is not valid.";
    return 0;
}

/* A program becomes the path of what was compiled, and the text itself, where the parameters are read from. */
typedef struct { char *text, why[2048], path[4096]; } Program;
enum { RTC_INVALID_OPTION = 5, RTC_COMPILATION = 6 };
const char *hiprtcGetErrorString(int code) {
    return code == RTC_COMPILATION ? "HIPRTC_ERROR_COMPILATION" : code ? "HIPRTC_ERROR_INVALID_OPTION" : "HIPRTC_SUCCESS";
}
int hiprtcCreateProgram(Program **out, const char *text, const char *name, int headers, const char **a, const char **b) {
    (void)name; (void)headers; (void)a; (void)b;
    *out = calloc(1, sizeof **out);
    (*out)->text = strdup(text);
    place_of(text, (*out)->path, sizeof (*out)->path);
    return 0;
}
int hiprtcCompileProgram(Program *p, int count, const char **options) {
    if (count != 1 || strcmp(options[0], "--offload-arch=" GENERATION) != 0) {
        snprintf(p->why, sizeof p->why, "error: not for this GPU\n");
        return RTC_INVALID_OPTION;
    }
    pthread_mutex_lock(&lock);
    configure();
    snprintf(p->why, sizeof p->why, "tonnage.hip:1:1: error: told to refuse\n");
    int code = compiles ? compile_text(p->text, p->path, p->why, sizeof p->why) : 1;
    pthread_mutex_unlock(&lock);
    return code ? RTC_COMPILATION : 0;
}
int hiprtcGetProgramLogSize(Program *p, size_t *out) { *out = strlen(p->why) + 1; return 0; }
int hiprtcGetProgramLog(Program *p, char *out) { strcpy(out, p->why); return 0; }
int hiprtcGetCodeSize(Program *p, size_t *out) { *out = strlen(p->path) + strlen(p->text) + 2; return 0; }
int hiprtcGetCode(Program *p, char *out) {
    strcpy(out, p->path);
    strcpy(out + strlen(out) + 1, p->text);
    return 0;
}
int hiprtcDestroyProgram(Program **p) { free((*p)->text); free(*p); *p = NULL; return 0; }

CALL(hipModuleLoadData, Module **out, const char *image) BODY(hipModuleLoadData, out, image)
static int hipModuleLoadData_inner(Module **out, const char *image) {
    NEEDS_CONTEXT;
    static const char *const kernels[] = {"tonnage_fill", "tonnage_verify", "tonnage_copy"};
    static const char *const dims[] = {"blockIdx", "threadIdx", "gridDim", "blockDim"};
    void *library = dlopen(image, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NOT_FOUND;
    Module *m = *out = calloc(1, sizeof *m);
    m->image = image;
    m->bytes = strlen(image) + 1;
    m->bytes += strlen(image + m->bytes) + 1;
    m->copy = memcpy(malloc(m->bytes), image, m->bytes);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        Kernel *k = &m->kernels[m->count];
        k->entry = (Entry)dlsym(library, kernels[i]);
        if (!k->entry) continue;
        strcpy(k->name, kernels[i]);
        k->parameters = parameters_of(image + strlen(image) + 1, k->name);
        for (int d = 0; d < 4; d++) k->dims[d] = dlsym(library, dims[d]);
        m->count++;
    }
    return 0;
}
