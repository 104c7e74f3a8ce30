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

/* Rows in a batch at most: of a heap table, it never spans two pages. */
#define BATCH_ROWS_MAX	MaxHeapTuplesPerPage

/* Flags of rows that one instruction may read or write, and room for whole ones of these. */
#define FLAGS_AT_ONCE	16
#define BATCH_FLAGS_MAX	TYPEALIGN(FLAGS_AT_ONCE, BATCH_ROWS_MAX)

typedef enum ValueKind
{
	VALUE_INTEGER,				/* int64: int2/4/8, oid, bool, date, timestamp */
	VALUE_FLOAT,				/* bits of a double: float4 and float8 */
	VALUE_NUMERIC,				/* int64 times 10^-scale of the vector */
	VALUE_TEXT,					/* pointer to a plain, inline varlena */
	VALUE_OPAQUE				/* only NULL or not NULL is known */
} ValueKind;

struct Dictionary;

typedef struct Vector
{
	Datum	   *values;			/* BATCH_ROWS_MAX words */
	bool	   *nulls;			/* BATCH_FLAGS_MAX flags; read if has_nulls */
	uint8	   *scales;			/* numeric: display scale of each row, read if
								 * has_mixed_scales */
	bool		has_nulls;
	bool		nulls_are_zero; /* their values are; else they may be anything */
	bool		has_mixed_scales;
	bool		holds_pointers; /* numeric: values are stored numerics, not scaled */
	int			scale;			/* numeric: decimal digits of every value */
	uint64		generation;		/* batch that the vector was filled for */
	bool		usable;			/* false: the batch must take the row path */
	const struct Dictionary *dictionary;	/* text: that the values are of; NULL: there is none */
	const uint16 *codes;		/* the entry of each row; read if there is a dictionary */
} Vector;

/*
 * The texts of a column whose source stores each of them once.  Values and flags of its rows
 * are filled as without it: it lets expressions be evaluated for an entry, rather than for each row that has it.
 *
 * What a source owes:
 * - Each entry is a value that the column's type may have, valid in the server's encoding, also where no row has it.
 * - A row that is NULL has the code of an entry that is NULL, and no other row has.
 * - What is computed for the entries is kept by the id.  Other entries, or more of them, have another id, for as long as the
 *   source lives: rescans do not begin anew.
 * - Dictionary, entries and codes stay as they are until the batch is released.
 * - Who fills vectors without the service fill_column sets the dictionary each time: NULL where there is none.
 */
typedef struct Dictionary
{
	uint64		id;				/* not 0 */
	int			count;			/* of entries, from 1 to BATCH_ROWS_MAX */
	Vector		entries;		/* plain, inline varlenas; that of NULL points to one, too */
} Dictionary;

/* Rows of a batch, ascending.  rows == NULL means 0 .. count - 1. */
typedef struct Selection
{
	int			count;
	const uint16 *rows;
} Selection;

#ifdef USE_ASSERT_CHECKING
/* Are the rows of a selection ascending, each once, and below this number? */
static inline bool
selection_is_valid(const Selection *selection, int row_count)
{
	if (selection->count < 0 || selection->count > row_count)
		return false;
	for (int at = 0; selection->rows != NULL && at < selection->count; at++)
		if (selection->rows[at] >= row_count ||
			(at > 0 && selection->rows[at] <= selection->rows[at - 1]))
			return false;
	return true;
}
#endif

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

/* What the rows of a batch are made of. */
typedef struct BatchContents
{
	const TupleBatchOps *ops;
	void	   *source;			/* of the operations, where they need it */
	TupleTableSlot *slot;		/* that a row is materialised in */
} BatchContents;

typedef struct TupleBatch
{
	const TupleBatchOps *ops;
	int			row_count;
	uint64		generation;		/* distinct for each batch of a scan */
	Selection	selection;		/* rows that have passed the quals so far */
	uint16		selected_rows[BATCH_ROWS_MAX];
	void	   *source;			/* of the operations, where they need it */
	TupleDesc	descriptor;		/* of the rows */
	TupleTableSlot *slot;		/* that a row is materialised in */
	BatchColumn *columns;
	int			column_count;
	AttrNumber	last_attno;		/* last attribute that any column needs */
} TupleBatch;

/* batch.c */
extern TupleBatch *batch_create(const TupleBatchOps *ops, TupleDesc descriptor,
								TupleTableSlot *slot);
extern void batch_begin(TupleBatch *batch, const TupleBatchOps *ops,
						TupleDesc descriptor, TupleTableSlot *slot);
extern void vector_allocate(Vector *vector);
extern BatchColumn *batch_add_column(TupleBatch *batch, AttrNumber attno,
									 Oid type, ValueKind kind);
extern void batch_start(TupleBatch *batch, int row_count);
extern void batch_select_all(TupleBatch *batch);
extern void batch_select_row(TupleBatch *batch, int row);
extern void batch_forget_columns(TupleBatch *batch);
extern void batch_exchange_contents(TupleBatch *batch, BatchContents *contents);
extern void vector_check_dictionary(const Vector *vector, const Selection *selection);
extern Selection selection_without_nulls(const Selection *selection,
										 const Vector *vector, uint16 *rows);
extern void vector_merge_nulls(Vector *result, const Vector *left,
							   const Vector *right, const Selection *selection);

static inline const Vector *
batch_column(TupleBatch *batch, BatchColumn *column, const Selection *selection)
{
	Assert(column >= batch->columns && column < batch->columns + batch->column_count);
	Assert(selection_is_valid(selection, batch->row_count));
	if (column->vector.generation != batch->generation)
	{
		batch->ops->fill_column(batch, column, selection);
		if (column->vector.dictionary != NULL)
			vector_check_dictionary(&column->vector, selection);
	}
	return &column->vector;
}

/* numeric_vector.c */
extern void numeric_vector_decode(Vector *result, const Vector *pointers,
								  const Selection *selection);

#endif
