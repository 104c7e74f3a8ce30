/*
 * buffer_guess.c
 *	  Which buffers the next blocks of a table are in, without the mapping hash.
 *
 * A table that was read or written in order lies in ascending buffers, though
 * other tables' blocks may lie between, and blocks that several processes read
 * are out of order by a few.  So the buffer descriptors are read one after
 * another, some way ahead of the scan, and what they hold of the blocks to come
 * is noted.  They are read without a lock: whoever pins a buffer that was
 * guessed has to see whether it is the one.
 */
#include "postgres.h"

#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "buffer_guess.h"
#include "server.h"

/* Descriptors that are read for one block at most. */
#define DESCRIPTORS_READ_MAX	32

/* How far before a block's buffer reading begins, and how often it begins anew. */
#define BUFFERS_BEFORE	16
#define MISSES_BEFORE_RESTART	2

/* After so many misses in a row guessing pauses, for this many blocks. */
#define MISSES_BEFORE_PAUSE	8
#define PAUSE_BLOCKS	128

void
buffer_guesses_start(BufferGuesses *guesses, Relation relation,
					 BlockNumber block_count)
{
	guesses->relation = relation;
	guesses->block_count = block_count;
	for (int i = 0; i < GUESSES_HELD; i++)
		guesses->guesses[i].block = InvalidBlockNumber;
	guesses->position = InvalidBuffer;
	guesses->misses = guesses->pause_blocks = 0;
}

/* The buffer that a block is likely to be in, or InvalidBuffer. */
Buffer
buffer_guess(const BufferGuesses *guesses, BlockNumber block)
{
	const BufferGuess *guess = &guesses->guesses[block % GUESSES_HELD];

	return guess->block == block ? guess->buffer : InvalidBuffer;
}

/*
 * Note what one descriptor holds of the blocks behind this one.  Pinning by a
 * guess does not raise the buffer's usage count, so one that the clock sweep
 * has brought to zero is left out, lest tables in constant use be evicted.
 */
static inline void
read_descriptor(BufferGuesses *guesses, BlockNumber block, Buffer buffer)
{
	BufferDesc *descriptor = GetBufferDescriptor(buffer - 1);
	BlockNumber found = descriptor->tag.blockNum;
	BufferGuess *guess = &guesses->guesses[found % GUESSES_HELD];
	Assert(buffer >= 1 && buffer <= NBuffers);

	if (TAG_RELATION(descriptor->tag) != RELATION_NUMBER(guesses->relation) ||
		descriptor->tag.forkNum != MAIN_FORKNUM ||
		found <= block || found - block >= GUESSES_HELD ||
		BUFFER_USAGE_COUNT(descriptor) == 0)
		return;
	guess->block = found;
	guess->buffer = buffer;
	Assert(guess == &guesses->guesses[guess->block % GUESSES_HELD]);
	guesses->farthest = Max(guesses->farthest, found);
}

/* Read descriptors until the block to come is found, or looked for in vain. */
static void
read_ahead(BufferGuesses *guesses, BlockNumber block)
{
	BlockNumber wanted = block + BLOCKS_AHEAD;
	Buffer		end = Min((int64) guesses->position + DESCRIPTORS_READ_MAX,
						  (int64) NBuffers + 1);

	/* Behind the last buffer, when all have been read: no valid one. */
	Assert(guesses->position >= 1 && guesses->position <= NBuffers + 1);
	if (wanted >= guesses->block_count)
		return;
	while (guesses->position < end &&
		   !BufferIsValid(buffer_guess(guesses, wanted)) &&
		   guesses->farthest < block + GUESSES_HELD / 2)
		read_descriptor(guesses, block, guesses->position++);
}

/* Note the buffer that a block is in, and look for the blocks behind it. */
void
buffer_guesses_learn(BufferGuesses *guesses, BlockNumber block, Buffer buffer)
{
	bool		is_guessed;

	/* Local buffers have negative numbers and are never guessed. */
	if (BufferIsLocal(buffer))
		return;
	if (guesses->pause_blocks > 0)
	{
		guesses->pause_blocks--;
		return;
	}
	is_guessed = buffer_guess(guesses, block) == buffer;
	Assert(buffer >= 1 && buffer <= NBuffers);
	if (is_guessed)
		guesses->misses = 0;
	/* A single miss does not count: one block is often out of line. */
	if (guesses->position == InvalidBuffer ||
		(!is_guessed && ++guesses->misses % MISSES_BEFORE_RESTART == 0))
	{
		guesses->position = Max(buffer - BUFFERS_BEFORE, 1);
		guesses->farthest = block;
	}
	if (guesses->misses >= MISSES_BEFORE_PAUSE)
	{
		guesses->misses = 0;
		guesses->pause_blocks = PAUSE_BLOCKS;
		guesses->position = InvalidBuffer;
		return;
	}
	read_ahead(guesses, block);
}
