/*
 * top_rows.c
 *	  Rows of a scan that a Sort with a bound above it can't return.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "demand.h"
#include "batch_limits.h"
#include "datum_vector.h"
#include "top_rows.h"

/* What a Sort takes for a row beside its columns. */
#define SORT_ROW_BYTES	64

void
top_rows_begin(TopRows *top, const TopRowsPlan *plan, VectorContext *context,
			   EState *estate)
{
	ValueKind	kind;

	memset(top, 0, sizeof(TopRows));
	if (plan->attno <= 0 || !value_kind_of_type(plan->type, &kind))
		return;
	top->plan = *plan;
	top->estate = estate;
	sort_key_begin(&top->sort_key, 0, plan->type, plan->operator, plan->collation, plan->nulls_first);
	/* A stored numeric is a pointer, as a text is. */
	if (top->sort_key.words != WORDS_NONE)
		top->key = vector_column(context, plan->attno, plan->type, kind == VALUE_NUMERIC ? VALUE_TEXT : kind);
}

/* To be called at a rescan: the Sort may have another bound. */
void
top_rows_forget(TopRows *top)
{
	top->is_started = false;
	top->worst_count = 0;
	top->passed_count = 0;
}

/* Otherwise the Sort writes to files, and does not use its bound. */
static bool
rows_fit_memory(const SortState *sort)
{
	const double row_bytes = sort->ss.ps.plan->plan_width + SORT_ROW_BYTES;

	return 2 * (double) sort->bound * row_bytes < work_mem * 1024.0;
}

/* Ask the Sort how many rows it is to return. */
static void
start(TopRows *top)
{
	const SortState *sort = (const SortState *)
		demand_find_node(top->estate, T_SortState, top->plan.sort_node_id);

	top->is_started = true;
	top->bound = 0;
	if (sort == NULL || !sort->bounded || sort->bound <= 0 || sort->bound > TOP_ROWS_MAX ||
		!rows_fit_memory(sort))
		return;
	top->bound = (int) sort->bound;
	if (top->worst_capacity >= top->bound)
		return;
	if (top->worst != NULL)
		pfree(top->worst);
	top->worst = MemoryContextAlloc(top->estate->es_query_cxt, sizeof(int64) * top->bound);
	top->worst_capacity = top->bound;
}

/*
 * A row's place by its first key: less is better.  Where a value has that of a
 * NULL, the Sort decides between them.
 */
static inline int64
rank_of_number(const TopRows *top, const Vector *vector, bool is_float, int row)
{
	int64		order;

	if (vector->has_nulls && vector->nulls[row])
		return top->plan.nulls_first ? PG_INT64_MIN : PG_INT64_MAX;
	order = is_float ? order_of_float(DatumGetFloat8(vector->values[row])) :
		DatumGetInt64(vector->values[row]);
	return top->sort_key.is_descending ? ~order : order;
}

/* The same of a text or a numeric, whose rank may be that of others as well.  False: it is not known. */
static bool
rank_of_reference(TopRows *top, const Vector *vector, int row, int64 *rank)
{
	bool		is_null;
	const Datum value = vector_datum(vector, top->plan.type, row, &is_null);

	*rank = top->plan.nulls_first ? PG_INT64_MIN : PG_INT64_MAX;
	if (is_null)
		return true;
	if (VARATT_IS_EXTERNAL(DatumGetPointer(value)) || VARATT_IS_COMPRESSED(DatumGetPointer(value)))
		return false;
	*rank = (int64) (sort_word_of_value(&top->sort_key, value, 0) ^ WORD_SIGN_BIT);
	return true;
}

static void
push(TopRows *top, int64 rank)
{
	int64	   *heap = top->worst;
	int			at = top->worst_count++;
	Assert(at < top->worst_capacity);

	for (; at > 0 && heap[(at - 1) / 2] < rank; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = rank;
}

static void
replace_worst(TopRows *top, int64 rank)
{
	int64	   *heap = top->worst;
	int			at = 0;

	Assert(top->worst_count == top->bound && top->bound <= top->worst_capacity);
	for (;;)
	{
		int			child = 2 * at + 1;

		if (child >= top->bound)
			break;
		if (child + 1 < top->bound && heap[child + 1] > heap[child])
			child++;
		if (heap[child] <= rank)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = rank;
}

/*
 * May the row be among the best?  Note it, if so.  A Sort keeps the first rows,
 * twice as many as its bound and one, and then throws away at once what is worse
 * than the best so far.  From there on a row that it does not get makes no
 * difference, not even to which of equal rows it returns.
 */
static inline bool
is_wanted(TopRows *top, int64 rank)
{
	if (top->worst_count < top->bound)
		push(top, rank);
	else if (rank < top->worst[0])
		replace_worst(top, rank);
	else if (rank > top->worst[0] && top->passed_count > 2 * (uint64) top->bound)
		return false;
	top->passed_count++;
	return true;
}

/* The same of a row with a text or a numeric: one that is not known to be worse is wanted. */
static bool
reference_is_wanted(TopRows *top, const Vector *vector, int row)
{
	int64		rank;

	if (rank_of_reference(top, vector, row, &rank))
		return is_wanted(top, rank);
	top->passed_count++;
	return true;
}

/*
 * Take rows that the Sort can't return from the selection of the context's batch,
 * all of whose rows have passed the filters.  Returns how many they were.
 */
int
top_rows_apply(TopRows *top, VectorContext *context)
{
	Selection  *selection = &context->batch->selection;
	uint16	   *rows = context->batch->selected_rows;
	const int	count_before = selection->count;
	const Vector *vector;
	int			count = 0;

	if (top->key == NULL)
		return 0;
	if (!top->is_started)
		start(top);
	if (top->bound == 0 || count_before == 0)
		return 0;
	Assert(top->worst_count <= top->bound);
	vector = vector_evaluate(top->key, context, selection);
	if (vector == NULL)
		return 0;
#define KEEP_WANTED(is_wanted_) \
	FOR_SELECTED(row, selection, \
				 const bool wanted = is_wanted_; \
				 rows[count] = (uint16) row; \
				 count += wanted)
	if (top->key->kind == VALUE_TEXT)
		KEEP_WANTED(reference_is_wanted(top, vector, row));
	else if (top->key->kind == VALUE_FLOAT)
		KEEP_WANTED(is_wanted(top, rank_of_number(top, vector, true, row)));
	else
		KEEP_WANTED(is_wanted(top, rank_of_number(top, vector, false, row)));
#undef KEEP_WANTED
	if (count < count_before)
	{
		selection->count = count;
		selection->rows = rows;
	}
	Assert(count <= count_before);
	return count_before - count;
}
