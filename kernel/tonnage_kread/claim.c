// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What a RUN may ask for, and making its lanes its own. */

#include <linux/overflow.h>
#include "drive.h"

static bool tkr_flow_valid(const struct tkr_session *s, const struct tkr_run *r,
			   const struct tkr_flow *f)
{
	u64 landing = (u64)s->slots << s->slot_shift, span = (r->slots - 1) * r->stride + r->bytes;

	return !f->reserved && f->lanes && f->lane < s->lanes && f->lanes <= s->lanes - f->lane &&
	       span <= f->remote_bytes && f->remote + f->remote_bytes >= f->remote &&
	       span <= landing && f->local <= landing - span &&
	       (r->pacing != TKR_FIRST || f->lanes == 1);
}

static bool tkr_run_valid(const struct tkr_session *s, const struct tkr_run *r)
{
	u64 span;

	if (r->reserved || r->flags & ~TKR_RUN_UNTIMED || r->verb > TKR_WRITE ||
	    r->pacing > TKR_BATCH || r->local_order > TKR_PERMUTED ||
	    r->remote_order > TKR_PERMUTED || !r->bytes || r->bytes > s->slot_bytes ||
	    !r->window || !r->slots || r->stride < r->bytes || !r->patience_ns)
		return false;
	if (check_mul_overflow(r->slots - 1, r->stride, &span) ||
	    check_add_overflow(span, (u64)r->bytes, &span))
		return false;
	/* A lane may have all that is in flight. */
	if (r->pacing != TKR_FIRST)
		return r->window <= s->depth;
	/* And the last window while the next is posted. */
	return r->flows == 1 && r->window <= s->depth / 2;
}

void tkr_let_go(struct tkr_session *s, const struct tkr_flow *flows, u32 count, u32 lanes)
{
	u32 i, j;

	for (i = 0; i < count; i++) {
		for (j = 0; j < flows[i].lanes && lanes; j++, lanes--)
			clear_bit(TKR_LANE_BUSY, &s->lane[flows[i].lane + j].flags);
	}
}

/* Under the session's lock: makes all lanes of the flows the run's own, or none. */
static int tkr_take_lanes(struct tkr_session *s, const struct tkr_run *r,
			  const struct tkr_flow *flows)
{
	u32 i, j, taken = 0;
	int rc;

	for (i = 0; i < r->flows; i++) {
		rc = -EINVAL;
		if (!tkr_flow_valid(s, r, &flows[i]))
			goto back;
		for (j = 0; j < flows[i].lanes; j++) {
			struct tkr_lane_state *l = &s->lane[flows[i].lane + j];

			rc = -EBUSY;
			if (test_and_set_bit(TKR_LANE_BUSY, &l->flags))
				goto back;
			taken++;
			rc = -ENOTCONN;
			if (!l->connected || l->failed)
				goto back;
		}
	}
	return 0;
back:
	tkr_let_go(s, flows, r->flows, taken);
	return rc;
}

int tkr_take(struct tkr_drive *d, const struct tkr_flow *flows)
{
	struct tkr_session *s = d->s;
	int rc;

	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	if (s->gone)
		rc = -ENODEV;
	else if (!s->lane || !tkr_run_valid(s, d->r))
		rc = -EINVAL;
	else
		rc = tkr_take_lanes(s, d->r, flows);
	if (!rc) {
		atomic_inc(&s->running);
		d->stops = s->stops;
	}
	mutex_unlock(&s->lock);
	return rc;
}
