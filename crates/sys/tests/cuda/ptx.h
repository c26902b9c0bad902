/* Carries out kernels from their PTX text, one thread after the other: as much of the language as those of tonnage use.
 * What it does not know it refuses with the line, so that nothing is skipped over.
 *
 * Semantics are those of the PTX ISA: registers are 64 or 32 bits wide, results wrap at the width of the instruction,
 * shifts by the width or more give 0 (shift amounts are 32-bit), ld.u8 extends with zeros. Threads may run in any order,
 * since the kernels share nothing but red. */
#define KERNELS_MAX 4
#define PARAMETERS_MAX 8
#define REGISTERS_MAX 32
#define LINES_MAX 160

typedef enum { ADD, SUB, MUL_LO, MUL_WIDE, AND, OR, XOR, SHL, SHR, MIN, MAX, MOV, CVT, SETP_EQ, SETP_NE, SETP_LT, SETP_GE,
               BRA, LD_PARAM, LD, ST, RED_MIN, RED_MAX, RET } What;
typedef struct { int reg, special; uint64_t value; } Operand;
typedef struct { What what; int bits, guard, target; Operand o[3]; } Instruction;
typedef struct { char name[64]; int parameters, count; Instruction code[LINES_MAX]; } Kernel;
typedef struct { int count; Kernel kernels[KERNELS_MAX]; } Module;

static const char *const specials[] = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x"};

/* Names of one kernel while it is read. */
typedef struct {
    char registers[REGISTERS_MAX][24], labels[16][24], parameters[PARAMETERS_MAX][32];
    int widths[REGISTERS_MAX], places[16], register_count, label_count, parameter_count;
    char wanted[LINES_MAX][24];
} Names;

static int index_of(const char *name, const char *table, int count, int width) {
    for (int i = 0; i < count; i++)
        if (strcmp(name, table + i * width) == 0) return i;
    return -1;
}

static int operand(Names *n, char *text, Operand *out) {
    *out = (Operand){.reg = -1, .special = -1};
    /* An address is a register, or a register and a number. */
    if (*text == '[') {
        text++;
        text[strcspn(text, "]")] = 0;
        char *plus = strchr(text, '+');
        if (plus) { *plus = 0; out->value = strtoull(plus + 1, NULL, 0); }
        int parameter = index_of(text, *n->parameters, n->parameter_count, 32);
        if (parameter >= 0) { out->value = parameter; return 1; }
    }
    if (*text == '%') {
        for (int i = 0; i < 4; i++)
            if (strcmp(text, specials[i]) == 0) { out->special = i; return 1; }
        out->reg = index_of(text, *n->registers, n->register_count, 24);
        return out->reg >= 0;
    }
    char *end;
    out->value = strtoull(text, &end, 0);
    return end != text && !*end;
}

static const struct { const char *name; What what; int bits, operands; } opcodes[] = {
    {"add.u64", ADD, 64, 3}, {"add.u32", ADD, 32, 3}, {"sub.u64", SUB, 64, 3}, {"sub.u32", SUB, 32, 3},
    {"mul.lo.u64", MUL_LO, 64, 3}, {"mul.wide.u32", MUL_WIDE, 32, 3}, {"and.b64", AND, 64, 3}, {"and.b32", AND, 32, 3},
    {"or.b64", OR, 64, 3}, {"xor.b64", XOR, 64, 3}, {"shl.b64", SHL, 64, 3}, {"shr.u64", SHR, 64, 3},
    {"min.u64", MIN, 64, 3}, {"max.u64", MAX, 64, 3}, {"mov.u32", MOV, 32, 2}, {"cvt.u32.u64", CVT, 32, 2},
    {"cvt.u64.u32", CVT, 64, 2}, {"setp.eq.u64", SETP_EQ, 64, 3}, {"setp.eq.u32", SETP_EQ, 32, 3},
    {"setp.ne.u64", SETP_NE, 64, 3}, {"setp.lt.u64", SETP_LT, 64, 3}, {"setp.ge.u64", SETP_GE, 64, 3}, {"bra", BRA, 0, 1},
    {"ld.param.u64", LD_PARAM, 64, 2}, {"ld.global.u64", LD, 64, 2}, {"ld.global.u8", LD, 8, 2},
    {"st.global.u64", ST, 64, 2}, {"st.global.u8", ST, 8, 2}, {"red.global.min.u64", RED_MIN, 64, 2},
    {"red.global.max.u64", RED_MAX, 64, 2}, {"ret", RET, 0, 0},
};

/* The width that an operand's register has to have; predicates have 1. */
static int fits(const Names *n, const Operand *o, int width) {
    return o->reg < 0 || n->widths[o->reg] == width;
}

