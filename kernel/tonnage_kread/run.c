// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * RUN: the loop in the thread that calls it.
 *
 * A driver of software may do its work in tasklets, which a thread that only polls keeps waiting
 * for a slice of the scheduler's: posting with bottom halves disabled runs them as it enables them
 * again. On other devices it costs some nanoseconds.
 */

#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/ktime.h>
#include <linux/uaccess.h>
#include "drive.h"

/* Completions that are taken from a lane at once. */
#define TKR_POLL_BUDGET 16
/*
 * Turns between two looks at the clock and at the caller's byte, where nothing else reads the
 * clock.
 */
#define TKR_LOOK_TURNS 64
/* Time without a completion that a run forgives once it was told to stop. */
#define TKR_STOPPED_NS (500 * NSEC_PER_MSEC)

/* The bins of HdrHistogram with 2048 of them for each power of two. */
static u32 tkr_bin(u64 ns)
{
	u32 bucket = fls64(ns | 2047) - 11;

	return min_t(u64, bucket * 1024ULL + (ns >> bucket), TKR_BINS - 1);
}

static void tkr_lane_sample(struct tkr_lane_state *l, u64 ns)
{
	tkr_add(&l->bins[tkr_bin(ns)], 1);
	tkr_add(&l->samples, 1);
	tkr_add(&l->sum_ns, ns);
	if (ns < l->min_ns)
		WRITE_ONCE(l->min_ns, ns);
	if (ns > l->max_ns)
		WRITE_ONCE(l->max_ns, ns);
}

/* A completion, told from within the loop's own poll. */
void tkr_lane_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tkr_ticket *ticket = container_of(wc->wr_cqe, struct tkr_ticket, cqe);
	struct tkr_lane_state *l = ticket->lane;
	struct tkr_drive *d = l->drive;

	/* What an earlier run left in flight is of no run. */
	if (!d || ticket->index <= l->retired)
		return;
	if (unlikely(wc->status != IB_WC_SUCCESS)) {
		if (!d->failed) {
			d->r->status = wc->status;
			d->r->vendor = wc->vendor_err;
			d->r->failed_lane = l->number;
		}
		d->failed = true;
		l->failed = true;
		if (!l->status)
			WRITE_ONCE(l->status, wc->status);
		l->retired = ticket->index;
		return;
	}
	if (d->timed) {
		if (!d->fresh) {
			d->fresh = true;
			d->now_ns = ktime_get_ns();
			d->r->end_ns = d->now_ns;
		}
		tkr_lane_sample(l, d->now_ns - ticket->posted_ns);
	}
	/* Whatever is left of a failed lane has not been done for sure. */
	if (!l->failed) {
		l->done += ticket->index - l->retired;
		tkr_add(&l->ops, ticket->index - l->retired);
	}
	l->retired = ticket->index;
}

static struct tkr_lane_state *tkr_flow_lane(struct tkr_drive *d, struct tkr_drive_flow *f, u32 turn)
{
	return &d->s->lane[f->asked->lane + turn];
}

/* Work requests of the flow that are in flight, or staged. */
static u64 tkr_flow_in_flight(struct tkr_drive *d, struct tkr_drive_flow *f)
{
	u64 all = 0;
	u32 i;

	for (i = 0; i < f->asked->lanes; i++) {
		struct tkr_lane_state *l = tkr_flow_lane(d, f, i);

		all += l->posted - l->retired;
	}
	return all;
}

/* Hands over what was staged. */
static int tkr_lane_ring(struct tkr_lane_state *l)
{
	int rc;

	if (!l->staged)
		return 0;
	l->staged = 0;
	local_bh_disable();
	rc = ib_post_send(l->qp, &l->burst[0].wr.wr, NULL);
	local_bh_enable();
	return rc;
}

static int tkr_stage(struct tkr_drive *d, struct tkr_drive_flow *f, bool signalled)
{
	struct tkr_session *s = d->s;
	struct tkr_lane_state *l = tkr_flow_lane(d, f, f->turn);
	struct tkr_ticket *ticket = &l->tickets[l->posted % s->depth];
	struct tkr_staged *staged = &l->burst[l->staged];
	u64 local, remote, at, first;
	u32 i, pieces;

	tkr_walk_next(&f->walk, &local, &remote);
	at = f->asked->local + local * d->r->stride;
	first = min_t(u64, d->r->bytes, s->slot_bytes - (at & (s->slot_bytes - 1)));
	pieces = first == d->r->bytes ? 1 : 2;
	for (i = 0; i < pieces; i++) {
		staged->sge[i].addr = s->slot[at >> s->slot_shift].dma + (at & (s->slot_bytes - 1));
		staged->sge[i].length = i ? d->r->bytes - first : first;
		staged->sge[i].lkey = s->pd->local_dma_lkey;
		at += first;
	}
	staged->wr = (struct ib_rdma_wr) {
		.wr = {
			.wr_cqe = &ticket->cqe,
			.sg_list = staged->sge,
			.num_sge = pieces,
			.opcode = d->r->verb == TKR_READ ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE,
			.send_flags = signalled ? IB_SEND_SIGNALED : 0,
		},
		.remote_addr = f->asked->remote + remote * d->r->stride,
		.rkey = f->asked->rkey,
	};
	if (l->staged)
		l->burst[l->staged - 1].wr.wr.next = &staged->wr.wr;
	ticket->index = ++l->posted;
	ticket->posted_ns = d->now_ns;
	l->staged++;
	f->posted++;
	d->posted++;
	if (++f->turn == f->asked->lanes)
		f->turn = 0;
	return l->staged == TKR_BURST ? tkr_lane_ring(l) : 0;
}

