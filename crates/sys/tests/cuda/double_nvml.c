/* A double of NVIDIA's management library for tests: what tonnage asks it, told as the file FILE.conf beside the library
 * FILE says, in lines of
 *
 *   gpu ADDRESS          a GPU, numbered from 0 in the order of the lines
 *   links A B N          N links from GPU A to GPU B, for each direction a line of its own
 *   switch A N           N links from GPU A to switches
 *   untold A N           N links from GPU A to nobody says what
 *   ones A N             N links from GPU A to what a guest does not see: an address of ones
 *   processor A N        N links from GPU A to a processor of the host
 *   refuse A N           N links of GPU A about which nothing is told
 *   kindless             nothing tells what kind of thing a link leads to
 *   lost A               GPU A is lost
 *   fails CODE           the library does not start
 *   c2c N MEGABYTES      N links of NVLink-C2C of each GPU, and the speed of each
 *   down A N             N links of GPU A that are down
 *   speed MEGABYTES      of each link
 *   refused STATUS       no GPU reaches another one, for the reason with this number
 *   slice A BYTES NAME   a slice of GPU A
 *
 * GPUs reach each other over NVLink where links or switches lead from the one to the other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NOT_INITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPUS_MAX = 8, LINKS_MAX = 18, LOST = 15 };
enum { TO_SWITCH = -1, TO_NOBODY = -2, IS_DOWN = -3, TO_ONES = -4, TO_PROCESSOR = -5, REFUSED = -6 };

typedef struct Gpu { char address[32], name[96]; int links[LINKS_MAX], count, slices[7], slice_count; unsigned long long bytes; } Gpu;
typedef struct { char legacy[16]; unsigned domain, bus, device, ids[2]; char address[32]; } PciInfo;
typedef struct { unsigned field, scope; long long timestamp, latency; unsigned kind; int code; union { unsigned one; double d; } value; } Field;
_Static_assert(sizeof(PciInfo) == 68 && sizeof(Field) == 40, "as in the header");

/* Slices stand behind the GPUs. */
static Gpu all[2 * GPUS_MAX];
static int gpus, slices, initialised, speed, refused, kindless, lost, fails, c2c, c2c_speed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(Gpu *gpu, int to, int count) {
    while (count-- > 0 && gpu->count < LINKS_MAX) gpu->links[gpu->count++] = to;
}

