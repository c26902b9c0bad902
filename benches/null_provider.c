/* A libfabric with one provider that moves nothing: every operation is complete as soon as it is posted.
 *
 * What lives here: that library. The least program that uses it is raw_loop.c. engine_cost.py builds both against
 * libfabric's own headers, runs tonnage's engine and the least program over the same library, and calls the difference
 * what the engine costs. Nothing of this is part of tonnage.
 *
 * The provider takes whatever name the hints ask for, so that the engine treats it as it treats that one. It answers
 * like shm: ordered, immediates of 8 bytes, virtual addresses, keys of its own. Only writes of up to MOVED_BYTES do
 * arrive, because ranks greet each other by one before anything is measured.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* Completions that can wait; more than any engine keeps in flight, and a power of two. */
#define RING 65536
#define DEPTH 1024
#define INJECT_BYTES 4096
#define MOVED_BYTES 8
/* An address is the process, written like this; in an address vector it is the number alone. */
#define ADDRESS "fi_shm://%d:0"
#define ADDRESS_BYTES 32

struct null_ep {
    struct fid_ep fid;
    struct null_cq *cq;
    int selective;
};

struct null_cq {
    struct fid_cq fid;
    unsigned head, tail;
    struct fi_cq_data_entry ring[RING];
};

static int null_close(struct fid *fid)
{
    free(fid);
    return 0;
}

static int null_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    if (fid->fclass == FI_CLASS_EP && other->fclass == FI_CLASS_CQ && (flags & FI_TRANSMIT)) {
        struct null_ep *ep = (struct null_ep *)fid;
        ep->cq = (struct null_cq *)other;
        ep->selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    }
    return 0;
}

static int null_control(struct fid *fid, int command, void *argument)
{
    (void)fid, (void)argument;
    return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops fid_ops = {
    .size = sizeof(struct fi_ops), .close = null_close, .bind = null_bind, .control = null_control,
};

static void *new_fid(size_t bytes, size_t fclass, void *context)
{
    struct fid *fid = calloc(1, bytes);
    if (fid)
        *fid = (struct fid){.fclass = fclass, .context = context, .ops = &fid_ops};
    return fid;
}

/* Notes a completion, as a provider would that has copied the bytes at once. */
static ssize_t complete(struct fid_ep *fid, void *context, uint64_t kind, uint64_t flags)
{
    struct null_ep *ep = (struct null_ep *)fid;
    struct null_cq *cq = ep->cq;
    if (ep->selective && !(flags & FI_COMPLETION))
        return 0;
    if (cq->head - cq->tail == RING)
        return -FI_EAGAIN;
    cq->ring[cq->head++ % RING] = (struct fi_cq_data_entry){.op_context = context, .flags = kind};
    return 0;
}

/* Puts a short write into the memory of the process that it is for. */
static void move(const void *buf, size_t len, fi_addr_t to, uint64_t addr)
{
    struct iovec local = {(void *)buf, len}, remote = {(void *)(uintptr_t)addr, len};
    if (len > MOVED_BYTES || process_vm_writev((pid_t)to, &local, 1, &remote, 1, 0) == (ssize_t)len)
        return;
    perror("null_provider: process_vm_writev");
    exit(1);
}

static ssize_t null_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr,
                         uint64_t key, void *context)
{
    (void)buf, (void)len, (void)desc, (void)from, (void)addr, (void)key;
    return complete(ep, context, FI_RMA | FI_READ, FI_COMPLETION);
}

static ssize_t null_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr,
                          uint64_t key, void *context)
{
    (void)desc, (void)key;
    move(buf, len, to, addr);
    return complete(ep, context, FI_RMA | FI_WRITE, FI_COMPLETION);
}

static ssize_t null_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                              uint64_t addr, uint64_t key, void *context)
{
    (void)data;
    return null_write(ep, buf, len, desc, to, addr, key, context);
}

static ssize_t null_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    return complete(ep, msg->context, FI_RMA | FI_READ, flags);
}

static ssize_t null_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    move(msg->msg_iov->iov_base, msg->msg_iov->iov_len, msg->addr, msg->rma_iov->addr);
    return complete(ep, msg->context, FI_RMA | FI_WRITE, flags);
}

/* Injected operations complete without a word, as the interface says. */
static ssize_t null_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key)
{
    (void)ep, (void)key;
    move(buf, len, to, addr);
    return 0;
}

static ssize_t null_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to,
                               uint64_t addr, uint64_t key)
{
    (void)data;
    return null_inject(ep, buf, len, to, addr, key);
}

static struct fi_ops_rma rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = null_read,
    .readmsg = null_readmsg,
    .write = null_write,
    .writemsg = null_writemsg,
    .inject = null_inject,
    .writedata = null_writedata,
    .injectdata = null_injectdata,
};

/* Receives wait for ever, because nothing ever comes. */
static ssize_t null_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)from, (void)context;
    return 0;
}

