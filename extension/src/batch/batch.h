/*
 * batch.h
 *	  Batches of rows as column vectors, and the selection of rows in them.
 *
 * A batch never holds more rows than one heap page, so vectors have a fixed
 * capacity.  Every vector element is a Datum-wide word, whatever the column's
 * type; its meaning follows from the ValueKind.
 */
#ifndef BATCHEXEC_BATCH_H
#define BATCHEXEC_BATCH_H

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "storage/buf.h"
#include "storage/block.h"

/* Rows in a batch at most: a batch never spans two pages. */
#define BATCH_ROWS_MAX	MaxHeapTuplesPerPage

/* Bytes of a tuple that are prefetched at most. */
#define PREFETCH_BYTES_MAX	192

/* Attributes of which a byte of a null bitmap tells where they are, at most. */
#define PLACED_ATTRIBUTES_MAX	8

/* For __builtin_prefetch. */
#define CACHE_LINE_BYTES	64
#define PREFETCH_TO_FIRST_LEVEL		3
#define PREFETCH_TO_SECOND_LEVEL	1

typedef enum ValueKind
{
	VALUE_INTEGER,				/* int64: int2/4/8, oid, bool, date, timestamp */
	VALUE_FLOAT,				/* bits of a double: float4 and float8 */
	VALUE_NUMERIC,				/* int64 times 10^-scale of the vector */
	VALUE_TEXT,					/* pointer to a plain, inline varlena */
	VALUE_OPAQUE				/* only NULL or not NULL is known */
} ValueKind;

typedef struct Vector
{
	Datum	   *values;			/* BATCH_ROWS_MAX words */
	bool	   *nulls;			/* BATCH_ROWS_MAX flags; read if has_nulls */
	uint8	   *scales;			/* numeric: display scale of each row, read if
								 * has_mixed_scales */
	bool		has_nulls;
	bool		nulls_are_zero; /* their values are; else they may be anything */
	bool		has_mixed_scales;
	bool		holds_pointers; /* numeric: values are stored numerics, not scaled */
	int			scale;			/* numeric: decimal digits of every value */
	uint64		generation;		/* batch that the vector was filled for */
	bool		usable;			/* false: the batch must take the row path */
} Vector;

/* Rows of a batch, ascending.  rows == NULL means 0 .. count - 1. */
typedef struct Selection
{
	int			count;
	const uint16 *rows;
} Selection;

/*
 * Run a statement for every selected row number.  Two loops, so that the
 * compiler may vectorise the dense one.
 */
#define FOR_SELECTED(row_, selection_, ...) \
	do { \
		const int	count_ = (selection_)->count; \
		const uint16 *rows_ = (selection_)->rows; \
		if (rows_ == NULL) \
			for (int row_ = 0; row_ < count_; row_++) { __VA_ARGS__; } \
		else \
			for (int at_ = 0; at_ < count_; at_++) \
			{ \
				const int row_ = rows_[at_]; \
				__VA_ARGS__; \
			} \
	} while (0)

/* One column decoded to one kind of value. */
typedef struct BatchColumn
{
	AttrNumber	attno;
	Oid			type;
	ValueKind	kind;
	Vector		vector;
} BatchColumn;

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
	Vector		pointers;		/* varlena: where the values start */
} AttributeStep;

struct TupleBatch;

/*
 * What a source of batches provides.  Quals and aggregates use these alone,
 * so a source with another format needs no change in them.
 */
typedef struct TupleBatchOps
{
	/* Fill column->vector for the selected rows of this batch. */
	void		(*fill_column) (struct TupleBatch *batch, BatchColumn *column,
								const Selection *selection);
	/* Store one row in the batch's slot, valid until the batch is released. */
	TupleTableSlot *(*materialise_row) (struct TupleBatch *batch, int row);
	/* Let go of what the batch's rows live in. */
	void		(*release) (struct TupleBatch *batch);
} TupleBatchOps;

typedef struct TupleBatch
{
	const TupleBatchOps *ops;
	int			row_count;
	uint64		generation;		/* distinct for each batch of a scan */
	Selection	selection;		/* rows that have passed the quals so far */
	uint16		selected_rows[BATCH_ROWS_MAX];
	void	   *source;			/* of the operations, where they need it */

	/* what the rows are made of */
	TupleDesc	descriptor;
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
	TupleTableSlot *slot;
	HeapTupleData row_tuple;

	/* columns */
	BatchColumn *columns;
	int			column_count;
	AttributeStep *steps;		/* one for each attribute up to the last needed */
	AttrNumber	last_attno;		/* last attribute that any column needs */
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
	int			placed_count;	/* first attributes that are placed by a table: */
	int16	   *offsets[PLACED_ATTRIBUTES_MAX + 1]; /* by their bits, from data_starts; NULL: not needed */
	uint8	   *first_bits;		/* irregular: those bits of each row */
	uint32		placed_alignment;	/* known alignment of what is behind them */
	AttrNumber	first_missing;	/* number of attributes that all tuples hold first */
	char	  **data_starts;	/* irregular: of each tuple, behind its header */
	uint32		alignment_from; /* irregular: known alignment of positions_from */
	AttrNumber	steps_done;		/* attributes that positions_from lies behind */
	uint64		steps_generation;
	char	  **positions_from;	/* regular: the next attribute is behind these, */
	uint32		advance_from;	/* by so many bytes: tuples, then positions */
	char	   *positions[BATCH_ROWS_MAX];
} TupleBatch;

/* batch.c */
extern TupleBatch *batch_create(const TupleBatchOps *ops, TupleDesc descriptor,
								Oid table_oid, TupleTableSlot *slot);
extern void vector_allocate(Vector *vector);
extern BatchColumn *batch_add_column(TupleBatch *batch, AttrNumber attno,
									 Oid type, ValueKind kind);
extern void batch_start(TupleBatch *batch, int row_count);
extern void batch_select_all(TupleBatch *batch);
extern Selection selection_without_nulls(const Selection *selection,
										 const Vector *vector, uint16 *rows);
extern void vector_merge_nulls(Vector *result, const Vector *left,
							   const Vector *right, const Selection *selection);

static inline const Vector *
batch_column(TupleBatch *batch, BatchColumn *column, const Selection *selection)
{
	if (column->vector.generation != batch->generation)
		batch->ops->fill_column(batch, column, selection);
	return &column->vector;
}

/* deform.c */
extern void deform_plan(TupleBatch *batch);
extern void deform_column(TupleBatch *batch, BatchColumn *column,
						  const Selection *selection);
extern bool deform_check_headers(TupleBatch *batch);
extern int	deform_prefetch_bytes(const TupleBatch *batch);
extern void deform_prefetch_rest(TupleBatch *batch);
extern void deform_offer_prefetch(TupleBatch *batch, char **tuples,
								  int tuple_count, const char *data,
								  int data_bytes);

/* numeric_vector.c */
extern void numeric_vector_decode(Vector *result, const Vector *pointers,
								  const Selection *selection);

#endif
