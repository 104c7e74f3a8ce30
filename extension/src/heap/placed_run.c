/*
 * placed_run.c
 *	  Runs of fixed-width attributes of an irregular page.
 *
 * Which of a run's attributes a tuple holds is a byte of bits.  Where each of
 * them is follows from that byte and where the run starts, and is looked up: a
 * run of eight attributes takes no more steps than one of a single attribute.
 */
#include "postgres.h"

#include "deform.h"

/* What a NULL is loaded from: bytes in front of the run, if only to be masked out. */
#define OFFSET_OF_NULL		(-(int) sizeof(int64))

/* A run takes no more, but for one of a single attribute. */
#define RUN_BYTES_MAX		4096

/* The largest alignment that an address at this offset from an aligned one has. */
static uint32
alignment_at(uint32 alignment, uint32 offset)
{
	return offset == 0 ? alignment : Min(alignment, offset & -offset);
}

static uint32
run_mask(const PlacedRun *run)
{
	Assert(run->count >= 1 && run->count <= PLACED_ATTRIBUTES_MAX);
	return (1 << run->count) - 1;
}

/* May the attributes from first to last be one run? */
static bool
fits_run(const HeapBatch *batch, int first, int last)
{
	uint32		bytes = 0;

	if (last - first >= PLACED_ATTRIBUTES_MAX ||
		first / WORD_ATTRIBUTES != last / WORD_ATTRIBUTES ||
		batch->steps[last].length <= 0)
		return false;
	/* The first attributes start at an address of the largest alignment. */
	if (first > 0 &&
		batch->steps[first].alignment_bytes != batch->steps[last].alignment_bytes)
		return false;
	for (int i = first; i <= last; i++)
		bytes += TYPEALIGN(MAXIMUM_ALIGNOF, batch->steps[i].length);
	return bytes <= RUN_BYTES_MAX || first == last;
}

static void
run_allocate(HeapBatch *batch, int first)
{
	PlacedRun  *run = &batch->runs[batch->run_count++];
	int			behind = first;
	Assert(batch->run_count <= batch->base.last_attno);
	Assert(batch->steps[first].length > 0);

	run->first = first;
	run->alignment = first == 0 ? MAXIMUM_ALIGNOF : batch->steps[first].alignment_bytes;
	run->alignment_behind = MAXIMUM_ALIGNOF;
	for (; behind < batch->base.last_attno && fits_run(batch, first, behind); behind++)
	{
		AttributeStep *step = &batch->steps[behind];

		step->run = run;
		run->alignment_behind = Min(run->alignment_behind,
									alignment_at(step->alignment_bytes, step->length));
		run->is_needed |= step->is_needed;
		if (step->is_needed)
			run->offsets[behind - first] = palloc(sizeof(int16) * PLACES);
	}
	run->count = behind - first;
	Assert(run->count >= 1 && run->count <= PLACED_ATTRIBUTES_MAX);
	run->offsets[run->count] = palloc(sizeof(int16) * PLACES);
	run->own_starts = palloc(sizeof(char *) * BATCH_ROWS_MAX);
	run->bits = first == 0 ? batch->first_bits : palloc0(BATCH_FLAGS_MAX);
}

/* Make room for the runs among the attributes up to the last one needed. */
void
runs_allocate(HeapBatch *batch)
{
	batch->runs = palloc0(sizeof(PlacedRun) * (batch->base.last_attno + 1));
	for (int i = 0; i < batch->base.last_attno; i++)
		if (batch->steps[i].length > 0 && batch->steps[i].run == NULL)
			run_allocate(batch, i);
}

/* Place the attributes of a run in a tuple that holds those whose bits are set. */
static void
plan_places(const HeapBatch *batch, PlacedRun *run, int bits)
{
	uint32		offset = 0;

	for (int i = 0; i < run->count; i++)
	{
		const AttributeStep *step = &batch->steps[run->first + i];
		const bool	is_held = (bits >> i) & 1;

		if (is_held)
			offset = TYPEALIGN(step->alignment_bytes, offset);
		if (run->offsets[i] != NULL)
			run->offsets[i][bits] = is_held ? (int16) offset : OFFSET_OF_NULL;
		if (is_held)
			offset += step->length;
	}
	Assert(run->count == 1 || offset <= RUN_BYTES_MAX + PLACED_ATTRIBUTES_MAX * MAXIMUM_ALIGNOF);
	run->offsets[run->count][bits] = (int16) offset;
}

