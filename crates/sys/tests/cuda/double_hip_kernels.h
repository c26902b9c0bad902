/* Carries out kernels from their HIP text, one thread after the other: the C compiler of the machine takes the text with
 * the few words of HIP that it uses, so that no second version of the kernels stands here. Pages of the GPU are
 * addressable while a kernel runs, and at no other time.
 *
 * What it compiled is kept beside the library, so that ranks and modules of one test share it. */
#define KERNELS_MAX 4
#define PARAMETERS_MAX 8

typedef struct { unsigned x; } Dim;
typedef void (*Entry)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef struct { char name[64]; int parameters; Entry entry; Dim *dims[4]; } Kernel;
/* The runtime makes no copy of the code object: it has to stay as it is until the module is unloaded. */
typedef struct { int count; Kernel kernels[KERNELS_MAX]; const char *image; char *copy; size_t bytes; } Module;
static void expect_image(const Module *m) {
    if (memcmp(m->image, m->copy, m->bytes) == 0) return;
    fprintf(stderr, "double: a code object was changed or given back before its module was unloaded\n");
    abort();
}

/* In the place of hiprtc's own header. */
static const char prelude[] =
    "#define __global__\n#define __device__\n"
    "struct dim { unsigned x; } blockIdx, threadIdx, gridDim, blockDim;\n"
    "static void atomicMin(unsigned long long *at, unsigned long long x) { if (x < *at) *at = x; }\n"
    "static void atomicMax(unsigned long long *at, unsigned long long x) { if (x > *at) *at = x; }\n"
    "static void (*const used[])(unsigned long long *, unsigned long long) __attribute__((unused)) = "
    "{atomicMin, atomicMax};\n#line 1 \"tonnage.hip\"\n";

/* The file that a text is compiled to; `made` says whether it is there already. */
static void place_of(const char *text, char *path, size_t room) {
    Dl_info info;
    uint64_t hash = 0xcbf29ce484222325;
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001b3;
    dladdr((void *)configure, &info);
    snprintf(path, room, "%s.%016llx.so", info.dli_fname, (unsigned long long)hash);
}

/* Compiles a text; 0 for success, else what the compiler said is in `why`. */
static int compile_text(const char *text, const char *path, char *why, size_t room) {
    char own[4400], command[9000];
    if (access(path, R_OK) == 0) return 0;
    snprintf(own, sizeof own, "%s.%d", path, getpid());
    snprintf(command, sizeof command, "cc -O1 -w -shared -fPIC -x c -o '%s' - 2>'%s.log'", own, own);
    FILE *compiler = popen(command, "w");
    if (!compiler) { snprintf(why, room, "no compiler"); return 1; }
    fputs(prelude, compiler);
    fputs(text, compiler);
    int code = pclose(compiler);
    snprintf(command, sizeof command, "%s.log", own);
    FILE *log = fopen(command, "r");
    size_t read = log ? fread(why, 1, room - 1, log) : 0;
    why[read] = 0;
    if (log) fclose(log);
    unlink(command);
    return code || rename(own, path);
}

/* Parameters of a kernel, from its text. */
static int parameters_of(const char *text, const char *name) {
    char head[96];
    snprintf(head, sizeof head, "void %s(", name);
    const char *at = strstr(text, head);
    if (!at) return 0;
    int count = 1;
    for (; *at && *at != ')'; at++) count += *at == ',';
    return count;
}

/* Memory of a GPU that a kernel of `gpu` reaches. */
static int reachable(const Allocation *a, int gpu) { return a->host && may_reach(a, gpu); }

static void open_pages(int gpu, int protection) {
    for (int i = 0; i < ROOM; i++)
        if (reachable(&allocations[i], gpu))
            mprotect((void *)allocations[i].address, MAPPED(allocations[i].bytes), protection);
}

/* An argument as the kernel addresses it; whatever is no address stays as it is. The address that the CPU has of pinned
 * memory is none of a kernel's. */
static int translated(uint64_t *argument, int gpu) {
    for (int i = 0; i < ROOM; i++) {
        const Allocation *a = &allocations[i], *p = &pinned[i];
        if (a->host && *argument - a->address < a->bytes) return reachable(a, gpu);
        if (p->host && *argument - p->address < p->bytes) return 0;
        if (p->host && *argument - (p->address | FOR_GPUS) < p->bytes) { *argument &= ~FOR_GPUS; return 1; }
    }
    return 1;
}

static int run(const Kernel *k, const uint64_t *arguments, unsigned blocks, unsigned threads, int gpu, int wrong) {
    uint64_t a[PARAMETERS_MAX] = {0};
    for (int i = 0; i < k->parameters; i++) {
        a[i] = arguments[i];
        if (!translated(&a[i], gpu)) return ILLEGAL_ADDRESS;
    }
    open_pages(gpu, PROT_READ | PROT_WRITE);
    k->dims[2]->x = blocks;
    k->dims[3]->x = threads;
    for (unsigned block = 0; block < blocks; block++)
        for (unsigned thread = 0; thread < threads; thread++) {
            k->dims[0]->x = block;
            k->dims[1]->x = thread;
            k->entry(a[0], a[1], a[2], a[3], a[4], a[5]);
        }
    if (wrong) *(uint8_t *)a[0] ^= 1;
    open_pages(gpu, PROT_NONE);
    return 0;
}
