/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Orders of slots: the same numbers as crates/loops/src/walk.rs, flow_walk.rs and
 * permutation.rs give, so that user space knows which slot an operation used.
 */
#ifndef TONNAGE_KREAD_WALK_H
#define TONNAGE_KREAD_WALK_H

#include "tonnage_kread.h"

#define TKR_GOLDEN 0x9e3779b97f4a7c15ULL
#define TKR_MIX_ROUNDS 3

struct tkr_permutation {
	u64 below;
	u64 mask;
	u64 add[TKR_MIX_ROUNDS];
	u64 odd[TKR_MIX_ROUNDS];
	u32 half;
};

struct tkr_order {
	struct tkr_permutation permutation;
	u64 slots;
	u64 seed;
	u64 state;
	u64 round;
	u32 order;
};

/* Both ends of a flow. */
struct tkr_walk {
	struct tkr_order local;
	struct tkr_order remote;
	struct tkr_permutation pairing;
	u64 turn;
	bool same;
	bool paired;
};

/* The finalizer of SplitMix64. */
static inline u64 tkr_mix(u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static inline void tkr_permutation_init(struct tkr_permutation *p, u64 below, u64 seed)
{
	u32 bits = below > 1 ? fls64(below - 1) : 1;
	int i;

	p->below = below;
	p->mask = ~0ULL >> (64 - bits);
	p->half = bits / 2 ? bits / 2 : 1;
	for (i = 0; i < TKR_MIX_ROUNDS; i++) {
		seed += TKR_GOLDEN;
		p->add[i] = tkr_mix(seed);
		seed += TKR_GOLDEN;
		p->odd[i] = tkr_mix(seed) | 1;
	}
}

/*
 * What falls outside is mixed again: less than two rounds on average, since the bound is more than
 * half the range.
 */
static inline u64 tkr_permuted(const struct tkr_permutation *p, u64 x)
{
	int i;

	do {
		for (i = 0; i < TKR_MIX_ROUNDS; i++) {
			x = (x + p->add[i]) & p->mask;
			x = ((x ^ (x >> p->half)) * p->odd[i]) & p->mask;
		}
		x ^= x >> p->half;
	} while (x >= p->below);
	return x;
}

static inline void tkr_order_begin_round(struct tkr_order *o, u64 further)
{
	o->round += further;
	if (o->order == TKR_PERMUTED)
		tkr_permutation_init(&o->permutation, o->slots, o->seed ^ tkr_mix(o->round));
}

/* An order that is so many steps on already. */
static inline void tkr_order_init(struct tkr_order *o, u32 order, u64 slots, u64 seed, u64 begin)
{
	o->order = order;
	o->slots = slots;
	o->seed = seed;
	o->round = 0;
	switch (order) {
	case TKR_SEQUENTIAL:
		o->state = begin % slots;
		break;
	case TKR_RANDOM:
		o->state = seed + TKR_GOLDEN * begin;
		break;
	case TKR_PERMUTED:
		o->state = begin % slots;
		tkr_order_begin_round(o, begin / slots);
		break;
	default:
		o->state = 0;
	}
}

static inline u64 tkr_order_next(struct tkr_order *o)
{
	u64 slot;

	switch (o->order) {
	case TKR_SEQUENTIAL:
		slot = o->state++;
		if (o->state == o->slots)
			o->state = 0;
		return slot;
	case TKR_RANDOM:
		o->state += TKR_GOLDEN;
		return mul_u64_u64_shr(tkr_mix(o->state), o->slots, 64);
	case TKR_PERMUTED:
		slot = tkr_permuted(&o->permutation, o->state++);
		if (o->state == o->slots) {
			o->state = 0;
			tkr_order_begin_round(o, 1);
		}
		return slot;
	default:
		return 0;
	}
}

static inline void tkr_walk_init(struct tkr_walk *w, u32 local, u32 remote, u64 slots, u64 seed,
				 u64 begin)
{
	tkr_order_init(&w->local, local, slots, seed, begin);
	w->paired = local == remote && local == TKR_PERMUTED;
	w->same = local == remote && !w->paired;
	if (w->paired) {
		tkr_permutation_init(&w->pairing, slots, tkr_mix(~seed));
		w->turn = slots > 1 && !tkr_permuted(&w->pairing, 0);
	} else if (!w->same) {
		tkr_order_init(&w->remote, remote, slots, seed, begin);
	}
}

/* Slots of the next operation. */
static inline void tkr_walk_next(struct tkr_walk *w, u64 *local, u64 *remote)
{
	*local = tkr_order_next(&w->local);
	if (w->same) {
		*remote = *local;
	} else if (w->paired) {
		u64 turned = tkr_permuted(&w->pairing, *local) + w->turn;

		*remote = turned == w->local.slots ? 0 : turned;
	} else {
		*remote = tkr_order_next(&w->remote);
	}
}

#endif
