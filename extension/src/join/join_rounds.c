/*
 * join_rounds.c
 *	  A hash join in rounds, each over a part of the keys, whose inner rows fit
 *	  in memory.
 *
 * Once the inner rows exceed the memory for a hash table, all of them go to files,
 * by bits of their hashes.  When these are complete, and their sizes are known,
 * files that fit in memory together make a round.  The rows of the first round are
 * joined as the outer side is read; outer rows of others wait in a file for each
 * round, unless a filter of all inner hashes tells that they have no match.  Where
 * a part does not fit, its files are divided once more, by other bits.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "cost.h"
#include "join_state.h"

/* Files that inner rows are divided into.  Each has a buffer of a block. */
#define PARTS_MIN		16
#define PARTS_MAX		256
/* Parts a round, by the planner's estimate: more of them fill the memory better. */
#define PARTS_A_ROUND	8
/* Buckets of the hash table for a row, on average. */
#define BUCKET_BYTES_A_ROW	24
/* Of a value that is allocated alone, besides its size, rounded up to a power of two. */
#define ALLOCATION_BYTES	16
#define FILTER_BITS_MIN	(UINT64CONST(1) << 16)
#define FILTER_BITS_MAX	(UINT64CONST(1) << 26)

/*
 * Have the outer batches provide what rows in files are made of: the columns of
 * pairs and of keys.
 */
void
join_rounds_plan_outer(BatchJoinState *state)
{
	const CustomScan *plan = (const CustomScan *) state->node.css.ss.ps.plan;
	const JoinBatch *pairs = &state->pairs;
	Bitmapset  *attributes =
		kept_attributes(list_nth(plan->custom_exprs, BATCH_JOIN_OUTER_KEYS),
						linitial_int(list_nth(plan->custom_private, BATCH_JOIN_OUTER_RELID)));

	for (int i = 0; i < pairs->column_count; i++)
		if (!pairs->columns[i].is_inner)
			attributes = bms_add_member(attributes, pairs->columns[i].attno - 1);
	kept_rows_plan(&state->kept, state->outer->output, attributes);
}

/*
 * Bits of a filter of the inner hashes: between a thirty-second and a sixteenth of the
 * memory for the hash table, as far as the limits let it.
 */
static uint64
filter_bits(Size memory_limit_bytes)
{
	return Min(Max(pg_nextpower2_64(memory_limit_bytes / 4), FILTER_BITS_MIN), FILTER_BITS_MAX);
}

/* How many files to begin with, by the planner's estimate of the rows. */
static int
estimate_parts(const BatchJoinState *state)
{
	const Plan *inner = state->node.css.ss.ps.plan->righttree;
	const double memories = cost_group_memories(inner->plan_rows, inner->plan_width,
												list_length(inner->targetlist));
	const double parts = Min(memories * PARTS_A_ROUND, PARTS_MAX);

	return Max((int) pg_nextpower2_32((uint32) ceil(Max(parts, 1))), PARTS_MIN);
}

/* What a part takes in the hash table, at a guess: rows of one key may be fewer there. */
static uint64
part_table_bytes(const BatchJoinState *state, const RowFile *part)
{
	const JoinRounds *rounds = state->rounds;
	const uint64 key_bytes = rounds->key_bytes / rounds->inner_row_count;
	const bool	keeps_rows = rounds->inner_format->holds_references && !state->table->keeps_one;

	return part->row_count * (state->table->groups->group_bytes + BUCKET_BYTES_A_ROW + key_bytes) +
		(keeps_rows ? part->bytes : 0);
}

/* Put the rows of the hash table into files. */
static void
empty_table(BatchJoinState *state)
{
	JoinTableWalk walk = {.only_unmatched = false};
	DatumBatch *rows = state->inner_rows;
	const JoinRow *row;

	while ((row = join_table_walk(state->table, &walk)) != NULL)
	{
		join_table_fetch(state->table, row, rows);
		if (rows->row_count < BATCH_ROWS_MAX)
			continue;
		batch_start(state->inner_batch, rows->row_count);
		join_rounds_write_inner(state);
		rows->row_count = 0;
	}
	if (rows->row_count > 0)
	{
		batch_start(state->inner_batch, rows->row_count);
		join_rounds_write_inner(state);
		rows->row_count = 0;
	}
	Assert(rows->row_count == 0);
	join_table_reset(state->table);
}