static int read_configuration(void) {
    Dl_info info;
    char path[4096], line[256], text[96];
    if (!dladdr((void *)read_configuration, &info)) return NOT_FOUND;
    snprintf(path, sizeof path, "%s.conf", info.dli_fname);
    FILE *file = fopen(path, "r");
    memset(all, 0, sizeof all);
    gpus = slices = speed = refused = kindless = fails = c2c = c2c_speed = 0;
    lost = -1;
    while (file && fgets(line, sizeof line, file)) {
        int a, b, count;
        unsigned long long bytes;
        if (sscanf(line, "gpu %31s", text) == 1) strcpy(all[gpus++].address, text);
        if (sscanf(line, "links %d %d %d", &a, &b, &count) == 3) add(&all[a], b, count);
        if (sscanf(line, "switch %d %d", &a, &count) == 2) add(&all[a], TO_SWITCH, count);
        if (sscanf(line, "untold %d %d", &a, &count) == 2) add(&all[a], TO_NOBODY, count);
        if (sscanf(line, "down %d %d", &a, &count) == 2) add(&all[a], IS_DOWN, count);
        if (sscanf(line, "ones %d %d", &a, &count) == 2) add(&all[a], TO_ONES, count);
        if (sscanf(line, "processor %d %d", &a, &count) == 2) add(&all[a], TO_PROCESSOR, count);
        if (sscanf(line, "refuse %d %d", &a, &count) == 2) add(&all[a], REFUSED, count);
        if (strncmp(line, "kindless", 8) == 0) kindless = 1;
        if (sscanf(line, "lost %d", &a) == 1) lost = a;
        if (sscanf(line, "fails %d", &a) == 1) fails = a;
        if (sscanf(line, "c2c %d %d", &a, &b) == 2) c2c = a, c2c_speed = b;
        if (sscanf(line, "speed %d", &a) == 1) speed = a;
        if (sscanf(line, "refused %d", &a) == 1) refused = a;
        if (sscanf(line, "slice %d %llu %95[^\n]", &a, &bytes, text) == 3) {
            Gpu *slice = &all[GPUS_MAX + slices];
            strcpy(slice->name, text);
            slice->bytes = bytes;
            all[a].slices[all[a].slice_count++] = slices++;
        }
    }
    if (file) fclose(file);
    return fails;
}
/* Threads may come in at once, as to the real one: the first of them reads, the others find what it read. */
int nvmlInit_v2(void) {
    pthread_mutex_lock(&lock);
    int code = initialised > 0 ? 0 : read_configuration();
    if (code == 0) initialised++;
    pthread_mutex_unlock(&lock);
    return code;
}
int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int code = initialised > 0 ? 0 : NOT_INITIALIZED;
    if (code == 0) initialised--;
    pthread_mutex_unlock(&lock);
    return code;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Gpu **out) {
    if (initialised < 1) return NOT_INITIALIZED;
    for (int i = 0; i < gpus; i++)
        if (strcasecmp(all[i].address, address) == 0) { *out = &all[i]; return 0; }
    return NOT_FOUND;
}
int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *out) {
    if (lost >= 0 && gpu == &all[lost]) return LOST;
    if (link >= (unsigned)gpu->count) return INVALID;
    if (gpu->links[link] == REFUSED) return NOT_SUPPORTED;
    *out = gpu->links[link] != IS_DOWN;
    return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Gpu *gpu, unsigned link, unsigned *out) {
    int to = gpu->links[link];
    if (kindless) return NOT_SUPPORTED;
    *out = to == TO_SWITCH ? 2 : to == TO_NOBODY ? 255 : to == TO_PROCESSOR ? 1 : 0;
    return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu *gpu, unsigned link, PciInfo *out) {
    int to = gpu->links[link];
    memset(out, to == TO_ONES ? 0xff : 0, sizeof *out);
    if (to == TO_ONES) return 0;
    if (to < 0) return NOT_SUPPORTED;
    return sscanf(all[to].address, "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3 ? 0 : INVALID;
}
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *fields) {
    (void)gpu;
    for (int i = 0; i < count; i++) {
        unsigned field = fields[i].field;
        int value = field == 90 ? speed : field == 170 ? c2c : field == 172 ? c2c_speed : 0;
        fields[i].code = value ? 0 : NOT_SUPPORTED;
        fields[i].kind = 1;
        fields[i].value.one = value;
    }
    return 0;
}
static int leads_on(int to) { return to == TO_SWITCH || to == TO_NOBODY || to == TO_ONES; }
static int leads(Gpu *from, Gpu *to) {
    int at_switch = 0;
    for (int i = 0; i < from->count; i++) {
        if (from->links[i] >= 0 && &all[from->links[i]] == to) return 1;
        at_switch |= leads_on(from->links[i]);
    }
    for (int i = 0; at_switch && i < to->count; i++)
        if (leads_on(to->links[i])) return 1;
    return 0;
}
int nvmlDeviceGetP2PStatus(Gpu *from, Gpu *to, unsigned capability, unsigned *out) {
    *out = refused ? refused : capability == 2 && !leads(from, to) ? 5 : 0;
    return 0;
}
int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *pending) {
    *now = *pending = gpu->slice_count > 0;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *out) { (void)gpu; *out = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **out) {
    if (index >= (unsigned)gpu->slice_count) return NOT_FOUND;
    *out = &all[GPUS_MAX + gpu->slices[index]];
    return 0;
}
int nvmlDeviceGetName(Gpu *gpu, char *out, unsigned room) { snprintf(out, room, "%s", gpu->name); return 0; }
int nvmlDeviceGetUUID(Gpu *gpu, char *out, unsigned room) {
    snprintf(out, room, "MIG-%d", (int)(gpu - all) - GPUS_MAX);
    return 0;
}
int nvmlDeviceGetMemoryInfo(Gpu *gpu, unsigned long long out[3]) {
    out[0] = gpu->bytes;
    out[1] = out[2] = 0;
    return 0;
}
