// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What tonnage itself never asks of /dev/tonnage_kread:
 *
 *     kread contract DEVICE DEVICE    refusals, failures, and what becomes of sessions; both devices reach each other
 *     kread namespace DEVICE ERROR    what SETUP says in a network namespace of its own: 0, or the number of an error
 *     kread hold DEVICE               a session, and a child that inherits it and outlives this process for a second
 *     kread fuzz DEVICE DEVICE SECONDS SEED    random calls in random order by two threads
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "tonnage_kread.h"

#define GID_INDEX 1
#define SLOT_BYTES 65536
#define MS 1000000ull

static int failures;

/* A call that must give this error, or 0. */
static void expect(const char *what, int got, int wanted)
{
	int code = got < 0 ? errno : 0;

	if (code != wanted) {
		printf("FAILED %s: %s, expected %s\n", what, strerror(code), strerror(wanted));
		failures++;
	}
}

static int open_device(void)
{
	int fd = open("/dev/tonnage_kread", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		perror("/dev/tonnage_kread");
		exit(1);
	}
	return fd;
}

static struct tkr_setup setup_of(const char *device)
{
	struct tkr_setup setup = {
		.abi = TKR_ABI,
		.port = 1,
		.gid_index = GID_INDEX,
		.lanes = 2,
		.depth = 16,
		.slots = 2,
		.slot_bytes = SLOT_BYTES,
	};

	strncpy(setup.device, device, sizeof(setup.device) - 1);
	return setup;
}

static struct tkr_run run_of(struct tkr_flow *flow)
{
	return (struct tkr_run){
		.verb = TKR_READ,
		.bytes = 64,
		.window = 4,
		.local_order = TKR_RANDOM,
		.remote_order = TKR_RANDOM,
		.flows = 1,
		.flows_at = (unsigned long)flow,
		.slots = 16,
		.stride = 64,
		.ops_max = 100,
		.patience_ns = 500 * MS,
	};
}

/* Connects the first lanes of two sessions with each other. */
static void connect_both(int one, int other, struct tkr_setup *setups, unsigned int retry)
{
	struct tkr_lane lanes[2] = {};
	int fds[2] = { one, other };
	int i;

	for (i = 0; i < 2; i++)
		expect("LANE", ioctl(fds[i], TKR_IOC_LANE, &lanes[i]), 0);
	for (i = 0; i < 2; i++) {
		struct tkr_connect path = {
			.qpn = lanes[!i].qpn,
			.psn = lanes[!i].psn,
			.mtu_bytes = 1024,
			.timeout = 14,
			.retry = retry,
			.rnr_retry = 7,
			.rd_atomic = 1,
			.hop_limit = 64,
		};

		memcpy(path.gid, setups[!i].gid, sizeof(path.gid));
		expect("CONNECT", ioctl(fds[i], TKR_IOC_CONNECT, &path), 0);
	}
}

