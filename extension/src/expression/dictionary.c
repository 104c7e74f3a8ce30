/*
 * dictionary.c
 *	  Expressions of a column whose source has stored each of its texts once.
 *
 * Such an expression is evaluated for the entries of the dictionary, and each row takes the result of its
 * entry.  The results of one dictionary serve all batches that have it, so they may not point to what
 * is made for a batch: numbers and truth values alone are kept.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "expr.h"

struct DictionaryResults
{
	uint64		id;				/* of the dictionary; 0: none */
	bool		usable;			/* false: rows are evaluated one by one */
	bool		has_nulls;
	Datum		values[BATCH_ROWS_MAX];
	bool		nulls[BATCH_ROWS_MAX];
};

/*
 * Is an expression of one column of texts, that of *found where that is set, and of constants?  One that others use, too, may hold
 * a result that they still read, and a parameter has another value after a rescan.
 */
static bool
is_of_one_column(const VectorExpr *expression, BatchColumn **found)
{
	if (expression == NULL)
		return true;
	if (expression->is_constant)
		return expression->constant_state == NULL;
	if (expression->column != NULL)
	{
		if (expression->kind != VALUE_TEXT || (*found != NULL && *found != expression->column))
			return false;
		*found = expression->column;
		return true;
	}
	return !expression->is_shared && is_of_one_column(expression->left, found) &&
		is_of_one_column(expression->right, found) && is_of_one_column(expression->condition, found);
}

/* The column whose dictionary an expression may be evaluated for; NULL: there is none. */
static BatchColumn *
encoded_column(VectorExpr *expression)
{
	BatchColumn *found = NULL;

	if (expression->knows_encoded)
		return expression->encoded;
	expression->knows_encoded = true;
	if ((expression->kind == VALUE_INTEGER || expression->kind == VALUE_FLOAT) &&
		is_of_one_column(expression->left, &found) && is_of_one_column(expression->right, &found) &&
		is_of_one_column(expression->condition, &found))
		expression->encoded = found;
	return expression->encoded;
}

/* Evaluate for the entries: for a while they are the rows of the batch, and the column's. */
static void
evaluate_entries(VectorExpr *expression, VectorContext *context, const Dictionary *dictionary)
{
	DictionaryResults *results = expression->entries;
	TupleBatch *batch = context->batch;
	BatchColumn *column = expression->encoded;
	const Vector column_before = column->vector;
	const int	row_count_before = batch->row_count;
	const Selection all = {.count = dictionary->count};

	Assert(dictionary->count > 0 && dictionary->count <= BATCH_ROWS_MAX);
	column->vector = dictionary->entries;
	column->vector.generation = batch->generation;
	column->vector.usable = true;
	column->vector.dictionary = NULL;
	batch->row_count = dictionary->count;
	results->usable = expression->function(expression, context, &all);
	batch->row_count = row_count_before;
	column->vector = column_before;
	results->id = dictionary->id;
	results->has_nulls = expression->result.has_nulls;
	if (results->usable)
		memcpy(results->values, expression->result.values, sizeof(Datum) * dictionary->count);
	if (results->usable && results->has_nulls)
		memcpy(results->nulls, expression->result.nulls, sizeof(bool) * dictionary->count);
	vector_forget(expression);
}

/* Fill an expression's result by a dictionary; false: there is none, or its entries can't all be evaluated. */
bool
dictionary_evaluate(VectorExpr *expression, VectorContext *context, const Selection *selection)
{
	BatchColumn *column = encoded_column(expression);
	Vector	   *result = &expression->result;
	const Vector *rows;
	const DictionaryResults *entries;

	if (column == NULL || selection->count == 0)
		return false;
	rows = batch_column(context->batch, column, selection);
	if (!rows->usable || rows->dictionary == NULL)
		return false;
	if (expression->entries == NULL)
		expression->entries = MemoryContextAllocZero(GetMemoryChunkContext(expression), sizeof(DictionaryResults));
	if (expression->entries->id != rows->dictionary->id)
		evaluate_entries(expression, context, rows->dictionary);
	entries = expression->entries;
	if (!entries->usable)
		return false;
	result->has_nulls = entries->has_nulls;
	FOR_SELECTED(row, selection,
				 Assert(rows->codes[row] < rows->dictionary->count);
				 result->values[row] = entries->values[rows->codes[row]]);
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->nulls[row] = entries->nulls[rows->codes[row]]);
	return true;
}