/* The hash table has exceeded its memory: its rows, and all others, go to files. */
void
join_rounds_begin(BatchJoinState *state)
{
	EState	   *estate = state->node.css.ss.ps.state;
	MemoryContext memory = AllocSetContextCreate(estate->es_query_cxt, "BatchJoin rounds",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	TupleDesc	inner = state->inner_rows->descriptor;
	JoinRounds *rounds = palloc0(sizeof(JoinRounds));
	Bitmapset  *all = NULL;

	Assert(state->rounds == NULL);
	state->rounds = rounds;
	rounds->memory = memory;
	rounds->store = row_store_create();
	if (inner->natts > 0)
		all = bms_add_range(NULL, 0, inner->natts - 1);
	rounds->inner_format = row_format_create(inner, all);
	rounds->values = palloc(sizeof(Datum) * (inner->natts + 1));
	rounds->nulls = palloc(sizeof(bool) * (inner->natts + 1));
	kept_rows_begin(&state->kept);
	rounds->part_count = estimate_parts(state);
	rounds->parts = palloc0(sizeof(RowFile *) * rounds->part_count);
	rounds->filter = hash_filter_create(memory, filter_bits(state->memory_limit_bytes));
	MemoryContextSwitchTo(caller);
	empty_table(state);
}

/* The file at a place, made where there is none. */
static RowFile *
file_at(JoinRounds *rounds, RowFile **place)
{
	if (*place == NULL)
		*place = row_file_create(rounds->store);
	return *place;
}

static void
write_inner_row(BatchJoinState *state, int number, uint32 hash)
{
	JoinRounds *rounds = state->rounds;
	const DatumBatch *rows = state->inner_rows;
	const int	part = row_part_of_hash(hash, 0, rounds->part_count);
	Assert(part >= 0 && part < rounds->part_count);
	Assert(number >= 0 && number < rows->row_count);

	for (int i = 0; i < rows->descriptor->natts; i++)
	{
		rounds->values[i] = rows->attributes[i].values[number];
		rounds->nulls[i] = rows->attributes[i].nulls[number];
	}
	row_file_write(file_at(rounds, &rounds->parts[part]), rounds->inner_format,
				   rounds->values, rounds->nulls, hash);
}

/* Inner rows with a NULL key go to all parts alike. */
static void
write_unkeyed(BatchJoinState *state, const Selection *present)
{
	const int	row_count = state->inner_batch->row_count;
	bool		has_key[BATCH_ROWS_MAX] = {false};

	FOR_SELECTED(number, present, has_key[number] = true);
	for (int number = 0; number < row_count; number++)
		if (!has_key[number])
			write_inner_row(state, number, state->rounds->unkeyed_count++);
}

/* Count what copies of the keys of these rows take. */
static void
count_key_bytes(BatchJoinState *state, const Selection *present)
{
	const GroupTable *groups = state->table->groups;

	for (int i = 0; i < groups->key_count; i++)
		if (group_copies_key(groups, &groups->keys[i]))
			FOR_SELECTED(number, present,
						 const void *value = DatumGetPointer(groups->keys[i].vector->values[number]);
						 state->rounds->key_bytes += pg_nextpower2_64(VARSIZE_ANY(value)) + ALLOCATION_BYTES);
}

/* Write the inner rows that were collected. */
void
join_rounds_write_inner(BatchJoinState *state)
{
	JoinRounds *rounds = state->rounds;
	const uint32 *hashes = state->table->groups->row_hashes;
	Selection	present;
	uint16		numbers[BATCH_ROWS_MAX];

	CHECK_FOR_INTERRUPTS();
	ResetExprContext(state->inner_context.econtext);
	present = join_table_hash_inner(state->table, &state->inner_context, numbers);
	FOR_SELECTED(number, &present,
				 hash_filter_add(&rounds->filter, hashes[number]);
				 write_inner_row(state, number, hashes[number]));
	count_key_bytes(state, &present);
	if (state->table->keeps_all && present.count < state->inner_batch->row_count)
		write_unkeyed(state, &present);
}

static JoinRound *
create_round(JoinRounds *rounds, int level)
{
	JoinRound  *round = MemoryContextAllocZero(rounds->memory, sizeof(JoinRound));

	round->level = level;
	return round;
}

static void
add_part(BatchJoinState *state, JoinRound *round, RowFile *part)
{
	MemoryContext caller = MemoryContextSwitchTo(state->rounds->memory);

	round->inner = lappend(round->inner, part);
	round->table_bytes += part_table_bytes(state, part);
	MemoryContextSwitchTo(caller);
}

/*
 * Make rounds of parts, as many of them together as fit in memory, and note the round
 * of each part.  A part that alone does not fit has a round of its own.
 */
static List *
make_rounds(BatchJoinState *state, RowFile **parts, JoinRound **round_of_part, int level)
{
	JoinRounds *rounds = state->rounds;
	MemoryContext caller = MemoryContextSwitchTo(rounds->memory);
	JoinRound  *open = create_round(rounds, level);
	List	   *made = list_make1(open);

	for (int part = 0; part < rounds->part_count; part++)
	{
		uint64		bytes = parts[part] == NULL ? 0 : part_table_bytes(state, parts[part]);
		JoinRound  *round = open;

		if (bytes > state->memory_limit_bytes)
			made = lappend(made, round = create_round(rounds, level));
		else if (open->table_bytes + bytes > state->memory_limit_bytes)
			made = lappend(made, round = open = create_round(rounds, level));
		round_of_part[part] = round;
		if (parts[part] != NULL)
			add_part(state, round, parts[part]);
	}
	MemoryContextSwitchTo(caller);
	return made;
}

static void
close_outer(JoinRound *round)
{
	if (round->outer != NULL)
		row_file_close(round->outer);
	round->outer = NULL;
}

static void
close_inner(JoinRound *round)
{
	ListCell   *cell;

	foreach(cell, round->inner)
		row_file_close(lfirst(cell));
	round->inner = NIL;
}

/*
 * Divide a round that does not fit in memory into smaller ones, in its place.  Inner rows
 * whose hashes are alike stay together however often they are divided, so this is the last time.
 */
static List *
divide_round(BatchJoinState *state, JoinRound *round)
{
	JoinRounds *rounds = state->rounds;
	const int	level = round->level + 1;
	Assert(level <= ROW_LEVELS_MAX);
	const Size	array_bytes = sizeof(void *) * rounds->part_count;
	RowFile   **parts = MemoryContextAllocZero(rounds->memory, array_bytes);
	JoinRound **round_of_part = MemoryContextAllocZero(rounds->memory, array_bytes);
	bool		are_alike = true;
	int64		first_hash = -1;
	List	   *made;
	ListCell   *cell;

	foreach(cell, round->inner)
	{
		RowFile    *file = lfirst(cell);

		for (uint64 left = file->row_count; left > 0; left--)
		{
			const FileRow *row = row_file_read(file, rounds->inner_format);
			const int	part = row_part_of_hash((uint32) row->hash, level, rounds->part_count);

			CHECK_FOR_INTERRUPTS();
			if (first_hash < 0)
				first_hash = (int64) row->hash;
			are_alike &= ((int64) row->hash == first_hash);
			row_file_append(file_at(rounds, &parts[part]), row);
		}
	}
	close_inner(round);
	made = make_rounds(state, parts, round_of_part, are_alike ? ROW_LEVELS_MAX : level);
	if (round->outer != NULL)
	{
		for (uint64 left = round->outer->row_count; left > 0; left--)
		{
			const FileRow *row = row_file_read(round->outer, state->kept.format);
			const int	part = row_part_of_hash((uint32) row->hash, level, rounds->part_count);

			CHECK_FOR_INTERRUPTS();
			row_file_append(file_at(rounds, &round_of_part[part]->outer), row);
		}
		close_outer(round);
	}
	pfree(parts);
	pfree(round_of_part);
	pfree(round);
	return made;
}

/* Read the inner rows of a round into the hash table. */
static void
load_round(BatchJoinState *state, JoinRound *round)
{
	JoinRounds *rounds = state->rounds;
	DatumBatch *rows = state->inner_rows;
	ListCell   *cell;

	join_table_reset(state->table);
	rows->row_count = 0;
	foreach(cell, round->inner)
	{
		RowFile    *file = lfirst(cell);

		for (uint64 left = file->row_count; left > 0; left--)
		{
			FileRow    *row = row_file_read(file, rounds->inner_format);

			if (rounds->inner_format->holds_references)
				row = join_table_copy_bytes(state->table, row, row->bytes);
			row_format_to_batch(rounds->inner_format, row, rows);
			if (rows->row_count < BATCH_ROWS_MAX)
				continue;
			CHECK_FOR_INTERRUPTS();
			join_inner_flush(state);
		}
	}
	if (rows->row_count > 0)
		join_inner_flush(state);
	close_inner(round);
}

/* All inner rows are in files: make rounds of them, and load the first. */
void
join_rounds_start(BatchJoinState *state)
{
	JoinRounds *rounds = state->rounds;
	MemoryContext caller = MemoryContextSwitchTo(rounds->memory);

	Assert(rounds->current == NULL && rounds->inner_row_count == 0);
	for (int part = 0; part < rounds->part_count; part++)
		rounds->inner_row_count += rounds->parts[part] == NULL ? 0 :
			rounds->parts[part]->row_count;
	rounds->round_of_part = palloc(sizeof(JoinRound *) * rounds->part_count);
	rounds->waiting = make_rounds(state, rounds->parts, rounds->round_of_part, 0);
	rounds->first = rounds->current = linitial(rounds->waiting);
	rounds->waiting = list_delete_first(rounds->waiting);
	rounds->rounds_made = 1;
	MemoryContextSwitchTo(caller);
	load_round(state, rounds->first);
}

/* Begin the next round; false where none is left. */
bool
join_rounds_next(BatchJoinState *state)
{
	JoinRounds *rounds = state->rounds;

	Assert(rounds->outer_rows_left == 0 || rounds->current == rounds->first);
	close_outer(rounds->current);
	while (rounds->waiting != NIL)
	{
		JoinRound  *round = linitial(rounds->waiting);
		MemoryContext caller = MemoryContextSwitchTo(rounds->memory);

		rounds->waiting = list_delete_first(rounds->waiting);
		if (round->table_bytes > state->memory_limit_bytes && round->level < ROW_LEVELS_MAX)
		{
			rounds->waiting = list_concat(divide_round(state, round), rounds->waiting);
			MemoryContextSwitchTo(caller);
			continue;
		}
		MemoryContextSwitchTo(caller);
		/* None of its rows has a match. */
		if (round->outer == NULL && !state->table->keeps_all)
		{
			close_inner(round);
			continue;
		}
		load_round(state, round);
		kept_rows_start_reading(&state->kept);
		rounds->current = round;
		rounds->rounds_made++;
		rounds->outer_rows_left = 0;
		if (round->outer != NULL)
			rounds->outer_rows_left = round->outer->row_count;
		return true;
	}
	return false;
}

/*
 * Write the outer rows of later rounds, and leave them out of the batch; present are
 * those whose keys are not NULL.  Those that can have no match leave present alone.
 */
void
join_rounds_write_outer(BatchJoinState *state, Selection *present, uint16 *numbers)
{
	JoinRounds *rounds = state->rounds;
	TupleBatch *outer = state->outer->output;
	const uint32 *hashes = state->table->groups->row_hashes;
	const bool	filters = !hash_filter_is_useless(&rounds->filter);
	bool		is_written[BATCH_ROWS_MAX] = {false};
	int			written = 0;
	int			count = 0;

	if (rounds->current != rounds->first)
		return;
	FOR_SELECTED(row, present,
				 JoinRound *round = rounds->round_of_part[row_part_of_hash(hashes[row], 0,
																	   rounds->part_count)];
				 if (round == rounds->first)
				 {
					 numbers[count++] = row;
					 continue;
				 }
				 if (filters)
				 {
					 const bool passes = hash_filter_passes(&rounds->filter, hashes[row]);

					 hash_filter_count(&rounds->filter, 1, passes);
					 if (!passes)
						 continue;
				 }
				 kept_rows_write(&state->kept, file_at(rounds, &round->outer), row, hashes[row]);
				 is_written[row] = true;
				 written++);
	Assert(count + written <= present->count);
	present->count = count;
	present->rows = numbers;
	if (written == 0)
		return;
	count = 0;
	FOR_SELECTED(row, &outer->selection,
				 outer->selected_rows[count] = row;
				 count += !is_written[row]);
	outer->selection.count = count;
	outer->selection.rows = outer->selected_rows;
}

/* Read a batch of the round's outer rows; false where none is left. */
bool
join_rounds_next_outer(BatchJoinState *state)
{
	JoinRounds *rounds = state->rounds;
	KeptRows   *kept = &state->kept;

	CHECK_FOR_INTERRUPTS();
	kept_rows_start_batch(kept);
	for (; rounds->outer_rows_left > 0 && !kept_rows_is_full(kept); rounds->outer_rows_left--)
		kept_rows_add(kept, row_file_read(rounds->current->outer, kept->format));
	batch_start(kept->batch, kept->rows->row_count);
	Assert(kept->rows->row_count <= BATCH_ROWS_MAX);
	return kept->rows->row_count > 0;
}

/* Let go of the files, and give the outer node its batch back. */
void
join_rounds_end(BatchJoinState *state)
{
	JoinRounds *rounds = state->rounds;

	if (rounds == NULL)
		return;
	kept_rows_end(&state->kept);
	row_store_close(rounds->store);
	MemoryContextDelete(rounds->memory);
	state->rounds = NULL;
}