static void refusals(const char *device)
{
	static char bytes[3 * SLOT_BYTES], back[3 * SLOT_BYTES];
	struct tkr_setup setup = setup_of(device), wrong;
	struct tkr_flow flow = { .lanes = 1, .remote = 4096, .remote_bytes = 4096 };
	struct tkr_run run = run_of(&flow);
	struct tkr_lane lane = {};
	struct tkr_stats stats = {};
	struct tkr_hist hist = {};
	struct tkr_peek peek = {};
	int fd = open_device();
	size_t i;

	expect("an unknown call", ioctl(fd, _IO('t', 0xbf)), ENOTTY);
	expect("RUN before SETUP", ioctl(fd, TKR_IOC_RUN, &run), EINVAL);
	expect("LANE before SETUP", ioctl(fd, TKR_IOC_LANE, &lane), EINVAL);
	expect("PEEK before SETUP", ioctl(fd, TKR_IOC_PEEK, &peek), 0);
	wrong = setup;
	wrong.abi = TKR_ABI + 1;
	expect("another ABI", ioctl(fd, TKR_IOC_SETUP, &wrong), EPROTO);
	if (wrong.abi != TKR_ABI)
		expect("the module's ABI", -1, 0);
	wrong = setup;
	wrong.reserved = 1;
	expect("a reserved bit", ioctl(fd, TKR_IOC_SETUP, &wrong), EINVAL);
	wrong = setup;
	wrong.lanes = TKR_LANES_MAX + 1;
	expect("too many lanes", ioctl(fd, TKR_IOC_SETUP, &wrong), EINVAL);
	wrong = setup;
	wrong.slot_bytes = 3 * 4096;
	expect("an odd slot", ioctl(fd, TKR_IOC_SETUP, &wrong), EINVAL);
	wrong = setup;
	wrong.gid_index = GID_INDEX + 256;
	expect("an address's index above a byte", ioctl(fd, TKR_IOC_SETUP, &wrong), EINVAL);
	wrong = setup_of("none");
	expect("a device that is not there", ioctl(fd, TKR_IOC_SETUP, &wrong), ENODEV);
	wrong = setup;
	wrong.port = 9;
	expect("a port that is not there", ioctl(fd, TKR_IOC_SETUP, &wrong), EINVAL);
	expect("memory that is not there", ioctl(fd, TKR_IOC_SETUP, (void *)16), EFAULT);
	expect("SETUP", ioctl(fd, TKR_IOC_SETUP, &setup), 0);
	expect("SETUP again", ioctl(fd, TKR_IOC_SETUP, &setup), EBUSY);
	expect("RUN before CONNECT", ioctl(fd, TKR_IOC_RUN, &run), ENOTCONN);
	lane.lane = 2;
	expect("a lane that is not there", ioctl(fd, TKR_IOC_LANE, &lane), EINVAL);
	run.flags = 1u << 31;
	expect("a flag without a name", ioctl(fd, TKR_IOC_RUN, &run), EINVAL);
	run = run_of(&flow);
	run.slots = 1 << 30;
	expect("slots outside the memory", ioctl(fd, TKR_IOC_RUN, &run), EINVAL);
	run = run_of(&flow);
	run.stride = ~0ull;
	expect("a span that wraps", ioctl(fd, TKR_IOC_RUN, &run), EINVAL);
	run = run_of((void *)16);
	expect("flows that are not there", ioctl(fd, TKR_IOC_RUN, &run), EFAULT);
	expect("STATS", ioctl(fd, TKR_IOC_STATS, &stats), 0);
	expect("HIST", ioctl(fd, TKR_IOC_HIST, &hist), 0);
	hist.flags = 2;
	expect("a flag of HIST without a name", ioctl(fd, TKR_IOC_HIST, &hist), EINVAL);
	expect("STOP", ioctl(fd, TKR_IOC_STOP), 0);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = i * 7 + i / 251;
	peek = (struct tkr_peek){ .offset = 9, .bytes = 2 * SLOT_BYTES - 9, .at = (unsigned long)bytes, .flags = TKR_PEEK_STORE };
	expect("PEEK that stores", ioctl(fd, TKR_IOC_PEEK, &peek), 0);
	peek.flags = 0;
	peek.at = (unsigned long)back;
	expect("PEEK", ioctl(fd, TKR_IOC_PEEK, &peek), 0);
	if (memcmp(bytes, back, 2 * SLOT_BYTES - 9))
		expect("what was stored", -1, 0);
	peek.bytes++;
	expect("PEEK behind the end", ioctl(fd, TKR_IOC_PEEK, &peek), EINVAL);
	peek.offset = ~0ull;
	expect("PEEK that wraps", ioctl(fd, TKR_IOC_PEEK, &peek), EINVAL);
	close(fd);
}

/* A peer that allows no access, and then a lane that has failed; the other session does not notice. */
static void failing_lanes(const char *device, const char *other)
{
	struct tkr_setup setups[2] = { setup_of(device), setup_of(other) };
	struct tkr_flow flow = { .lanes = 1, .remote = 4096, .remote_bytes = 4096, .rkey = 77 };
	struct tkr_run run = run_of(&flow);
	struct tkr_stats stats = {};
	int fds[2] = { open_device(), open_device() };
	int i;

	for (i = 0; i < 2; i++)
		expect("SETUP of two sessions", ioctl(fds[i], TKR_IOC_SETUP, &setups[i]), 0);
	connect_both(fds[0], fds[1], setups, 3);
	expect("RUN to a lane, which serves nobody", ioctl(fds[0], TKR_IOC_RUN, &run), 0);
	/* REM_INV_REQ_ERR, or REM_ACCESS_ERR of other devices */
	if ((run.status != 9 && run.status != 10) || flow.issued || run.ops) {
		printf("FAILED a refused read: state %u, %llu operations\n", run.status, (unsigned long long)run.ops);
		failures++;
	}
	expect("STATS of a failed lane", ioctl(fds[0], TKR_IOC_STATS, &stats), 0);
	if (stats.status != run.status)
		expect("the state that STATS tells", -1, 0);
	run = run_of(&flow);
	expect("RUN of a failed lane", ioctl(fds[0], TKR_IOC_RUN, &run), ENOTCONN);
	flow.lane = 1;
	expect("RUN of a lane beside it", ioctl(fds[0], TKR_IOC_RUN, &run), ENOTCONN);
	close(fds[0]);
	close(fds[1]);
}

