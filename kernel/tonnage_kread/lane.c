// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Lanes: connecting them, and whatever looks at them. */

#include <linux/string.h>
#include <linux/ktime.h>
#include <rdma/ib_cache.h>
#include "internal.h"

/* Under the session's lock. */
struct tkr_lane_state *tkr_lane_of(struct tkr_session *s, u32 lane)
{
	if (s->gone)
		return ERR_PTR(-ENODEV);
	if (!s->lane || lane >= s->lanes)
		return ERR_PTR(-EINVAL);
	return &s->lane[lane];
}

int tkr_session_address(struct tkr_session *s, struct tkr_lane *a)
{
	struct tkr_lane_state *l;

	if (a->reserved)
		return -EINVAL;
	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	l = tkr_lane_of(s, a->lane);
	if (!IS_ERR(l)) {
		a->qpn = l->qp->qp_num;
		a->psn = l->psn;
	}
	mutex_unlock(&s->lock);
	return PTR_ERR_OR_ZERO(l);
}

static int tkr_path(struct tkr_session *s, const struct tkr_connect *a, struct rdma_ah_attr *path)
{
	union ib_gid gid;
	struct ib_ah *ah;

	memcpy(gid.raw, a->gid, sizeof(gid.raw));
	path->type = rdma_ah_find_type(s->device->dev, s->port);
	rdma_ah_set_port_num(path, s->port);
	rdma_ah_set_sl(path, a->service_level);
	rdma_ah_set_dlid(path, a->lid);
	if (path->type == RDMA_AH_ATTR_TYPE_ROCE || a->flags & TKR_PATH_GLOBAL)
		rdma_ah_set_grh(path, &gid, a->flow_label, s->gid_index, a->hop_limit,
				a->traffic_class);
	if (path->type != RDMA_AH_ATTR_TYPE_ROCE)
		return 0;
	/*
	 * Nobody else resolves the peer's MAC for a caller in the kernel; this leaves it in the
	 * path.
	 */
	ah = rdma_create_user_ah(s->pd, path, NULL);
	if (IS_ERR(ah))
		return PTR_ERR(ah);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return 0;
}

static int tkr_lane_connect(struct tkr_session *s, struct tkr_lane_state *l,
			    const struct tkr_connect *a)
{
	struct ib_qp_attr init = {
		.qp_state = IB_QPS_INIT,
		.port_num = s->port,
		.pkey_index = a->pkey_index,
	};
	struct ib_qp_attr receive = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = ib_mtu_int_to_enum(a->mtu_bytes),
		.dest_qp_num = a->qpn,
		.rq_psn = a->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = IB_RNR_TIMER_000_64,
	};
	struct ib_qp_attr send = {
		.qp_state = IB_QPS_RTS,
		.sq_psn = l->psn,
		.timeout = a->timeout,
		.retry_cnt = a->retry,
		.rnr_retry = a->rnr_retry,
		.max_rd_atomic = a->rd_atomic,
	};
	int rc;

	rc = tkr_path(s, a, &receive.ah_attr);
	if (rc)
		return rc;
	rc = ib_modify_qp(l->qp, &init,
			  IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (rc)
		return rc;
	rc = ib_modify_qp(l->qp, &receive,
			  IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
			  IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (rc)
		return rc;
	rc = ib_modify_qp(l->qp, &send,
			  IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			  IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC);
	if (rc)
		return rc;
	l->connected = true;
	return 0;
}

int tkr_session_connect(struct tkr_session *s, const struct tkr_connect *a)
{
	struct tkr_lane_state *l;
	int rc;

	if (memchr_inv(a->reserved, 0, sizeof(a->reserved)) || a->flags & ~TKR_PATH_GLOBAL ||
	    a->qpn >= 1 << 24 || a->psn >= 1 << 24 || a->flow_label >= 1 << 20 ||
	    a->timeout > 31 || a->retry > 7 || a->rnr_retry > 7 || !a->rd_atomic ||
	    a->service_level > 15 || a->lid > U16_MAX ||
	    ib_mtu_enum_to_int(ib_mtu_int_to_enum(a->mtu_bytes)) != a->mtu_bytes)
		return -EINVAL;
	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	l = tkr_lane_of(s, a->lane);
	if (IS_ERR(l))
		rc = PTR_ERR(l);
	else if (l->connected)
		rc = -EISCONN;
	else if (test_bit(TKR_LANE_BUSY, &l->flags))
		rc = -EBUSY;
	else if (a->rd_atomic > s->device->dev->attrs.max_qp_init_rd_atom)
		rc = -EINVAL;
	else
		rc = tkr_lane_connect(s, l, a);
	mutex_unlock(&s->lock);
	return rc;
}

int tkr_session_stats(struct tkr_session *s, struct tkr_stats *a)
{
	struct tkr_lane_state *l;

	if (a->reserved)
		return -EINVAL;
	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	l = tkr_lane_of(s, a->lane);
	if (!IS_ERR(l)) {
		a->ops = READ_ONCE(l->ops);
		a->now_ns = ktime_get_ns();
		a->running = test_bit(TKR_LANE_BUSY, &l->flags);
		a->status = READ_ONCE(l->status);
	}
	mutex_unlock(&s->lock);
	return PTR_ERR_OR_ZERO(l);
}

int tkr_session_hist(struct tkr_session *s, struct tkr_hist *a, u64 *bins)
{
	struct tkr_lane_state *l;
	int rc = 0;
	u32 i;

	if (a->flags & ~TKR_HIST_CLEAR)
		return -EINVAL;
	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	l = tkr_lane_of(s, a->lane);
	if (IS_ERR(l)) {
		rc = PTR_ERR(l);
	} else if (a->flags & TKR_HIST_CLEAR && test_bit(TKR_LANE_BUSY, &l->flags)) {
		rc = -EBUSY;
	} else {
		a->samples = READ_ONCE(l->samples);
		a->min_ns = READ_ONCE(l->min_ns);
		a->max_ns = READ_ONCE(l->max_ns);
		a->sum_ns = READ_ONCE(l->sum_ns);
		for (i = 0; bins && i < TKR_BINS; i++)
			bins[i] = READ_ONCE(l->bins[i]);
		if (a->flags & TKR_HIST_CLEAR) {
			memset(l->bins, 0, TKR_BINS * sizeof(u64));
			l->samples = 0;
			l->min_ns = U64_MAX;
			l->max_ns = 0;
			l->sum_ns = 0;
		}
	}
	mutex_unlock(&s->lock);
	return rc;
}
