/*
 * heap_batch.h
 *	  A batch of tuples of one heap page.
 */
#ifndef BATCHEXEC_HEAP_BATCH_H
#define BATCHEXEC_HEAP_BATCH_H

#include "access/htup_details.h"
#include "storage/block.h"
#include "storage/buf.h"

#include "batch.h"

/* Bytes of a tuple that are prefetched at most. */
#define PREFETCH_BYTES_MAX	192

/* Attributes of which a byte of bits tells where they are, at most. */
#define PLACED_ATTRIBUTES_MAX	8
#define PLACES					(1 << PLACED_ATTRIBUTES_MAX)

/* Varlena attributes in a row that one loop steps over. */
#define STEPS_FUSED_MAX		3

/* For __builtin_prefetch. */
#define CACHE_LINE_BYTES	64
#define PREFETCH_TO_FIRST_LEVEL		3
#define PREFETCH_TO_SECOND_LEVEL	1

/* How to reach one attribute of a regular tuple. */
typedef struct AttributeStep
{
	int16		length;			/* attlen */
	uint8		alignment_bytes;
	bool		is_fixed;		/* at offset from the start of the data */
	bool		realigns;		/* fixed width behind a varlena: align first */
	uint16		offset;			/* is_fixed: offset; else from positions[] */
	uint16		advance;		/* bytes to add to positions[] before this one */
	bool		is_needed;
	struct PlacedRun *run;		/* fixed width: the run that it is in */
	Vector		pointers;		/* varlena: where the values start */
} AttributeStep;

/*
 * Fixed-width attributes in a row, of one alignment but for the first ones of a
 * tuple: a byte of bits tells where each of them is.
 */
typedef struct PlacedRun
{
	int			first;			/* attribute */
	int			count;
	bool		is_needed;
	uint32		alignment;
	uint32		alignment_behind;	/* at least, if it is so before them */
	int16	   *offsets[PLACED_ATTRIBUTES_MAX + 1]; /* by those bits, of each and of
													 * what is behind; NULL: not needed */

	/* in one batch */
	uint64		generation;		/* that the following is of */
	bool		is_held;		/* all rows have all of them: bits are not filled */
	char	  **starts;			/* of each row; from what the offsets count, */
	uint32		offset;			/* and this, where is_held */
	uint8	   *bits;			/* of each row */
	char	  **own_starts;		/* room for starts */
} PlacedRun;

typedef struct HeapBatch
{
	TupleBatch	base;			/* must be first */

	/* what the rows are made of */
	Oid			table_oid;
	Buffer		buffer;
	BlockNumber block;
	char	  **tuples;			/* row_count tuple headers */
	uint16	   *line_pointers;	/* their offset numbers */
	char	  **tuples_ahead;	/* of the next page, to be prefetched */
	const char *data_ahead;		/* or NULL: its lines, instead of its tuples */
	int			ahead_count;	/* tuples or lines */
	int			ahead_next;		/* the first that has not been asked for */
	int			prefetch_bytes; /* from a tuple's start to what is needed */
	HeapTupleData row_tuple;

	/* how columns are read */
	AttributeStep *steps;		/* one for each attribute up to the last needed */
	int			varlena_count;	/* among the attributes up to last_attno */
	bool		always_irregular;	/* an attribute that is a C string */
	uint64		headers_generation; /* batch whose headers were checked */
	bool		is_regular;		/* no NULLs, one header shape */
	bool		has_external;	/* regular: a value may be stored elsewhere */
	int			header_bytes;	/* regular: t_hoff of every tuple */
	uint64	  **presence;		/* irregular: a word a row for 64 attributes each: bit
								 * set where the tuple holds a value */
	uint64	   *any_missing;	/* bits of attributes that a tuple holds no value of */
	uint64	   *all_missing;	/* bits of those that no tuple holds a value of */
	bool		prefetches_bitmaps; /* prefetch_bytes has room for one */
	bool		has_short_tuples;	/* irregular: older than some attribute */
	PlacedRun  *runs;			/* the first one is of the first attributes, if
								 * they have a fixed width */
	int			run_count;
	bool		runs_are_planned;	/* their offsets are known */
	bool		expects_nulls;	/* the last batch was irregular */
	AttrNumber	first_missing;	/* number of attributes that all tuples hold first */
	char	  **data_starts;	/* irregular: of each tuple, behind its header */
	uint8	   *first_bits;		/* irregular: the first byte of each tuple's bits */
	uint32		alignment_from; /* irregular: known alignment of positions_from */
	AttrNumber	steps_done;		/* attributes that positions_from lies behind */
	uint64		steps_generation;
	char	  **positions_from;	/* regular: the next attribute is behind these, */
	uint32		advance_from;	/* by so many bytes: tuples, then positions */
	char	   *positions[BATCH_ROWS_MAX];
} HeapBatch;

/* deform.c */
extern void deform_plan(HeapBatch *batch);
extern void deform_column(TupleBatch *batch, BatchColumn *column,
						  const Selection *selection);
extern bool deform_check_headers(HeapBatch *batch);
extern int	deform_prefetch_bytes(const HeapBatch *batch);
extern void deform_prefetch_rest(HeapBatch *batch);
extern void deform_offer_prefetch(HeapBatch *batch, char **tuples,
								  int tuple_count, const char *data,
								  int data_bytes);

#endif