/* A peer that is gone answers nothing: retried without end, only patience ends it. */
static void silent_peer(const char *device, const char *other)
{
	struct tkr_setup setups[2] = { setup_of(device), setup_of(other) };
	struct tkr_flow flow = { .lanes = 1, .remote = 4096, .remote_bytes = 4096 };
	struct tkr_run run = run_of(&flow);
	int fds[2] = { open_device(), open_device() };
	int i;

	for (i = 0; i < 2; i++)
		expect("SETUP", ioctl(fds[i], TKR_IOC_SETUP, &setups[i]), 0);
	connect_both(fds[0], fds[1], setups, 7);
	close(fds[1]);
	expect("RUN to a peer that is gone", ioctl(fds[0], TKR_IOC_RUN, &run), ETIMEDOUT);
	run = run_of(&flow);
	expect("RUN after that", ioctl(fds[0], TKR_IOC_RUN, &run), ENOTCONN);
	close(fds[0]);
}

/* Where devices belong to namespaces, one of another is not there. */
static int in_namespace(const char *device, int error)
{
	struct tkr_setup setup = setup_of(device);

	expect("a namespace of its own", unshare(CLONE_NEWNET), 0);
	expect("SETUP in it", ioctl(open_device(), TKR_IOC_SETUP, &setup), error);
	printf("namespace: %s\n", failures ? "broken" : "kept");
	return failures != 0;
}

static int hold(const char *device)
{
	struct tkr_setup setup = setup_of(device);
	int fd = open_device();

	expect("SETUP", ioctl(fd, TKR_IOC_SETUP, &setup), 0);
	if (!fork()) {
		sleep(1);
		_exit(0);
	}
	return failures != 0;
}

#define SESSIONS 4
static atomic_int session_fds[SESSIONS];
static const char *devices[2];
static atomic_ulong calls[8];
/* Calls that the module carried out; of RUN those that posted something that was answered, refused or not. */
static atomic_ulong carried_out[8];
/* Ends some runs early. */
static volatile char stop;