/* The language refuses registers of another width than the instruction's; only ld and st take wider ones. */
static int typed(const Names *n, const Instruction *i) {
    int source = i->what == MUL_WIDE ? 32 : i->bits;
    switch (i->what) {
    case BRA: case RET: return 1;
    case SETP_EQ: case SETP_NE: case SETP_LT: case SETP_GE:
        return fits(n, &i->o[0], 1) && fits(n, &i->o[1], source) && fits(n, &i->o[2], source);
    case SHL: case SHR: return fits(n, &i->o[0], 64) && fits(n, &i->o[1], 64) && fits(n, &i->o[2], 32);
    case CVT: return fits(n, &i->o[0], i->bits) && fits(n, &i->o[1], 96 - i->bits);
    case LD: return fits(n, &i->o[0], i->bits == 8 ? 32 : 64) && fits(n, &i->o[1], 64);
    case ST: return fits(n, &i->o[0], 64) && fits(n, &i->o[1], i->bits == 8 ? 32 : 64);
    case RED_MIN: case RED_MAX: return fits(n, &i->o[0], 64) && fits(n, &i->o[1], 64);
    default:
        return fits(n, &i->o[0], i->what == MUL_WIDE ? 64 : i->bits) && fits(n, &i->o[1], source) && fits(n, &i->o[2], source);
    }
}

static int instruction(Names *n, Kernel *k, char *line) {
    if (k->count == LINES_MAX) return 0;
    Instruction *i = &k->code[k->count];
    *i = (Instruction){.guard = -1, .o = {{-1, -1, 0}, {-1, -1, 0}, {-1, -1, 0}}};
    char *word = strtok(line, " \t,;");
    if (*word == '@') {
        i->guard = index_of(word + 1, *n->registers, n->register_count, 24);
        if (i->guard < 0 || n->widths[i->guard] != 1) return 0;
        word = strtok(NULL, " \t,;");
    }
    for (size_t at = 0; word && at < sizeof opcodes / sizeof *opcodes; at++) {
        if (strcmp(word, opcodes[at].name)) continue;
        i->what = opcodes[at].what;
        i->bits = opcodes[at].bits;
        for (int o = 0; o < opcodes[at].operands; o++) {
            char *text = strtok(NULL, " \t,;");
            if (!text) return 0;
            if (i->what == BRA) snprintf(n->wanted[k->count], 24, "%s", text);
            else if (!operand(n, text, &i->o[o])) return 0;
        }
        k->count++;
        return !strtok(NULL, " \t,;") && typed(n, i);
    }
    return 0;
}

static int declare(Names *n, char *line) {
    int width = strstr(line, ".pred") ? 1 : strstr(line, ".b32") ? 32 : strstr(line, ".b64") ? 64 : 0;
    strtok(line, " \t,;");
    strtok(NULL, " \t,;");
    for (char *word; (word = strtok(NULL, " \t,;"));) {
        if (n->register_count == REGISTERS_MAX || !width || *word != '%') return 0;
        n->widths[n->register_count] = width;
        snprintf(n->registers[n->register_count++], 24, "%s", word);
    }
    return 1;
}

static int line_of(Names *n, Kernel *k, char *line) {
    size_t length = strlen(line);
    if (strncmp(line, ".reg", 4) == 0) return declare(n, line);
    if (strncmp(line, ".param .u64 ", 12) == 0) {
        line[strcspn(line, ",")] = 0;
        if (n->parameter_count == PARAMETERS_MAX) return 0;
        snprintf(n->parameters[n->parameter_count++], 32, "%s", line + 12);
        return 1;
    }
    if (line[length - 1] == ':') {
        line[length - 1] = 0;
        if (n->label_count == 16) return 0;
        n->places[n->label_count] = k->count;
        snprintf(n->labels[n->label_count++], 24, "%s", line);
        return 1;
    }
    return line[length - 1] == ';' && instruction(n, k, line);
}

static int finish(Names *n, Kernel *k) {
    k->parameters = n->parameter_count;
    for (int i = 0; i < k->count; i++)
        if (k->code[i].what == BRA) {
            int label = index_of(n->wanted[i], *n->labels, n->label_count, 24);
            if (label < 0) return 0;
            k->code[i].target = n->places[label];
        }
    return k->count > 0 && k->code[k->count - 1].what == RET;
}

