// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Sessions: making and ending them. */

#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/nsproxy.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include "internal.h"

/* Of the list below, which devices join and leave. */
DEFINE_MUTEX(tkr_devices_lock);
LIST_HEAD(tkr_devices);

struct tkr_session *tkr_session_new(void)
{
	struct tkr_session *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);

	if (!s)
		return NULL;
	kref_init(&s->ref);
	mutex_init(&s->lock);
	INIT_LIST_HEAD(&s->entry);
	init_waitqueue_head(&s->idle);
	return s;
}

static void tkr_session_free(struct kref *ref)
{
	kfree(container_of(ref, struct tkr_session, ref));
}

void tkr_session_put(struct tkr_session *s)
{
	kref_put(&s->ref, tkr_session_free);
}

/* The device of that name, if the caller's network namespace has it, counted as in use. */
static struct tkr_device *tkr_device_get(const char *name)
{
	struct tkr_device *d, *found = NULL;

	mutex_lock(&tkr_devices_lock);
	list_for_each_entry(d, &tkr_devices, entry) {
		if (!strcmp(dev_name(&d->dev->dev), name) &&
		    rdma_dev_access_netns(d->dev, current->nsproxy->net_ns) &&
		    refcount_inc_not_zero(&d->users)) {
			found = d;
			break;
		}
	}
	mutex_unlock(&tkr_devices_lock);
	return found;
}

static void tkr_device_put(struct tkr_device *d)
{
	if (refcount_dec_and_test(&d->users))
		complete(&d->unused);
}

static void tkr_lane_free(struct tkr_lane_state *l)
{
	/* Polled directly, so that nothing calls back once the queue pair is gone. */
	if (l->qp)
		ib_destroy_qp(l->qp);
	if (l->cq)
		ib_free_cq(l->cq);
	kvfree(l->tickets);
	kvfree(l->bins);
}

static void tkr_slot_free(struct tkr_session *s, struct tkr_slot *slot)
{
	if (!slot->page)
		return;
	ib_dma_unmap_single(s->device->dev, slot->dma, s->slot_bytes, DMA_BIDIRECTIONAL);
	__free_pages(slot->page, s->order);
}

/* Under the session's lock: ends its runs, and takes what it has of the device. */
static void tkr_session_empty(struct tkr_session *s)
{
	struct tkr_device *d = s->device;
	u32 i;

	if (!d)
		return;
	WRITE_ONCE(s->stop, true);
	wait_event(s->idle, !atomic_read(&s->running));
	for (i = 0; s->lane && i < s->lanes; i++)
		tkr_lane_free(&s->lane[i]);
	kvfree(s->lane);
	s->lane = NULL;
	for (i = 0; s->slot && i < s->slots; i++)
		tkr_slot_free(s, &s->slot[i]);
	kvfree(s->slot);
	s->slot = NULL;
	if (s->pd)
		ib_dealloc_pd(s->pd);
	s->pd = NULL;
	mutex_lock(&d->lock);
	list_del_init(&s->entry);
	mutex_unlock(&d->lock);
	s->device = NULL;
	tkr_device_put(d);
}

/* At its last close, or when its device goes away. */
void tkr_session_close(struct tkr_session *s, bool gone)
{
	/* Seen by runs before the lock is free. */
	WRITE_ONCE(s->stop, true);
	mutex_lock(&s->lock);
	s->gone |= gone;
	tkr_session_empty(s);
	mutex_unlock(&s->lock);
}

static int tkr_lane_make(struct tkr_session *s, u32 number)
{
	struct tkr_lane_state *l = &s->lane[number];
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.port_num = s->port,
		.cap = {
			.max_send_wr = s->depth,
			.max_recv_wr = 1,
			.max_send_sge = 2,
			.max_recv_sge = 1,
		},
	};
	u32 i;

	l->session = s;
	l->number = number;
	l->min_ns = U64_MAX;
	l->bins = kvcalloc(TKR_BINS, sizeof(u64), GFP_KERNEL_ACCOUNT);
	l->tickets = kvcalloc(s->depth, sizeof(*l->tickets), GFP_KERNEL_ACCOUNT);
	if (!l->bins || !l->tickets)
		return -ENOMEM;
	for (i = 0; i < s->depth; i++) {
		l->tickets[i].cqe.done = tkr_lane_done;
		l->tickets[i].lane = l;
	}
	/* All of a failed queue are flushed, signalled or not. */
	l->cq = ib_alloc_cq(s->device->dev, l, s->depth + 2, 0, IB_POLL_DIRECT);
	if (IS_ERR(l->cq)) {
		int rc = PTR_ERR(l->cq);

		l->cq = NULL;
		return rc;
	}
	attr.send_cq = l->cq;
	attr.recv_cq = l->cq;
	l->qp = ib_create_qp(s->pd, &attr);
	if (IS_ERR(l->qp)) {
		int rc = PTR_ERR(l->qp);

		l->qp = NULL;
		return rc;
	}
	/*
	 * Packets of an earlier session between queue pairs of the same numbers must not be taken
	 * for this one's.
	 */
	l->psn = get_random_u32() & 0xffffff;
	return 0;
}