static unsigned long long next_random(unsigned long long *state)
{
	unsigned long long x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Changes some bytes of what is nearly right, or all of them. */
static void spoil(void *at, size_t bytes, unsigned long long *state)
{
	unsigned long long how = next_random(state) % 8;
	unsigned char *here = at;
	size_t i;

	if (how == 0)
		for (i = 0; i < bytes; i++)
			here[i] = next_random(state);
	else if (how < 4)
		for (i = 0; i < how; i++)
			here[next_random(state) % bytes] = next_random(state);
}

/* The guest has memory for some of the largest sessions, and time for bounded waits. */
static void fuzz_setup(int fd, unsigned long long *state)
{
	struct tkr_setup setup = setup_of(devices[next_random(state) % 2]);

	setup.lanes = 1 + next_random(state) % 8;
	setup.depth = 1 + next_random(state) % 64;
	spoil(&setup, sizeof(setup), state);
	if (setup.slots > 16)
		setup.slots = next_random(state) % 2 ? setup.slots | 1 << 20 : setup.slots % 16;
	carried_out[0] += !ioctl(fd, TKR_IOC_SETUP, &setup);
}

static void fuzz_connect(int fd, int to, unsigned long long *state)
{
	struct tkr_lane lane = { .lane = next_random(state) % 4 };
	struct tkr_flow flow = { .lanes = 1, .remote = 4096, .remote_bytes = 1 << 20 };
	struct tkr_run run = run_of(&flow);
	struct tkr_connect path = {
		.lane = next_random(state) % 4,
		.mtu_bytes = 1024,
		.timeout = 8,
		.retry = next_random(state) % 8,
		.rnr_retry = 7,
		.rd_atomic = 4,
		.hop_limit = 64,
		.gid = { [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 1, [15] = 1 + next_random(state) % 2 },
	};

	ioctl(to, TKR_IOC_LANE, &lane);
	path.qpn = lane.qpn;
	path.psn = lane.psn;
	spoil(&path, sizeof(path), state);
	/* The kernel looks for an address that nobody has for some seconds. */
	path.gid[12] = 10;
	path.gid[13] = 1;
	path.gid[14] = 0;
	path.gid[15] = 1 + path.gid[15] % 2;
	if (ioctl(fd, TKR_IOC_CONNECT, &path))
		return;
	carried_out[1]++;
	/* What is nearly right everywhere else rarely meets a lane that is connected, and has not failed yet. */
	flow.lane = path.lane;
	run.patience_ns = 10 * MS;
	carried_out[2] += !ioctl(fd, TKR_IOC_RUN, &run) && (run.status || run.ops);
}

static void fuzz_run(int fd, unsigned long long *state)
{
	struct tkr_flow flows[3];
	struct tkr_run run = run_of(flows);
	int i;

	for (i = 0; i < 3; i++)
		flows[i] = (struct tkr_flow){ .lane = next_random(state) % 4, .lanes = 1 + next_random(state) % 2,
					      .remote = 4096, .remote_bytes = 1 << 20, .begin = next_random(state) };
	run.flows = 1 + next_random(state) % 3;
	run.verb = next_random(state) % 2;
	run.pacing = next_random(state) % 3;
	run.local_order = next_random(state) % 4;
	run.remote_order = next_random(state) % 4;
	run.duration_ns = next_random(state) % (20 * MS);
	run.stop_at = next_random(state) % 2 ? (unsigned long)&stop : 0;
	spoil(&run, sizeof(run), state);
	spoil(flows, sizeof(flows), state);
	run.patience_ns %= 50 * MS;
	stop = next_random(state) % 4 == 0;
	carried_out[2] += !ioctl(fd, TKR_IOC_RUN, &run) && (run.status || run.ops);
}

static void fuzz_look(int fd, int kind, unsigned long long *state)
{
	static char bytes[1 << 20];
	static unsigned long long bins[TKR_BINS];
	struct tkr_stats stats = { .lane = next_random(state) % 4 };
	struct tkr_hist hist = { .lane = next_random(state) % 4, .flags = next_random(state) % 2, .bins_at = (unsigned long)bins };
	struct tkr_peek peek = { .offset = next_random(state) % (2 * SLOT_BYTES), .bytes = next_random(state) % SLOT_BYTES,
				 .at = (unsigned long)bytes, .flags = next_random(state) % 2 };

	switch (kind) {
	case 4:
		spoil(&stats, sizeof(stats), state);
		ioctl(fd, TKR_IOC_STATS, &stats);
		break;
	case 5:
		spoil(&hist, sizeof(hist), state);
		/* Not over this program's own memory. */
		hist.bins_at = hist.bins_at == (unsigned long)bins ? hist.bins_at : 0;
		ioctl(fd, TKR_IOC_HIST, &hist);
		break;
	case 6:
		spoil(&peek, sizeof(peek), state);
		peek.bytes %= sizeof(bytes);
		peek.at = next_random(state) % 16 ? (unsigned long)bytes : 16;
		ioctl(fd, TKR_IOC_PEEK, &peek);
		break;
	default:
		ioctl(fd, TKR_IOC_STOP);
	}
}

static void *fuzz_thread(void *seed)
{
	unsigned long long state = (unsigned long)seed;

	for (;;) {
		int at = next_random(&state) % SESSIONS, kind = next_random(&state) % 8;
		int fd = session_fds[at], to = session_fds[next_random(&state) % SESSIONS];

		calls[kind]++;
		if (next_random(&state) % 64 == 0) {
			int fresh = open_device();

			close(atomic_exchange(&session_fds[at], fresh));
			continue;
		}
		if (kind == 0)
			fuzz_setup(fd, &state);
		else if (kind == 1)
			fuzz_connect(fd, to, &state);
		else if (kind < 4)
			fuzz_run(fd, &state);
		else
			fuzz_look(fd, kind, &state);
	}
	return NULL;
}

static int fuzz(unsigned int seconds, unsigned long seed)
{
	static const char *const names[] = { "SETUP", "CONNECT", "RUN", "RUN", "STATS", "HIST", "PEEK", "STOP" };
	pthread_t threads[2];
	int i;

	for (i = 0; i < SESSIONS; i++)
		session_fds[i] = open_device();
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, fuzz_thread, (void *)(seed + i * 1000003));
	sleep(seconds);
	printf("fuzz: seed %lu, %u s:", seed, seconds);
	for (i = 0; i < 8; i++)
		printf(" %s %lu", names[i], calls[i]);
	printf("; carried out:");
	for (i = 0; i < 3; i++)
		printf(" %s %lu", names[i], carried_out[i]);
	printf("\n");
	fflush(stdout);
	/* Whatever the threads do now: their sessions end with them. */
	_exit(carried_out[0] && carried_out[1] && carried_out[2] ? 0 : 1);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "hold"))
		return hold(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "namespace"))
		return in_namespace(argv[2], atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "contract")) {
		refusals(argv[2]);
		failing_lanes(argv[2], argv[3]);
		silent_peer(argv[2], argv[3]);
		printf("contract: %s\n", failures ? "broken" : "kept");
		return failures != 0;
	}
	if (argc == 6 && !strcmp(argv[1], "fuzz")) {
		devices[0] = argv[2];
		devices[1] = argv[3];
		return fuzz(atoi(argv[4]), strtoul(argv[5], NULL, 0));
	}
	fprintf(stderr, "usage: kread contract DEVICE DEVICE | namespace DEVICE ERROR | hold DEVICE | fuzz DEVICE DEVICE SECONDS SEED\n");
	return 2;
}