static Module *compile(const char *image, char *why, size_t room) {
    Module *m = calloc(1, sizeof *m);
    Names n = {0};
    Kernel *k = NULL;
    int number = 0;
    while (*image) {
        char line[256];
        size_t length = strcspn(image, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, image);
        image += length + (image[length] == '\n');
        number++;
        char *comment = strstr(line, "//"), *text = line + strspn(line, " \t");
        if (comment) *comment = 0;
        for (size_t end = strlen(text); end && strchr(" \t", text[end - 1]);) text[--end] = 0;
        static const char *const heads[] = {"", "(", ")", "{", ".version 6.0", ".target sm_50", ".address_size 64"};
        int known = 0;
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) known |= strcmp(text, heads[i]) == 0;
        if (known) continue;
        if (strncmp(text, ".visible .entry ", 16) == 0 && m->count < KERNELS_MAX) {
            memset(&n, 0, sizeof n);
            k = &m->kernels[m->count++];
            snprintf(k->name, sizeof k->name, "%.*s", (int)strcspn(text + 16, "("), text + 16);
        } else if (!k || !(strcmp(text, "}") == 0 ? finish(&n, k) : line_of(&n, k, text))) {
            snprintf(why, room, "line %d; error : not understood", number);
            free(m);
            return NULL;
        }
    }
    return m;
}

static inline uint64_t value_of(const Operand *o, const uint64_t *r, const uint64_t *special) {
    if (o->reg >= 0) return r[o->reg] + o->value;
    return o->special >= 0 ? special[o->special] : o->value;
}

/* The allocations that were reached last, which mostly are the next ones too. None is given back during a launch. A
 * kernel reaches memory of its own GPU, of those that its context may reach, and pinned memory. */
static Allocation near[2];

static uint8_t *reach_near(uint64_t address, uint64_t bytes, int gpu) {
    for (int i = -2; i < 2 * ROOM; i++) {
        const Allocation *a = i < 0 ? &near[i + 2] : i < ROOM ? &allocations[i] : &pinned[i - ROOM];
        uint64_t start = i < ROOM ? a->address : a->address | FOR_GPUS;
        if (!a->host || address < start || address + bytes > start + a->bytes) continue;
        if (i >= 0 && i < ROOM && !may_reach(a, gpu)) return NULL;
        if (i >= 0) { near[0] = near[1]; near[1] = *a; near[1].address = start; }
        return a->host + (address - start);
    }
    return NULL;
}

static int one_thread(const Kernel *k, const uint64_t *arguments, const uint64_t *special, int gpu, int wrong) {
    uint64_t r[REGISTERS_MAX] = {0};
    for (int at = 0;;) {
        const Instruction *i = &k->code[at++];
        if (i->guard >= 0 && !r[i->guard]) continue;
        uint64_t a = value_of(&i->o[1], r, special), b = value_of(&i->o[2], r, special), d;
        switch (i->what) {
        case ADD: d = a + b; break;
        case SUB: d = a - b; break;
        case MUL_LO: d = a * b; if (wrong && (d & 4095) == 77) d ^= 1; break;
        case MUL_WIDE: r[i->o[0].reg] = (uint64_t)(uint32_t)a * (uint32_t)b; continue;
        case AND: d = a & b; break;
        case OR: d = a | b; break;
        case XOR: d = a ^ b; break;
        case SHL: b = (uint32_t)b; d = b >= 64 ? 0 : a << b; break;
        case SHR: b = (uint32_t)b; d = b >= 64 ? 0 : a >> b; break;
        case MIN: d = a < b ? a : b; break;
        case MAX: d = a > b ? a : b; break;
        case MOV: case CVT: d = a; break;
        case SETP_EQ: r[i->o[0].reg] = a == b; continue;
        case SETP_NE: r[i->o[0].reg] = a != b; continue;
        case SETP_LT: r[i->o[0].reg] = a < b; continue;
        case SETP_GE: r[i->o[0].reg] = a >= b; continue;
        case BRA: at = i->target; continue;
        case LD_PARAM: d = arguments[i->o[1].value]; break;
        case RET: return 0;
        default: {
            uint64_t bytes = i->bits / 8, address = i->what == LD ? a : value_of(&i->o[0], r, special);
            uint8_t *there = address % bytes ? NULL : reach_near(address, bytes, gpu);
            if (!there) return ILLEGAL_ADDRESS;
            uint64_t word = 0;
            memcpy(&word, there, bytes);
            if (i->what == LD) { r[i->o[0].reg] = word; continue; }
            if (i->what == RED_MIN) a = word < a ? word : a;
            if (i->what == RED_MAX) a = word > a ? word : a;
            memcpy(there, &a, bytes);
            continue;
        }
        }
        r[i->o[0].reg] = i->bits == 32 ? (uint32_t)d : d;
    }
}

static int run(const Kernel *k, const uint64_t *arguments, unsigned blocks, unsigned threads, int gpu, int wrong) {
    memset(near, 0, sizeof near);
    for (unsigned block = 0; block < blocks; block++)
        for (unsigned thread = 0; thread < threads; thread++) {
            uint64_t special[] = {thread, threads, block, blocks};
            int code = one_thread(k, arguments, special, gpu, wrong);
            if (code) return code;
        }
    return 0;
}