static int tkr_slot_make(struct tkr_session *s, struct tkr_slot *slot)
{
	struct ib_device *dev = s->device->dev;
	gfp_t how = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct page *page = alloc_pages(how, s->order);

	if (!page)
		return -ENOMEM;
	slot->dma = ib_dma_map_single(dev, page_address(page), s->slot_bytes, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(dev, slot->dma)) {
		__free_pages(page, s->order);
		return -EIO;
	}
	slot->page = page;
	return 0;
}

static int tkr_session_fill(struct tkr_session *s)
{
	int rc;
	u32 i;

	s->pd = ib_alloc_pd(s->device->dev, 0);
	if (IS_ERR(s->pd)) {
		rc = PTR_ERR(s->pd);
		s->pd = NULL;
		return rc;
	}
	s->slot = kvcalloc(s->slots, sizeof(*s->slot), GFP_KERNEL_ACCOUNT);
	s->lane = kvcalloc(s->lanes, sizeof(*s->lane), GFP_KERNEL_ACCOUNT);
	if (!s->slot || !s->lane)
		return -ENOMEM;
	for (i = 0; i < s->slots; i++) {
		rc = tkr_slot_make(s, &s->slot[i]);
		if (rc)
			return rc;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	for (i = 0; i < s->lanes; i++) {
		rc = tkr_lane_make(s, i);
		if (rc)
			return rc;
		cond_resched();
	}
	return 0;
}

static int tkr_session_describe(struct tkr_session *s, struct tkr_setup *a)
{
	struct ib_device *dev = s->device->dev;
	struct ib_port_attr port;
	union ib_gid gid = {};
	int rc;

	if (!rdma_is_port_valid(dev, a->port))
		return -EINVAL;
	/* iWARP connects by its own manager only. */
	if (!rdma_protocol_ib(dev, a->port) && !rdma_protocol_roce(dev, a->port))
		return -EOPNOTSUPP;
	rc = ib_query_port(dev, a->port, &port);
	if (!rc)
		rc = rdma_query_gid(dev, a->port, a->gid_index, &gid);
	if (rc)
		return rc;
	memcpy(a->gid, gid.raw, sizeof(a->gid));
	a->lid = port.lid;
	a->mtu_bytes = ib_mtu_enum_to_int(port.active_mtu);
	a->rd_atomic = dev->attrs.max_qp_init_rd_atom;
	a->link_layer = rdma_port_get_link_layer(dev, a->port);
	return 0;
}

static bool tkr_setup_valid(const struct tkr_setup *a)
{
	/* A path has an address's index in a byte. */
	return !a->reserved && a->gid_index <= U8_MAX &&
	       a->lanes && a->lanes <= TKR_LANES_MAX && a->depth &&
	       a->depth <= TKR_DEPTH_MAX && a->slots && a->slots <= TKR_SLOTS_MAX &&
	       a->slot_bytes >= TKR_SLOT_BYTES_MIN && a->slot_bytes <= TKR_SLOT_BYTES_MAX &&
	       is_power_of_2(a->slot_bytes) &&
	       strnlen(a->device, sizeof(a->device)) < sizeof(a->device);
}

int tkr_session_setup(struct tkr_session *s, struct tkr_setup *a)
{
	struct tkr_device *d;
	int rc;

	if (a->abi != TKR_ABI) {
		a->abi = TKR_ABI;
		return -EPROTO;
	}
	if (!tkr_setup_valid(a))
		return -EINVAL;
	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	rc = s->gone ? -ENODEV : -EBUSY;
	if (s->gone || s->device)
		goto unlock;
	rc = -ENODEV;
	d = tkr_device_get(a->device);
	if (!d)
		goto unlock;
	mutex_lock(&d->lock);
	if (d->dead) {
		mutex_unlock(&d->lock);
		tkr_device_put(d);
		goto unlock;
	}
	list_add(&s->entry, &d->sessions);
	mutex_unlock(&d->lock);
	s->device = d;
	s->lanes = a->lanes;
	s->depth = a->depth;
	s->slots = a->slots;
	s->slot_bytes = a->slot_bytes;
	s->slot_shift = ilog2(a->slot_bytes);
	s->order = get_order(a->slot_bytes);
	s->port = a->port;
	s->gid_index = a->gid_index;
	rc = tkr_session_describe(s, a);
	if (!rc)
		rc = tkr_session_fill(s);
	if (rc) {
		tkr_session_empty(s);
		s->stop = false;
	}
unlock:
	mutex_unlock(&s->lock);
	return rc;
}

int tkr_session_stop(struct tkr_session *s)
{
	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	WRITE_ONCE(s->stops, s->stops + 1);
	mutex_unlock(&s->lock);
	return 0;
}
