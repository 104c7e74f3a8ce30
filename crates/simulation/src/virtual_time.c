/*
 * virtual_time.c
 *	  Time and randomness of a process in simulation.
 *
 * These functions stand in the place of those of the C library, for the Rust
 * code of the program.  Time stands still while anything can run.  When the
 * event loop would sleep until its next timer, the clock is set to that moment
 * instead.  Each thread draws the same random numbers in every process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S	INT64_C(1000000000)
#define NS_PER_MS	INT64_C(1000000)

/*
 * Later than the monotonic clock of any machine: a thread that waits for a
 * lock with a timeout of the kernel's waits without one.
 */
#define BEGINNING_S	INT64_C(1000000000)

/* 2001-09-09T01:46:40Z */
#define WALL_BEGINNING_S	INT64_C(1000000000)

/* With no timer set, something of another thread must come within so long.  Real milliseconds. */
#define WAITS_MS_MAX	30000

#define RANDOM_BEGINNING	UINT64_C(0x6772697374)

static _Atomic int64_t elapsed_ns;
static atomic_bool is_virtual;

/* Real time goes on until there is an event loop. */
int
epoll_create1(int flags)
{
	atomic_store(&is_virtual, true);
	return (int) syscall(SYS_epoll_create1, flags);
}

int
clock_gettime(clockid_t clock, struct timespec *time)
{
	int64_t		elapsed = atomic_load(&elapsed_ns);
	int64_t		beginning_s = BEGINNING_S;

	if (!atomic_load(&is_virtual))
		return (int) syscall(SYS_clock_gettime, clock, time);
	switch (clock)
	{
		case CLOCK_REALTIME:
		case CLOCK_REALTIME_COARSE:
			beginning_s = WALL_BEGINNING_S;
			break;
		case CLOCK_MONOTONIC:
		case CLOCK_MONOTONIC_RAW:
		case CLOCK_MONOTONIC_COARSE:
		case CLOCK_BOOTTIME:
			break;
		default:
			return (int) syscall(SYS_clock_gettime, clock, time);
	}
	time->tv_sec = beginning_s + elapsed / NS_PER_S;
	time->tv_nsec = elapsed % NS_PER_S;
	return 0;
}

static int
wait_for_events(int epoll, struct epoll_event *events, int events_max, int timeout_ms)
{
	return (int) syscall(SYS_epoll_pwait, epoll, events, events_max, timeout_ms, NULL, 8);
}

int
epoll_wait(int epoll, struct epoll_event *events, int events_max, int timeout_ms)
{
	int			count = wait_for_events(epoll, events, events_max, 0);

	if (count != 0 || timeout_ms == 0)
		return count;
	if (timeout_ms > 0)
	{
		atomic_fetch_add(&elapsed_ns, timeout_ms * NS_PER_MS);
		return 0;
	}
	count = wait_for_events(epoll, events, events_max, WAITS_MS_MAX);
	if (count == 0)
	{
		fprintf(stderr, "the simulation waits for ever: no timer is set, and nothing comes\n");
		abort();
	}
	return count;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t
next_random(void)
{
	static _Thread_local uint64_t state = RANDOM_BEGINNING;
	uint64_t	mixed = (state += UINT64_C(0x9e3779b97f4a7c15));

	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ (mixed >> 31);
}

ssize_t
getrandom(void *buffer, size_t length, unsigned int flags)
{
	char	   *to = buffer;

	(void) flags;
	for (size_t done = 0; done < length; done += sizeof(uint64_t))
	{
		uint64_t	drawn = next_random();
		size_t		left = length - done;

		memcpy(to + done, &drawn, left < sizeof(drawn) ? left : sizeof(drawn));
	}
	return (ssize_t) length;
}

int
getentropy(void *buffer, size_t length)
{
	if (length > 256)
	{
		errno = EIO;
		return -1;
	}
	getrandom(buffer, length, 0);
	return 0;
}
