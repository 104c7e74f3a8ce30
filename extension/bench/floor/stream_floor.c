/*
 * The floor under every scan: how long this machine takes to stream a table's bytes through one core.
 *
 * usage: stream_floor BYTES ROUNDS
 * prints the median milliseconds of ROUNDS passes that add up BYTES bytes as 64-bit words.
 *
 * The memory is shared and anonymous with ordinary pages, as PostgreSQL's shared buffers are.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ROUNDS_MAX 1000

static double
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static int
compare_double(const void *left, const void *right)
{
	double		difference = *(const double *) left - *(const double *) right;

	return (difference > 0) - (difference < 0);
}

int
main(int argc, char **argv)
{
	size_t		bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	int			rounds = argc > 2 ? atoi(argv[2]) : 0;
	double		took_ms[ROUNDS_MAX];
	volatile uint64_t kept;
	uint64_t   *words;

	if (bytes < 64 || rounds < 1 || rounds > ROUNDS_MAX)
	{
		fprintf(stderr, "usage: stream_floor BYTES (64 or more) ROUNDS (1 to %d)\n", ROUNDS_MAX);
		return 2;
	}
	words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (words == MAP_FAILED)
	{
		perror("stream_floor: mmap");
		return 1;
	}
	memset(words, 1, bytes);

	for (int round = 0; round < rounds; round++)
	{
		double		start = now_ms();
		uint64_t	sums[8] = {0};

		/* Eight sums, so that the additions do not wait for one another. */
		for (size_t at = 0; at + 8 <= bytes / sizeof(uint64_t); at += 8)
			for (int lane = 0; lane < 8; lane++)
				sums[lane] += words[at + lane];
		kept = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
		(void) kept;
		took_ms[round] = now_ms() - start;
	}
	qsort(took_ms, rounds, sizeof(double), compare_double);
	printf("%.3f\n", took_ms[rounds / 2]);
	return 0;
}
