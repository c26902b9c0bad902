/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* One RUN and its flows. */
#ifndef TONNAGE_KREAD_DRIVE_H
#define TONNAGE_KREAD_DRIVE_H

#include "internal.h"
#include "walk.h"

struct tkr_drive_flow {
	struct tkr_walk walk;
	struct tkr_flow *asked;
	u64 posted;
	u64 done;
	u32 turn;		/* of its lanes */
};

/* One RUN. */
struct tkr_drive {
	struct tkr_session *s;
	struct tkr_run *r;
	struct tkr_drive_flow *flows;
	unsigned long stops;
	u64 posted, done;
	u64 now_ns;		/* as the clock was read last */
	u64 progress_ns;	/* as it was when something completed last */
	u64 seen;		/* done then */
	bool timed;
	/* the clock was read in this turn, for what completed and for what is posted next */
	bool fresh;
	bool failed;
	bool closing;		/* nothing more is posted but what ends unsignalled work requests */
};

int tkr_take(struct tkr_drive *d, const struct tkr_flow *flows);
void tkr_let_go(struct tkr_session *s, const struct tkr_flow *flows, u32 count, u32 lanes);

#endif
