/*
 * dictionary.c
 *	  Expressions of a column whose source has stored each of its texts once.
 *
 * Such an expression is evaluated for the entries of the dictionary, and each row takes the result of its
 * entry.  The results of one dictionary serve all batches that have it, so they may not point to what
 * is made for a batch: numbers and truth values alone are kept.
 *
 * Entries are evaluated once as many rows as there are entries have asked for them, so an expression is
 * evaluated twice as often as by row at most, whatever the source's dictionaries are.  Where entries can't be evaluated, the
 * parts of the expression try in turn; after some dictionaries in a row nobody tries any more.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "expr.h"

/* Bytes of entries that are evaluated at once: not so many that nobody can cancel a query for long. */
#define DICTIONARY_BYTES_MAX	(256 * 1024)

/* Dictionaries in a row whose entries can't all be evaluated: the next ones are not tried. */
#define DICTIONARIES_USELESS_MAX	3

struct DictionaryResults
{
	DictionaryUse use;
	bool		has_nulls;
	Datum		values[BATCH_ROWS_MAX];
	bool		nulls[BATCH_ROWS_MAX];
};

static bool
is_small(const Dictionary *dictionary)
{
	Size		bytes = 0;

	for (int i = 0; i < dictionary->count; i++)
		bytes += VARSIZE_ANY(DatumGetPointer(dictionary->entries.values[i]));
	return bytes <= DICTIONARY_BYTES_MAX;
}

/* Have the entries of the dictionary that was met last been evaluated? */
void
dictionary_note(DictionaryUse *use, bool usable)
{
	use->state = usable ? DICTIONARY_IS_KNOWN : DICTIONARY_IS_USELESS;
	use->useless_count = usable ? 0 : use->useless_count + 1;
}

/* So many rows ask for what is made of a dictionary's entries.  Where that is due, the caller makes it, and notes it. */
DictionaryState
dictionary_meet(DictionaryUse *use, const Dictionary *dictionary, int rows)
{
	if (use->id != dictionary->id || use->count != dictionary->count)
	{
		use->id = dictionary->id;
		use->count = dictionary->count;
		use->rows = 0;
		use->state = use->useless_count < DICTIONARIES_USELESS_MAX ? DICTIONARY_IS_NEW : DICTIONARY_IS_USELESS;
	}
	if (use->state != DICTIONARY_IS_NEW)
		return use->state;
	use->rows += rows;
	if (use->rows < dictionary->count)
		return DICTIONARY_IS_NEW;
	if (is_small(dictionary))
		use->state = DICTIONARY_IS_DUE;
	else
		dictionary_note(use, false);
	return use->state;
}

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

/*
 * Has any operand a result for the rows of this batch?  Whoever asked for it goes on to read it, and entries would
 * take it for their own.  Several parts of one expression may ask for the same operand, and so does a
 * clause that is tested as a range.
 */
static bool
has_result(const VectorExpr *operand, uint64 generation)
{
	if (operand == NULL || operand->is_constant || operand->column != NULL)
		return false;
	return operand->result.generation == generation || has_result(operand->left, generation) ||
		has_result(operand->right, generation) || has_result(operand->condition, generation);
}

static bool
operands_have_results(const VectorExpr *expression, uint64 generation)
{
	return has_result(expression->left, generation) || has_result(expression->right, generation) ||
		has_result(expression->condition, generation);
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

	bool		usable;

	Assert(dictionary->count > 0 && dictionary->count <= BATCH_ROWS_MAX);
	Assert(!operands_have_results(expression, batch->generation));
	column->vector = dictionary->entries;
	column->vector.generation = batch->generation;
	column->vector.usable = true;
	column->vector.dictionary = NULL;
	batch->row_count = dictionary->count;
	usable = expression->function(expression, context, &all);
	batch->row_count = row_count_before;
	column->vector = column_before;
	dictionary_note(&results->use, usable);
	results->has_nulls = expression->result.has_nulls;
	if (usable)
		memcpy(results->values, expression->result.values, sizeof(Datum) * dictionary->count);
	if (usable && results->has_nulls)
		memcpy(results->nulls, expression->result.nulls, sizeof(bool) * dictionary->count);
	vector_forget(expression);
}

/* Fill an expression's result by a dictionary; false: there is none, or its entries are not evaluated. */
bool
dictionary_evaluate(VectorExpr *expression, VectorContext *context, const Selection *selection)
{
	BatchColumn *column = encoded_column(expression);
	Vector	   *result = &expression->result;
	const Vector *rows;
	DictionaryResults *entries = expression->entries;
	DictionaryState state;

	if (column == NULL || selection->count == 0)
		return false;
	rows = batch_column(context->batch, column, selection);
	if (!rows->usable || rows->dictionary == NULL)
		return false;
	if (entries == NULL)
		entries = expression->entries =
			MemoryContextAllocZero(GetMemoryChunkContext(expression), sizeof(DictionaryResults));
	state = dictionary_meet(&entries->use, rows->dictionary, selection->count);
	if (state == DICTIONARY_IS_DUE && !operands_have_results(expression, context->batch->generation))
		evaluate_entries(expression, context, rows->dictionary);
	if (entries->use.state != DICTIONARY_IS_KNOWN)
		return false;
	result->has_nulls = entries->has_nulls;
	FOR_SELECTED(row, selection,
				 result->values[row] = entries->values[rows->codes[row]]);
	if (result->has_nulls)
		FOR_SELECTED(row, selection, result->nulls[row] = entries->nulls[rows->codes[row]]);
	return true;
}
