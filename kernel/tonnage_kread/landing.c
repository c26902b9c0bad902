// SPDX-License-Identifier: GPL-2.0 OR MIT
/* PEEK: copies of landing memory. */

#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"

/* Bytes that PEEK copies in one go. */
#define TKR_BOUNCE_BYTES (64 << 10)

/* Under the session's lock: copies so many bytes of landing memory, which lie within it. */
static void tkr_landing_copy(struct tkr_session *s, u64 offset, u8 *bytes, u64 length, bool store)
{
	struct ib_device *dev = s->device->dev;

	while (length) {
		struct tkr_slot *slot = &s->slot[offset >> s->slot_shift];
		u64 at = offset & (s->slot_bytes - 1);
		u64 part = min_t(u64, length, s->slot_bytes - at);
		u8 *here = (u8 *)page_address(slot->page) + at;

		ib_dma_sync_single_for_cpu(dev, slot->dma, s->slot_bytes, DMA_BIDIRECTIONAL);
		if (store)
			memcpy(here, bytes, part);
		else
			memcpy(bytes, here, part);
		ib_dma_sync_single_for_device(dev, slot->dma, s->slot_bytes, DMA_BIDIRECTIONAL);
		offset += part;
		bytes += part;
		length -= part;
	}
}

static int tkr_peek_part(struct tkr_session *s, u64 offset, u8 *bytes, u64 length, bool store)
{
	u64 all;
	int rc = 0;

	if (mutex_lock_killable(&s->lock))
		return -EINTR;
	all = (u64)s->slots << s->slot_shift;
	if (s->gone)
		rc = -ENODEV;
	else if (!s->slot || offset > all || length > all - offset)
		rc = -EINVAL;
	else
		tkr_landing_copy(s, offset, bytes, length, store);
	mutex_unlock(&s->lock);
	return rc;
}

int tkr_session_peek(struct tkr_session *s, const struct tkr_peek *a)
{
	bool store = a->flags & TKR_PEEK_STORE;
	u64 done = 0;
	u8 *bounce;
	int rc = 0;

	if (a->reserved || a->flags & ~TKR_PEEK_STORE || a->offset + a->bytes < a->offset)
		return -EINVAL;
	bounce = kvmalloc(TKR_BOUNCE_BYTES, GFP_KERNEL_ACCOUNT);
	if (!bounce)
		return -ENOMEM;
	while (!rc && done < a->bytes) {
		u64 part = min_t(u64, a->bytes - done, TKR_BOUNCE_BYTES);
		void __user *at = u64_to_user_ptr(a->at + done);

		if (store && copy_from_user(bounce, at, part))
			rc = -EFAULT;
		if (!rc)
			rc = tkr_peek_part(s, a->offset + done, bounce, part, store);
		if (!rc && !store && copy_to_user(at, bounce, part))
			rc = -EFAULT;
		done += part;
		if (!rc && fatal_signal_pending(current))
			rc = -EINTR;
		cond_resched();
	}
	kvfree(bounce);
	return rc;
}