static bool tkr_flow_has_room(struct tkr_drive *d, struct tkr_drive_flow *f)
{
	struct tkr_run *r = d->r;

	if (d->closing || (r->ops_max && d->posted >= r->ops_max))
		return false;
	if (r->pacing != TKR_EACH && f->posted % r->window)
		return true;
	if (r->pacing == TKR_BATCH)
		return d->done == d->posted || f->posted < d->flows[0].posted;
	return tkr_flow_in_flight(d, f) < r->window;
}

static int tkr_flow_ring(struct tkr_drive *d, struct tkr_drive_flow *f)
{
	int rc = 0;
	u32 i;

	for (i = 0; i < f->asked->lanes && !rc; i++)
		rc = tkr_lane_ring(tkr_flow_lane(d, f, i));
	return rc;
}

/* Posts what the windows have room for; flows take turns. */
static int tkr_post(struct tkr_drive *d)
{
	struct tkr_run *r = d->r;
	bool more = true;
	u64 in_flight = 0;
	int rc;
	u32 i;

	while (more) {
		more = false;
		for (i = 0; i < r->flows; i++) {
			struct tkr_drive_flow *f = &d->flows[i];
			bool last = r->ops_max && d->posted + 1 == r->ops_max;
			bool first = !(f->posted % r->window);

			if (!tkr_flow_has_room(d, f))
				continue;
			rc = tkr_stage(d, f, r->pacing != TKR_FIRST || first || last);
			if (rc)
				return rc;
			more = true;
		}
	}
	for (i = 0; i < r->flows; i++) {
		rc = tkr_flow_ring(d, &d->flows[i]);
		if (rc)
			return rc;
		in_flight += tkr_flow_in_flight(d, &d->flows[i]);
	}
	r->in_flight_max = max_t(u64, r->in_flight_max, in_flight);
	return 0;
}

/* Ends what is unsignalled by one operation more, signalled, of each flow that has such. */
static int tkr_close(struct tkr_drive *d)
{
	int rc;
	u32 i;

	d->closing = true;
	if (d->r->pacing != TKR_FIRST || d->failed)
		return 0;
	for (i = 0; i < d->r->flows; i++) {
		struct tkr_drive_flow *f = &d->flows[i];

		if (f->posted % d->r->window == 1 || d->r->window == 1)
			continue;
		if (!f->posted || (d->r->ops_max && d->posted >= d->r->ops_max))
			continue;
		rc = tkr_stage(d, f, true);
		if (!rc)
			rc = tkr_flow_ring(d, f);
		if (rc)
			return rc;
	}
	return 0;
}

static void tkr_poll(struct tkr_drive *d)
{
	u64 done = 0;
	u32 i, j;

	d->fresh = false;
	for (i = 0; i < d->r->flows; i++) {
		struct tkr_drive_flow *f = &d->flows[i];

		for (j = 0; j < f->asked->lanes; j++)
			ib_process_cq_direct(tkr_flow_lane(d, f, j)->cq, TKR_POLL_BUDGET);
		done += f->posted - tkr_flow_in_flight(d, f);
	}
	d->done = done;
	d->r->polls++;
	if (done == d->seen) {
		d->r->empty_polls++;
		cpu_relax();
	}
}

/* The caller's byte, where its page is there; nobody waits for it here. */
static bool tkr_told_to_stop(struct tkr_drive *d)
{
	u8 byte = 0;

	if (!d->r->stop_at)
		return false;
	pagefault_disable();
	if (__copy_from_user_inatomic(&byte, u64_to_user_ptr(d->r->stop_at), 1))
		byte = 0;
	pagefault_enable();
	return byte;
}