static ssize_t null_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
    (void)buf, (void)len, (void)desc, (void)to;
    return complete(ep, context, FI_MSG | FI_SEND, FI_COMPLETION);
}

static ssize_t null_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    return complete(ep, msg->context, FI_MSG | FI_SEND, flags);
}

static struct fi_ops_msg msg_ops = {
    .size = sizeof(struct fi_ops_msg), .recv = null_recv, .send = null_send, .sendmsg = null_sendmsg,
};

static int null_getname(fid_t fid, void *addr, size_t *bytes)
{
    size_t room = *bytes;
    (void)fid;
    *bytes = ADDRESS_BYTES;
    if (room < ADDRESS_BYTES)
        return -FI_ETOOSMALL;
    memset(addr, 0, ADDRESS_BYTES);
    snprintf(addr, ADDRESS_BYTES, ADDRESS, (int)getpid());
    return 0;
}

static struct fi_ops_cm cm_ops = {.size = sizeof(struct fi_ops_cm), .getname = null_getname};

static int null_getopt(fid_t fid, int level, int name, void *value, size_t *bytes)
{
    (void)fid, (void)level, (void)name, (void)value, (void)bytes;
    return -FI_ENOPROTOOPT;
}

static int null_setopt(fid_t fid, int level, int name, const void *value, size_t bytes)
{
    (void)fid, (void)level, (void)name, (void)value, (void)bytes;
    return -FI_ENOPROTOOPT;
}

static struct fi_ops_ep ep_ops = {.size = sizeof(struct fi_ops_ep), .getopt = null_getopt, .setopt = null_setopt};

static ssize_t null_cq_read(struct fid_cq *fid, void *buf, size_t count)
{
    struct null_cq *cq = (struct null_cq *)fid;
    struct fi_cq_data_entry *entries = buf;
    size_t found = 0;
    while (found < count && cq->tail != cq->head)
        entries[found++] = cq->ring[cq->tail++ % RING];
    return found ? (ssize_t)found : -FI_EAGAIN;
}

static ssize_t null_cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *from)
{
    ssize_t found = null_cq_read(fid, buf, count);
    for (ssize_t entry = 0; entry < found; entry++)
        from[entry] = 0;
    return found;
}

static ssize_t null_cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
    (void)fid, (void)entry, (void)flags;
    return -FI_EAGAIN;
}

static struct fi_ops_cq cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = null_cq_read,
    .readfrom = null_cq_readfrom,
    .readerr = null_cq_readerr,
};

static int null_av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags,
                          void *context)
{
    (void)av, (void)flags, (void)context;
    for (size_t index = 0; index < count; index++) {
        int process;
        if (sscanf((const char *)addr + index * ADDRESS_BYTES, ADDRESS, &process) != 1)
            return -FI_EINVAL;
        fi_addr[index] = (fi_addr_t)process;
    }
    return (int)count;
}

static struct fi_ops_av av_ops = {.size = sizeof(struct fi_ops_av), .insert = null_av_insert};

static int null_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
    (void)domain, (void)attr;
    *av = new_fid(sizeof(struct fid_av), FI_CLASS_AV, context);
    if (!*av)
        return -FI_ENOMEM;
    (*av)->ops = &av_ops;
    return 0;
}

static int null_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
    (void)domain;
    /* Entries of another format would be copied into the wrong places. */
    if (attr->format != FI_CQ_FORMAT_DATA)
        return -FI_ENOSYS;
    *cq = new_fid(sizeof(struct null_cq), FI_CLASS_CQ, context);
    if (!*cq)
        return -FI_ENOMEM;
    (*cq)->ops = &cq_ops;
    return 0;
}

static int null_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
    (void)domain, (void)info;
    *ep = new_fid(sizeof(struct null_ep), FI_CLASS_EP, context);
    if (!*ep)
        return -FI_ENOMEM;
    (*ep)->ops = &ep_ops;
    (*ep)->cm = &cm_ops;
    (*ep)->msg = &msg_ops;
    (*ep)->rma = &rma_ops;
    return 0;
}

static struct fi_ops_domain domain_ops = {
    .size = sizeof(struct fi_ops_domain), .av_open = null_av_open, .cq_open = null_cq_open, .endpoint = null_endpoint,
};

static int null_mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr)
{
    (void)fid, (void)flags;
    *mr = new_fid(sizeof(struct fid_mr), FI_CLASS_MR, attr->context);
    if (!*mr)
        return -FI_ENOMEM;
    (*mr)->key = 1;
    return 0;
}

static struct fi_ops_mr mr_ops = {.size = sizeof(struct fi_ops_mr), .regattr = null_mr_regattr};

static int null_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
    (void)fabric, (void)info;
    *domain = new_fid(sizeof(struct fid_domain), FI_CLASS_DOMAIN, context);
    if (!*domain)
        return -FI_ENOMEM;
    (*domain)->ops = &domain_ops;
    (*domain)->mr = &mr_ops;
    return 0;
}

