/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * Calls that /dev/tonnage_kread takes.
 *
 * One open file is one session. Everything that it made goes with its last close. Fields named
 * reserved, and bits that have no name here, must be zero. Structures have the same layout for
 * 32-bit and 64-bit callers.
 */
#ifndef TONNAGE_KREAD_H
#define TONNAGE_KREAD_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TKR_ABI			1
#define TKR_LANES_MAX		128
#define TKR_DEPTH_MAX		1024
#define TKR_SLOTS_MAX		1024
#define TKR_SLOT_BYTES_MIN	4096
#define TKR_SLOT_BYTES_MAX	(4 << 20)
/* Latencies: 1 ns to 60 s, three significant digits, the bins of HdrHistogram. */
#define TKR_BINS		27648

/*
 * SETUP, once: lanes, and landing memory for all of them. Slots of landing memory lie one behind
 * the other; an operation may cross the border of two. -EPROTO for another ABI; abi then has the
 * module's.
 */
struct tkr_setup {
	__u32 abi;
	__u32 port;
	char device[64];
	__u32 gid_index;	/* at most 255 */
	__u32 lanes;
	__u32 depth;		/* operations in flight on a lane */
	__u32 slots;
	__u32 slot_bytes;	/* a power of two */
	__u32 reserved;
	/* out */
	__u8 gid[16];
	__u32 lid;
	__u32 mtu_bytes;
	__u32 rd_atomic;	/* reads in flight on a lane that the device can do */
	__u32 link_layer;	/* 1 InfiniBand, 2 Ethernet */
};

/* LANE: address of a lane. */
struct tkr_lane {
	__u32 lane;
	__u32 reserved;
	/* out */
	__u32 qpn;
	__u32 psn;
};

#define TKR_PATH_GLOBAL		1	/* packets carry addresses; always on Ethernet */

/* CONNECT: a lane to a queue pair of user space. */
struct tkr_connect {
	__u32 lane;
	__u32 qpn;
	__u32 psn;
	__u32 lid;
	__u8 gid[16];
	__u32 mtu_bytes;
	__u32 flow_label;
	__u16 pkey_index;
	__u8 timeout;
	__u8 retry;
	__u8 rnr_retry;
	__u8 rd_atomic;
	__u8 hop_limit;
	__u8 traffic_class;
	__u8 service_level;
	__u8 flags;
	__u8 reserved[6];
};

#define TKR_READ		0
#define TKR_WRITE		1

/* A new operation for each that completes. */
#define TKR_EACH		0
/*
 * The published way, of one flow with one lane: the first of each window is signalled, and waited
 * for once the whole window is posted. Up to two windows, less one, are in flight.
 */
#define TKR_FIRST		1
/* A window of each flow is posted once nothing is in flight. */
#define TKR_BATCH		2

#define TKR_FIXED		0
#define TKR_SEQUENTIAL		1
#define TKR_RANDOM		2
#define TKR_PERMUTED		3

#define TKR_RUN_UNTIMED		1	/* no latencies */

/* Operations towards one peer. */
struct tkr_flow {
	__u32 lane;		/* the first of its lanes, which take operations in turn */
	__u32 lanes;
	__u64 remote;		/* address of the first slot at the peer */
	__u64 remote_bytes;	/* bytes there that may be asked for */
	__u64 local;		/* offset of the first slot in landing memory */
	__u64 seed;
	/* operations before this run, which the orders of addresses go on from */
	__u64 begin;
	__u32 rkey;
	__u32 reserved;
	/* out */
	__u64 issued;		/* operations of this run that completed */
};

/*
 * RUN: the calling thread posts and polls until so many operations, or so much time, or STOP, or a
 * signal (-EINTR), or nothing completes for patience_ns (-ETIMEDOUT); then waits for what is in
 * flight. An operation that fails ends it too, and the run is a success with a status. Outputs are
 * there in all of these cases.
 */
struct tkr_run {
	__u32 verb;
	__u32 bytes;
	__u32 window;		/* operations in flight of each flow */
	__u32 pacing;
	__u32 local_order;
	__u32 remote_order;
	__u32 flags;
	__u32 flows;
	__u64 flows_at;		/* address of an array of struct tkr_flow */
	/* places of operations at either end, and bytes between their beginnings */
	__u64 slots;
	__u64 stride;
	__u64 ops_max;		/* of all flows; 0 for no bound */
	__u64 duration_ns;	/* 0 for no bound */
	__u64 patience_ns;
	/*
	 * Address of a byte that ends the run once it is not zero, and half a second after the last
	 * completion at the latest; 0 for none.
	 */
	__u64 stop_at;
	__u64 reserved;
	/* out */
	__u64 ops;
	/* CLOCK_MONOTONIC: before the first operation, and at the last completion that was timed */
	__u64 begin_ns;
	__u64 end_ns;
	__u64 polls;
	__u64 empty_polls;
	__u32 in_flight_max;
	/* 0, or the state of the first work request that failed, as enum ibv_wc_status has it */
	__u32 status;
	__u32 vendor;
	__u32 failed_lane;
};

/* STATS, from any thread at any time: completed operations since the lane was made. */
struct tkr_stats {
	__u32 lane;
	__u32 reserved;
	/* out */
	__u64 ops;
	__u64 now_ns;		/* CLOCK_MONOTONIC */
	__u32 running;
	__u32 status;
};

#define TKR_HIST_CLEAR		1	/* begin anew; -EBUSY while the lane runs */

/* HIST, from any thread at any time: latencies of a lane since they were cleared. */
struct tkr_hist {
	__u32 lane;
	__u32 flags;
	__u64 bins_at;		/* address of TKR_BINS numbers of 64 bits; 0 for none */
	/* out */
	__u64 samples;
	__u64 min_ns;
	__u64 max_ns;
	__u64 sum_ns;
};

#define TKR_PEEK_STORE		1	/* into landing memory instead */

/* PEEK: copies bytes of landing memory. */
struct tkr_peek {
	__u64 offset;
	__u64 bytes;
	__u64 at;		/* address of the caller's bytes */
	__u32 flags;
	__u32 reserved;
};

#define TKR_IOC_SETUP		_IOWR('t', 0xb0, struct tkr_setup)
#define TKR_IOC_LANE		_IOWR('t', 0xb1, struct tkr_lane)
#define TKR_IOC_CONNECT		_IOW('t', 0xb2, struct tkr_connect)
#define TKR_IOC_RUN		_IOWR('t', 0xb3, struct tkr_run)
#define TKR_IOC_STATS		_IOWR('t', 0xb4, struct tkr_stats)
#define TKR_IOC_HIST		_IOWR('t', 0xb5, struct tkr_hist)
#define TKR_IOC_PEEK		_IOW('t', 0xb6, struct tkr_peek)
/* STOP: all runs of the session end. */
#define TKR_IOC_STOP		_IO('t', 0xb7)

#endif