/* The first irregular page calls this. */
void
runs_plan(HeapBatch *batch)
{
	batch->runs_are_planned = true;
	gather_masks_fill();
	for (int i = 0; i < batch->run_count; i++)
		for (int bits = 0; bits < PLACES; bits++)
			plan_places(batch, &batch->runs[i], bits);
}

/* Note where the run starts in each row, and which of its attributes the row holds. */
static void
find_starts(HeapBatch *batch, PlacedRun *run, const Selection *selection)
{
	const uint64 *presence = batch->presence[run->first / WORD_ATTRIBUTES];
	const int	shift = run->first % WORD_ATTRIBUTES;
	const uint32 mask = run_mask(run);
	const uint32 alignment = run->alignment;
	const uint32 advance = batch->advance_from;
	char	  **from = batch->positions_from;
	char	  **starts = run->own_starts;
	uint8	   *bits = run->bits;

	Assert(shift + run->count <= WORD_ATTRIBUTES);
	FOR_SELECTED(row, selection,
				 char *start = from[row] + advance;
				 const uint8 held = (presence[row] >> shift) & mask;
				 bits[row] = held;
				 starts[row] = held == 0 ? start : (char *) TYPEALIGN(alignment, start));
	run->starts = starts;
	run->offset = 0;
}

/* The same, where all rows hold all of the run's attributes. */
static void
find_starts_held(HeapBatch *batch, PlacedRun *run, const Selection *selection)
{
	const uint32 alignment = run->alignment;
	const uint32 advance = batch->advance_from;
	char	  **from = batch->positions_from;
	char	  **starts = run->own_starts;

	Assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
	run->starts = from;
	run->offset = TYPEALIGN(alignment, advance);
	/* The positions move on, and would be lost. */
	if (alignment <= batch->alignment_from && (from != batch->positions || !run->is_needed))
		return;
	FOR_SELECTED(row, selection,
				 starts[row] = (char *) TYPEALIGN(alignment, from[row] + advance));
	run->starts = starts;
	run->offset = 0;
}

/* Get ready for gathering the run's columns; the steps are right before it. */
void
run_enter(HeapBatch *batch, PlacedRun *run, const Selection *selection)
{
	const uint64 missing = batch->any_missing[run->first / WORD_ATTRIBUTES];
	Assert(batch->runs_are_planned);

	if (run->generation == batch->base.generation)
		return;
	run->generation = batch->base.generation;
	run->is_held = ((missing >> (run->first % WORD_ATTRIBUTES)) & run_mask(run)) == 0;
	if (run->is_held)
		find_starts_held(batch, run, selection);
	else if (run->first == 0)
		run->starts = batch->data_starts;
	else
		find_starts(batch, run, selection);
}

/* Step over the run. */
void
run_pass(HeapBatch *batch, PlacedRun *run, const Selection *selection)
{
	const int16 *ends = run->offsets[run->count];
	const uint8 *bits = run->bits;
	char	  **positions = batch->positions;
	char	  **starts;

	run_enter(batch, run, selection);
	starts = run->starts;
	Assert(run->generation == batch->base.generation && starts != NULL);
	if (run->is_held)
	{
		batch->positions_from = starts;
		batch->advance_from = run->offset + ends[run_mask(run)];
		if (starts == run->own_starts)
			batch->alignment_from = run->alignment;
		return;
	}
	FOR_SELECTED(row, selection, positions[row] = starts[row] + ends[bits[row]]);
	batch->alignment_from = Min(run->alignment_behind,
								alignment_at(batch->alignment_from, batch->advance_from));
	batch->positions_from = positions;
	batch->advance_from = 0;
}