static struct fi_ops_fabric fabric_ops = {.size = sizeof(struct fi_ops_fabric), .domain = null_domain};

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    *fabric = new_fid(sizeof(struct fid_fabric), FI_CLASS_FABRIC, context);
    if (!*fabric)
        return -FI_ENOMEM;
    (*fabric)->ops = &fabric_ops;
    (*fabric)->api_version = attr->api_version;
    return 0;
}

static char *copy_name(const char *name, const char *otherwise)
{
    return strdup(name ? name : otherwise);
}

/* A copy of `from` with memory of its own, or empty hints without it. Names stay NULL where they were. */
struct fi_info *fi_dupinfo(const struct fi_info *from)
{
    struct fi_info *info = calloc(1, sizeof(*info));
    info->tx_attr = calloc(1, sizeof(*info->tx_attr));
    info->rx_attr = calloc(1, sizeof(*info->rx_attr));
    info->ep_attr = calloc(1, sizeof(*info->ep_attr));
    info->domain_attr = calloc(1, sizeof(*info->domain_attr));
    info->fabric_attr = calloc(1, sizeof(*info->fabric_attr));
    if (!from)
        return info;
    info->caps = from->caps, info->mode = from->mode, info->addr_format = from->addr_format;
    if (from->tx_attr)
        *info->tx_attr = *from->tx_attr;
    if (from->rx_attr)
        *info->rx_attr = *from->rx_attr;
    if (from->ep_attr)
        *info->ep_attr = *from->ep_attr;
    if (from->domain_attr) {
        /* Of an older caller's struct only what was there in 1.3 may be read: up to and with `ep_cnt`. */
        memcpy(info->domain_attr, from->domain_attr, offsetof(struct fi_domain_attr, ep_cnt) + sizeof(size_t));
        info->domain_attr->name = from->domain_attr->name ? strdup(from->domain_attr->name) : NULL;
    }
    if (from->fabric_attr) {
        *info->fabric_attr = *from->fabric_attr;
        info->fabric_attr->name = from->fabric_attr->name ? strdup(from->fabric_attr->name) : NULL;
        info->fabric_attr->prov_name = from->fabric_attr->prov_name ? strdup(from->fabric_attr->prov_name) : NULL;
    }
    if (from->src_addr) {
        info->src_addrlen = from->src_addrlen;
        info->src_addr = memcpy(malloc(from->src_addrlen), from->src_addr, from->src_addrlen);
    }
    return info;
}

void fi_freeinfo(struct fi_info *info)
{
    while (info) {
        struct fi_info *next = info->next;
        free(info->src_addr);
        free(info->domain_attr->name);
        free(info->fabric_attr->name);
        free(info->fabric_attr->prov_name);
        free(info->tx_attr), free(info->rx_attr), free(info->ep_attr), free(info->domain_attr), free(info->fabric_attr);
        free(info);
        info = next;
    }
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **found)
{
    const char *wanted = hints && hints->fabric_attr ? hints->fabric_attr->prov_name : NULL;
    struct fi_info *info = fi_dupinfo(hints);
    (void)node, (void)service, (void)flags;
    info->caps |= FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    info->mode = 0;
    info->addr_format = FI_ADDR_STR;
    free(info->src_addr);
    info->src_addrlen = ADDRESS_BYTES, info->src_addr = calloc(1, ADDRESS_BYTES);
    snprintf(info->src_addr, ADDRESS_BYTES, ADDRESS, (int)getpid());
    info->tx_attr->inject_size = INJECT_BYTES, info->tx_attr->size = DEPTH;
    info->tx_attr->iov_limit = info->tx_attr->rma_iov_limit = 4;
    info->tx_attr->mode = info->rx_attr->mode = 0;
    info->rx_attr->size = DEPTH, info->rx_attr->iov_limit = 4;
    info->ep_attr->type = FI_EP_RDM, info->ep_attr->max_msg_size = SIZE_MAX;
    info->domain_attr->mr_mode &= FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    info->domain_attr->mr_key_size = info->domain_attr->cq_data_size = 8;
    info->domain_attr->cq_cnt = info->domain_attr->ep_cnt = 1024;
    info->domain_attr->control_progress = info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    if (!info->domain_attr->threading)
        info->domain_attr->threading = FI_THREAD_DOMAIN;
    if (!info->domain_attr->name)
        info->domain_attr->name = copy_name(wanted, "null");
    if (!info->fabric_attr->name)
        info->fabric_attr->name = copy_name(wanted, "null");
    if (!info->fabric_attr->prov_name)
        info->fabric_attr->prov_name = copy_name(wanted, "null");
    info->fabric_attr->prov_version = FI_VERSION(1, 0), info->fabric_attr->api_version = version;
    *found = info;
    return 0;
}

uint32_t fi_version(void)
{
    return FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

const char *fi_strerror(int error)
{
    return error == FI_EAVAIL ? "an error is available" : strerror(error);
}
