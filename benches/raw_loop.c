/* The least program that posts operations and reads their completions: what null_provider.c costs by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

static void must(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, fi_strerror(-status));
    exit(1);
}

/* CPU time, which other work on the machine does not lengthen. */
static double cpu_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

enum kind { WRITE, INJECT, READ };

struct loop {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_mr *mr;
    fi_addr_t peer;
};

/* An endpoint over `buffer` that speaks with itself. */
static struct loop open_loop(void *buffer, size_t bytes)
{
    struct fi_info *hints = fi_dupinfo(NULL), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct loop loop;
    char name[64];
    size_t name_bytes = sizeof(name);
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_DATA};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct iovec range = {buffer, bytes};
    struct fi_mr_attr mr_attr = {.mr_iov = &range, .iov_count = 1, .access = FI_WRITE | FI_REMOTE_WRITE};
    hints->ep_attr->type = FI_EP_RDM;
    must(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), "fi_getinfo");
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_endpoint(domain, info, &loop.ep, NULL), "fi_endpoint");
    must(fi_cq_open(domain, &cq_attr, &loop.cq, NULL), "fi_cq_open");
    must(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    must(fi_ep_bind(loop.ep, &loop.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(loop.ep), "fi_enable");
    must(fi_getname(&loop.ep->fid, name, &name_bytes), "fi_getname");
    must(fi_av_insert(av, name, 1, &loop.peer, 0, NULL), "fi_av_insert");
    must(fi_mr_regattr(domain, &mr_attr, 0, &loop.mr), "fi_mr_regattr");
    return loop;
}

static ssize_t post(const struct loop *loop, enum kind kind, char *at, uint64_t addr)
{
    void *desc = fi_mr_desc(loop->mr);
    uint64_t key = fi_mr_key(loop->mr);
    switch (kind) {
    case WRITE:
        return fi_write(loop->ep, at, 64, desc, loop->peer, addr, key, at);
    case INJECT:
        return fi_inject_write(loop->ep, at, 64, loop->peer, addr, key);
    default:
        return fi_read(loop->ep, at, 64, desc, loop->peer, addr, key, at);
    }
}

/* CPU time of one operation with a sliding window, and nothing but that. What is injected is complete at once; the
 * queue is read all the same, because that is what makes progress. */
static double run(const struct loop *loop, enum kind kind, char *buffer, unsigned long total, unsigned long window)
{
    struct fi_cq_data_entry done[64];
    unsigned long posted = 0, completed = 0;
    double start_ns = cpu_now_ns();
    while (completed < total) {
        while (posted < total && posted - completed < window) {
            unsigned long offset = posted % 64 * 64;
            ssize_t status = post(loop, kind, buffer + offset, offset);
            if (status == -FI_EAGAIN)
                break;
            must((int)status, "posting");
            posted++;
        }
        ssize_t found = fi_cq_read(loop->cq, done, 64);
        if (found > 0)
            completed += (unsigned long)found;
        else if (found != -FI_EAGAIN)
            must((int)found, "fi_cq_read");
        if (kind == INJECT)
            completed = posted;
    }
    return (cpu_now_ns() - start_ns) / (double)total;
}

/* raw_loop write|inject|read OPERATIONS WINDOW: prints nanoseconds for one operation. */
int main(int count, char **words)
{
    static char buffer[64 * 64];
    static const char *const names[] = {[WRITE] = "write", [INJECT] = "inject", [READ] = "read"};
    int kind = WRITE;
    unsigned long total = count == 4 ? strtoul(words[2], NULL, 10) : 0;
    unsigned long window = count == 4 ? strtoul(words[3], NULL, 10) : 0;
    while (count == 4 && kind <= READ && strcmp(words[1], names[kind]) != 0)
        kind++;
    if (kind > READ || total == 0 || window == 0)
        return fprintf(stderr, "usage: raw_loop write|inject|read OPERATIONS WINDOW\n"), 2;
    struct loop loop = open_loop(buffer, sizeof(buffer));
    printf("%.3f\n", run(&loop, kind, buffer, total, window));
    return 0;
}
