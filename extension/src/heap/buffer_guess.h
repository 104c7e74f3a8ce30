/*
 * buffer_guess.h
 *	  The buffers that the next blocks of a table are likely to be in.
 */
#ifndef BATCHEXEC_BUFFER_GUESS_H
#define BATCHEXEC_BUFFER_GUESS_H

#include "storage/block.h"
#include "storage/buf.h"
#include "utils/relcache.h"

/* The block this far behind the current one is looked for. */
#define BLOCKS_AHEAD	4

/* Guesses kept, for the current block and those behind it. */
#define GUESSES_HELD	64

typedef struct BufferGuess
{
	BlockNumber block;
	Buffer		buffer;
} BufferGuess;

typedef struct BufferGuesses
{
	Relation	relation;
	BlockNumber block_count;
	BufferGuess guesses[GUESSES_HELD];	/* by block number */
	Buffer		position;		/* the next descriptor to read, or InvalidBuffer */
	BlockNumber farthest;		/* highest block found */
	int			misses;			/* in a row */
	int			pause_blocks;	/* blocks that are not to be guessed */
} BufferGuesses;

extern void buffer_guesses_start(BufferGuesses *guesses, Relation relation,
								 BlockNumber block_count);
extern Buffer buffer_guess(const BufferGuesses *guesses, BlockNumber block);
extern void buffer_guesses_learn(BufferGuesses *guesses, BlockNumber block,
								 Buffer buffer);

#endif