/* Returns whether nothing more is to be posted; rc gets the reason where that is a failure. */
static bool tkr_over(struct tkr_drive *d, u64 turns, int *rc)
{
	struct tkr_run *r = d->r;

	if (d->failed || READ_ONCE(d->s->stop) || READ_ONCE(d->s->stops) != d->stops)
		return true;
	if (r->ops_max && d->posted >= r->ops_max)
		return true;
	if (signal_pending(current)) {
		*rc = -EINTR;
		return true;
	}
	if (turns % TKR_LOOK_TURNS == 0) {
		d->now_ns = ktime_get_ns();
		if (tkr_told_to_stop(d))
			return true;
	}
	return r->duration_ns && d->now_ns - r->begin_ns >= r->duration_ns;
}

/* Returns whether nothing has completed for too long. */
static bool tkr_is_stuck(struct tkr_drive *d, u64 turns)
{
	u64 patience = d->r->patience_ns;

	if (d->done != d->seen) {
		d->seen = d->done;
		d->progress_ns = d->now_ns;
		return false;
	}
	if (turns % TKR_LOOK_TURNS)
		return false;
	d->now_ns = ktime_get_ns();
	if (tkr_told_to_stop(d))
		patience = min_t(u64, patience, TKR_STOPPED_NS);
	return d->now_ns - d->progress_ns > patience;
}

static int tkr_loop(struct tkr_drive *d)
{
	u64 turns;
	int rc = 0, over = 0;

	for (turns = 1; ; turns++) {
		if (!d->closing && tkr_over(d, turns, &over))
			rc = tkr_close(d);
		if (!rc && !d->closing)
			rc = tkr_post(d);
		if (rc)
			return rc;
		tkr_poll(d);
		if (d->closing && d->done == d->posted)
			return over;
		/*
		 * Whoever is killed, or loses the device, does not wait for packets that may not
		 * come.
		 */
		if (d->closing && (READ_ONCE(d->s->stop) || fatal_signal_pending(current)))
			return -EINTR;
		if (tkr_is_stuck(d, turns))
			return -ETIMEDOUT;
		cond_resched();
	}
}

static void tkr_flow_begin(struct tkr_drive *d, struct tkr_drive_flow *f, struct tkr_flow *asked)
{
	u32 i;

	f->asked = asked;
	tkr_walk_init(&f->walk, d->r->local_order, d->r->remote_order, d->r->slots, asked->seed,
		      asked->begin);
	for (i = 0; i < asked->lanes; i++) {
		struct tkr_lane_state *l = tkr_flow_lane(d, f, i);

		l->drive = d;
		l->posted = 0;
		l->retired = 0;
		l->done = 0;
		l->staged = 0;
	}
}

/*
 * What is still in flight makes a lane useless: its completions would be taken for another run's.
 */
static void tkr_flow_end(struct tkr_drive *d, struct tkr_drive_flow *f)
{
	u64 issued = 0;
	u32 i;

	for (i = 0; i < f->asked->lanes; i++) {
		struct tkr_lane_state *l = tkr_flow_lane(d, f, i);

		if (l->posted != l->retired)
			l->failed = true;
		issued += l->done;
		l->drive = NULL;
	}
	f->asked->issued = issued;
}

static u64 tkr_ops_of(struct tkr_drive *d)
{
	u64 ops = 0;
	u32 i, j;

	for (i = 0; i < d->r->flows; i++) {
		struct tkr_drive_flow *f = &d->flows[i];

		for (j = 0; j < f->asked->lanes; j++)
			ops += tkr_flow_lane(d, f, j)->ops;
	}
	return ops;
}

int tkr_run(struct tkr_session *s, struct tkr_run *r, struct tkr_flow *flows)
{
	struct tkr_drive d = { .s = s, .r = r, .timed = !(r->flags & TKR_RUN_UNTIMED) };
	u64 before;
	int rc;
	u32 i;

	d.flows = kvcalloc(r->flows, sizeof(*d.flows), GFP_KERNEL_ACCOUNT);
	if (!d.flows)
		return -ENOMEM;
	rc = tkr_take(&d, flows);
	if (rc)
		goto free;
	for (i = 0; i < r->flows; i++)
		tkr_flow_begin(&d, &d.flows[i], &flows[i]);
	before = tkr_ops_of(&d);
	r->in_flight_max = 0;
	r->status = 0;
	r->vendor = 0;
	r->failed_lane = 0;
	r->polls = 0;
	r->empty_polls = 0;
	r->begin_ns = ktime_get_ns();
	r->end_ns = r->begin_ns;
	d.now_ns = r->begin_ns;
	d.progress_ns = r->begin_ns;
	rc = tkr_loop(&d);
	r->ops = tkr_ops_of(&d) - before;
	if (!d.timed)
		r->end_ns = ktime_get_ns();
	for (i = 0; i < r->flows; i++)
		tkr_flow_end(&d, &d.flows[i]);
	tkr_let_go(s, flows, r->flows, U32_MAX);
	if (READ_ONCE(s->stop))
		rc = -ENODEV;
	if (atomic_dec_and_test(&s->running))
		wake_up(&s->idle);
free:
	kvfree(d.flows);
	return rc;
}
