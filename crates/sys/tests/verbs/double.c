/* A double of libibverbs for registrations: one device that registers whatever it is asked to and writes down how. No
 * queue moves anything; all other calls succeed. It is compiled with double.map, which gives the calls their versions. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>

struct context {
	void *device;
	long (*ops[32])(void);
	int cmd_fd, async_fd;
	uint64_t rest[6];
	void *compat;
};
struct mr {
	void *context, *pd, *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

/* The last registration: offset, length, address for peers, file or -1, access; and registrations that are open. */
int64_t tonnage_double[6];
static char thing[64];
static void *devices[] = {thing, 0};

static long nothing(void) { return 0; }

void **ibv_get_device_list(int *count)
{
	*count = 1;
	return devices;
}

const char *ibv_get_device_name(void *device)
{
	return device == thing ? "double0" : 0;
}

struct context *ibv_open_device(void *device)
{
	struct context *context = calloc(1, sizeof *context);
	context->device = device;
	for (int i = 0; i < 32; i++)
		context->ops[i] = nothing;
	context->cmd_fd = context->async_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return context;
}

static struct mr *registered(uint64_t offset, size_t length, uint64_t address, int file, int access)
{
	static uint32_t keys = 7;
	struct mr *mr = calloc(1, sizeof *mr);
	int64_t asked[] = {offset, length, address, file, access};
	for (int i = 0; i < 5; i++)
		tonnage_double[i] = asked[i];
	tonnage_double[5]++;
	mr->lkey = keys++;
	mr->rkey = keys++;
	return mr;
}

struct mr *ibv_reg_mr(void *pd, void *address, size_t length, int access)
{
	return pd == thing ? registered(0, length, (uint64_t)address, -1, access) : 0;
}

/* The kernel wants offset and address to agree below a page. */
struct mr *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t length, uint64_t iova, int file, int access)
{
	if (pd != thing || (offset ^ iova) & 4095 || fcntl(file, F_GETFD) < 0)
		return 0;
	return registered(offset, length, iova, file, access);
}

int ibv_dereg_mr(struct mr *mr)
{
	tonnage_double[5]--;
	free(mr);
	return 0;
}

#define ZERO(name) long name(void) { return 0; }
#define THING(name) void *name(void) { return thing; }
ZERO(ibv_free_device_list) ZERO(ibv_close_device) ZERO(ibv_query_device) ZERO(ibv_query_port) ZERO(ibv_get_async_event)
ZERO(ibv_ack_async_event) THING(ibv_event_type_str) THING(ibv_alloc_pd) ZERO(ibv_dealloc_pd) THING(ibv_create_comp_channel)
ZERO(ibv_destroy_comp_channel) THING(ibv_create_cq) ZERO(ibv_destroy_cq) ZERO(ibv_get_cq_event) ZERO(ibv_ack_cq_events)
THING(ibv_create_qp) ZERO(ibv_modify_qp) ZERO(ibv_destroy_qp)
