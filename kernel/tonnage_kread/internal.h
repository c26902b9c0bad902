/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sessions, their lanes, and the devices that they are on.
 *
 * Locks, the outer first: session.lock, device.lock, tkr_devices_lock. A run holds none of them: it
 * counts in session.running, and owns its lanes by their bit TKR_LANE_BUSY. Nothing touches the
 * caller's memory under a lock, nor while it counts as running, but for a byte that it looks at
 * only where that is there: a caller whose memory does not answer must not hold up the removal of a
 * device.
 */
#ifndef TONNAGE_KREAD_INTERNAL_H
#define TONNAGE_KREAD_INTERNAL_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>
#include "tonnage_kread.h"

/* Work requests of a lane that are handed over together. */
#define TKR_BURST 16

struct tkr_device {
	struct ib_device *dev;
	struct mutex lock;		/* of sessions and dead */
	struct list_head sessions;
	bool dead;
	/* sessions with objects of the device, and the device itself */
	refcount_t users;
	struct completion unused;
	struct list_head entry;
};

/* A slot of landing memory. */
struct tkr_slot {
	struct page *page;
	u64 dma;
};

/* A work request in flight. */
struct tkr_ticket {
	struct ib_cqe cqe;
	struct tkr_lane_state *lane;
	u64 posted_ns;
	u64 index;			/* work requests of the lane up to and with this one */
};

struct tkr_staged {
	struct ib_rdma_wr wr;
	struct ib_sge sge[2];
};

#define TKR_LANE_BUSY 0

struct tkr_lane_state {
	struct tkr_session *session;
	u32 number;
	struct ib_qp *qp;
	struct ib_cq *cq;
	struct tkr_ticket *tickets;	/* a ring of session.depth */
	u64 *bins;
	unsigned long flags;
	bool connected;
	bool failed;
	u32 psn;
	u32 status;
	u64 ops;			/* completed, ever */
	u64 samples, min_ns, max_ns, sum_ns;
	/* of the run that owns it */
	struct tkr_drive *drive;
	u64 posted, retired, done;	/* work requests; those that succeeded */
	u32 staged;
	struct tkr_staged burst[TKR_BURST];
};

struct tkr_session {
	struct kref ref;
	struct mutex lock;		/* of all below */
	struct list_head entry;		/* of device.sessions */
	struct tkr_device *device;
	struct ib_pd *pd;
	struct tkr_lane_state *lane;
	struct tkr_slot *slot;
	u32 lanes, depth, slots, slot_bytes, slot_shift, order, port, gid_index;
	bool stop;			/* all runs end */
	bool gone;			/* the device was removed */
	unsigned long stops;		/* times that STOP was called */
	atomic_t running;
	wait_queue_head_t idle;
};

extern struct mutex tkr_devices_lock;
extern struct list_head tkr_devices;

struct tkr_session *tkr_session_new(void);
void tkr_session_put(struct tkr_session *s);
void tkr_session_close(struct tkr_session *s, bool gone);
int tkr_session_setup(struct tkr_session *s, struct tkr_setup *a);
int tkr_session_address(struct tkr_session *s, struct tkr_lane *a);
int tkr_session_connect(struct tkr_session *s, const struct tkr_connect *a);
int tkr_session_stats(struct tkr_session *s, struct tkr_stats *a);
int tkr_session_hist(struct tkr_session *s, struct tkr_hist *a, u64 *bins);
int tkr_session_peek(struct tkr_session *s, const struct tkr_peek *a);
int tkr_session_stop(struct tkr_session *s);
struct tkr_lane_state *tkr_lane_of(struct tkr_session *s, u32 lane);

int tkr_run(struct tkr_session *s, struct tkr_run *r, struct tkr_flow *flows);
void tkr_lane_done(struct ib_cq *cq, struct ib_wc *wc);

/* Counters that other threads read while a run writes them. */
static inline void tkr_add(u64 *counter, u64 more)
{
	WRITE_ONCE(*counter, *counter + more);
}

#endif
