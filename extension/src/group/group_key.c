/*
 * group_key.c
 *	  Keys of groups: made to words column by column, compared by these words.
 *
 * An integer is its own word.  Floats that are equal have one word.  A text of
 * up to seven bytes is a word of its bytes and its length; longer texts and
 * numerics have a hash for a word, and are compared themselves where words are
 * equal.  A group keeps the key values of its first row, as core does.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "explain.h"
#include "group.h"
#include "numeric_vector.h"

#define HASH_MULTIPLIER UINT64CONST(0x9E3779B97F4A7C15)

/* Words of text: length above the bytes, or this mark above a hash. */
#define WORD_LENGTH_SHIFT	56
#define WORD_TEXT_BYTES_MAX 7
#define WORD_IS_HASH		UINT64CONST(0xFF00000000000000)
#define WORD_OF_NAN			UINT64CONST(0x7FF8000000000000)

/* Why our own hash table can't group by an expression of a scan, or NULL. */
const char *
key_obstacle(const Expr *key, Oid equality, Oid collation)
{
	Oid			type = exprType((const Node *) key);
	VectorOperation operation;
	ValueKind	kind;

	if (!value_kind_of_type(type, &kind))
		return explain_awaits_reasons() ?
			psprintf("there is no batched grouping by type %s", format_type_be(type)) :
			"there is no batched grouping by a key's type";
	if (!function_lookup(get_opcode(equality), &operation) ||
		operation != OPERATION_EQ)
		return "a grouping operator has no batched form";
	if (kind == VALUE_TEXT && OidIsValid(collation) &&
		!get_collation_isdeterministic(collation))
		return "a grouping key's collation is not deterministic";
	if (!expression_is_plain((Node *) key) &&
		(contain_volatile_functions((Node *) key) || contain_subplans((Node *) key)))
		return "a grouping key is volatile or holds a subquery";
	return NULL;
}

/* Set up a key; numerics are compared by their stored form. */
void
group_key_compile(GroupKey *key, VectorContext *context, Expr *source,
				  int *value_count)
{
	const Var  *var = (const Var *) source;

	key->type = exprType((Node *) source);
	value_kind_of_type(key->type, &key->kind);
	key->is_bpchar = (key->type == BPCHAROID);
	vector_allocate(&key->row_vector);
	key->made_words = palloc0(sizeof(Datum) * BATCH_ROWS_MAX);
	key->value_at = (key->kind == VALUE_INTEGER) ? -1 : (*value_count)++;
	if (key->kind != VALUE_NUMERIC)
		key->expression = vector_compile(context, source);
	else if (IsA(source, Var) && var->varattno > 0 &&
			 var->varno == context->scanrelid)
		key->expression = vector_column(context, var->varattno, NUMERICOID,
										VALUE_TEXT);
	else
	{
		key->expression = vector_compile(context, source);
		key->is_computed = (key->expression != NULL);
	}
	row_expression_begin(&key->row, context, source, key->expression != NULL);
}

static void
evaluate_by_row(GroupKey *key, VectorContext *context,
				const Selection *selection)
{
	Vector	   *result = &key->row_vector;
	ExprContext *econtext = context->econtext;
	TupleBatch *batch = context->batch;

	Assert(selection_is_valid(selection, batch->row_count));
	result->has_nulls = false;
	FOR_SELECTED(row, selection,
				 Datum value;
				 econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
				 value = row_expression_evaluate(&key->row, &result->nulls[row]);
				 result->has_nulls |= result->nulls[row];
				 result->values[row] = result->nulls[row] ? (Datum) 0 :
				 vector_word_from_datum(key->type, value));
}

/* Replace compressed and external values by plain ones. */
static const Vector *
detoast_values(GroupKey *key, const Vector *vector, VectorContext *context,
			   const Selection *selection)
{
	Vector	   *result = &key->row_vector;
	MemoryContext caller;
	bool		any = false;

	FOR_SELECTED(row, selection,
				 if ((!vector->has_nulls || !vector->nulls[row]) &&
					 (VARATT_IS_EXTERNAL(DatumGetPointer(vector->values[row])) ||
					  VARATT_IS_COMPRESSED(DatumGetPointer(vector->values[row]))))
				 any = true);
	if (!any)
		return vector;
	caller = MemoryContextSwitchTo(context->econtext->ecxt_per_tuple_memory);
	result->has_nulls = vector->has_nulls;
	FOR_SELECTED(row, selection,
				 result->nulls[row] = vector->has_nulls && vector->nulls[row];
				 result->values[row] = result->nulls[row] ? (Datum) 0 :
				 PointerGetDatum(PG_DETOAST_DATUM_PACKED(vector->values[row])));
	MemoryContextSwitchTo(caller);
	return result;
}

/* Computed numerics in their stored form; rows in a row that are the same share it. */
static const Vector *
store_numerics(GroupKey *key, const Vector *vector, VectorContext *context,
			   const Selection *selection)
{
	Vector	   *result = &key->row_vector;
	MemoryContext caller = MemoryContextSwitchTo(context->econtext->ecxt_per_tuple_memory);
	Datum		stored = (Datum) 0;
	int64		stored_value = 0;
	int			stored_scale = -1;

	result->has_nulls = vector->has_nulls;
	FOR_SELECTED(row, selection,
				 int64 value = DatumGetInt64(vector->values[row]);
				 int scale = vector->has_mixed_scales ? vector->scales[row] : vector->scale;
				 result->nulls[row] = vector->has_nulls && vector->nulls[row];
				 result->values[row] = (Datum) 0;
				 if (result->nulls[row])
				 continue;
				 if (value != stored_value || scale != stored_scale)
				 {
					 stored = NumericGetDatum(numeric_from_int128(value, vector->scale, scale));
					 stored_value = value;
					 stored_scale = scale;
				 }
				 result->values[row] = stored);
	MemoryContextSwitchTo(caller);
	return result;
}

/* Can a key be computed by a vector for all selected rows?  Then none of them raises an error. */
bool
group_key_has_vector(const GroupKey *key, VectorContext *context)
{
	return key->expression != NULL &&
		vector_evaluate(key->expression, context, &context->batch->selection) != NULL;
}

/* Evaluate a key for the selected rows of the batch. */
void
group_key_evaluate(GroupKey *key, VectorContext *context, const Selection *selection)
{
	if (key->is_given)
		return;
	key->vector = key->expression == NULL ? NULL :
		vector_evaluate(key->expression, context, selection);
	if (key->vector == NULL)
	{
		evaluate_by_row(key, context, selection);
		key->vector = &key->row_vector;
	}
	else if (key->is_computed)
		key->vector = store_numerics(key, key->vector, context, selection);
	Assert(key->vector != NULL && key->vector->usable);
	if (key->kind == VALUE_TEXT || key->kind == VALUE_NUMERIC)
		key->vector = detoast_values(key, key->vector, context, selection);
}

/* Fill the columns that an expression reads, for these rows. */
static void
fill_columns(const VectorExpr *expression, VectorContext *context, const Selection *selection)
{
	if (expression == NULL)
		return;
	if (expression->column != NULL)
		(void) batch_column(context->batch, expression->column, selection);
	fill_columns(expression->condition, context, selection);
	fill_columns(expression->left, context, selection);
	fill_columns(expression->right, context, selection);
}

/* Evaluate for some rows where others of the batch may be asked for later: vectors are else kept for the batch. */
void
group_key_evaluate_some(GroupKey *key, VectorContext *context, const Selection *some, const Selection *all)
{
	Assert(some->count <= all->count);
	fill_columns(key->expression, context, all);
	group_key_evaluate(key, context, some);
	vector_forget(key->expression);
}

static inline int
text_bytes(const void *value, bool is_bpchar)
{
	int			bytes = VARSIZE_ANY_EXHDR(value);

	if (is_bpchar)
		while (bytes > 0 && VARDATA_ANY(value)[bytes - 1] == ' ')
			bytes--;
	return bytes;
}

/* All zeroes are one key, and so are all NaNs. */
static inline uint64
float_word(Datum word)
{
	float8		value = DatumGetFloat8(word);

	if (value == 0.0)
		return 0;
	return isnan(value) ? WORD_OF_NAN : (uint64) word;
}

static inline uint64
text_word(const void *value, bool is_bpchar)
{
	const unsigned char *data = (const unsigned char *) VARDATA_ANY(value);
	int			bytes = text_bytes(value, is_bpchar);
	uint64		word = (uint64) bytes << WORD_LENGTH_SHIFT;

	if (bytes > WORD_TEXT_BYTES_MAX)
		return WORD_IS_HASH | hash_bytes(data, bytes);
	for (int i = 0; i < bytes; i++)
		word |= (uint64) data[i] << (8 * i);
	return word;
}

/* The words of a dictionary's entries, made once; NULL: they are not made, for so few rows. */
static const Datum *
words_of_entries(GroupKey *key, const Dictionary *dictionary, int rows)
{
	const DictionaryState state = dictionary_meet(&key->dictionary, dictionary, rows);

	if (state == DICTIONARY_IS_KNOWN)
		return key->entry_words;
	if (state != DICTIONARY_IS_DUE)
		return NULL;
	if (key->entry_words == NULL)
		key->entry_words = MemoryContextAlloc(GetMemoryChunkContext(key->made_words), sizeof(Datum) * BATCH_ROWS_MAX);
	for (int i = 0; i < dictionary->count; i++)
		key->entry_words[i] = text_word(DatumGetPointer(dictionary->entries.values[i]), key->is_bpchar);
	dictionary_note(&key->dictionary, true);
	return key->entry_words;
}

/* The words of texts that are not NULL. */
static void
make_text_words(GroupKey *key, const Selection *present)
{
	const Vector *vector = key->vector;
	Datum	   *words = key->made_words;
	const Datum *entry_words = vector->dictionary == NULL ? NULL :
		words_of_entries(key, vector->dictionary, present->count);

	if (entry_words != NULL)
		FOR_SELECTED(row, present, words[row] = entry_words[vector->codes[row]]);
	else
		FOR_SELECTED(row, present, words[row] = text_word(DatumGetPointer(vector->values[row]), key->is_bpchar));
}

static inline uint64
numeric_word(Datum value)
{
	return WORD_IS_HASH |
		(uint32) DatumGetInt32(DirectFunctionCall1(hash_numeric, value));
}

/* Make the words of one key for the selected rows; NULL rows read 0. */
static void
make_words(GroupKey *key, const Selection *selection)
{
	const Datum *values = key->vector->values;
	Datum	   *words = key->made_words;
	Selection	present = *selection;
	uint16		rows[BATCH_ROWS_MAX];

	if (key->kind == VALUE_INTEGER && !key->vector->has_nulls)
	{
		key->words = values;
		return;
	}
	key->words = words;
	if (key->kind == VALUE_INTEGER)
	{
		const bool *nulls = key->vector->nulls;

		FOR_SELECTED(row, selection, words[row] = values[row] & ((Datum) nulls[row] - 1));
		return;
	}
	if (key->vector->has_nulls)
	{
		FOR_SELECTED(row, selection, words[row] = (Datum) 0);
		present = selection_without_nulls(selection, key->vector, rows);
	}
	switch (key->kind)
	{
		case VALUE_FLOAT:
			FOR_SELECTED(row, &present, words[row] = float_word(values[row]));
			break;
		case VALUE_TEXT:
			make_text_words(key, &present);
			break;
		case VALUE_NUMERIC:
			FOR_SELECTED(row, &present, words[row] = numeric_word(values[row]));
			break;
		default:
			break;
	}
}

static inline uint64
mix(uint64 hash, uint64 word)
{
	hash ^= word;
	/* The lower bits of a float's word, where it is a whole number, are zero; they would stay so. */
	hash = (hash ^ (hash >> 32)) * HASH_MULTIPLIER;
	return hash ^ (hash >> 32);
}

void
group_keys_make_words(GroupTable *table, const Selection *selection)
{
	for (int i = 0; i < table->key_count; i++)
		make_words(&table->keys[i], selection);
}

/* Hash the words of every selected row's keys, a key at a time. */
void
group_keys_hash(GroupTable *table, const Selection *selection)
{
	uint64		hashes[BATCH_ROWS_MAX];

	Assert(selection->count <= BATCH_ROWS_MAX);
	FOR_SELECTED(row, selection, hashes[row] = 0);
	for (int i = 0; i < table->key_count; i++)
	{
		const Datum *words = table->keys[i].words;

		if ((table->left_out >> i) & 1)
			continue;
		FOR_SELECTED(row, selection, hashes[row] = mix(hashes[row], words[row]));
	}
	FOR_SELECTED(row, selection, table->row_hashes[row] = (uint32) hashes[row]);
}

/* Where a group stores the value of a key beside its word. */
static inline Datum *
stored_value(const GroupTable *table, const char *group, int key)
{
	Assert(table->keys[key].value_at >= 0);
	return GROUP_KEY_WORDS((char *) group) + table->key_count +
		table->keys[key].value_at;
}

/* Are two values equal whose words are equal hashes? */
static bool
hashed_values_equal(const GroupKey *key, Datum a, Datum b)
{
	const void *left = DatumGetPointer(a);
	const void *right = DatumGetPointer(b);
	int			bytes;

	if (key->kind == VALUE_NUMERIC)
		return DatumGetBool(DirectFunctionCall2(numeric_eq, a, b));
	bytes = text_bytes(left, key->is_bpchar);
	return bytes == text_bytes(right, key->is_bpchar) &&
		memcmp(VARDATA_ANY(left), VARDATA_ANY(right), bytes) == 0;
}

/* Has the row the keys of the group? */
bool
group_keys_match(const GroupTable *table, const char *group, int row)
{
	const uint64 null_keys = ((const GroupHeader *) group)->null_keys;
	const Datum *words = (const Datum *) (group + sizeof(GroupHeader));

	for (int i = 0; i < table->key_count; i++)
	{
		const GroupKey *key = &table->keys[i];
		bool		is_null;

		if ((table->left_out >> i) & 1)
			continue;
		if (words[i] != key->words[row])
			return false;
		is_null = key->vector->has_nulls && key->vector->nulls[row];
		if (is_null != ((null_keys >> i) & 1))
			return false;
		if (!is_null && key->value_at >= 0 && key->kind != VALUE_FLOAT &&
			(words[i] & WORD_IS_HASH) == WORD_IS_HASH &&
			!hashed_values_equal(key, *stored_value(table, group, i),
								 key->vector->values[row]))
			return false;
	}
	return true;
}

/* Give a new group the keys of its first row. */
void
group_keys_store(GroupTable *table, char *group, int row)
{
	GroupHeader *header = (GroupHeader *) group;

	for (int i = 0; i < table->key_count; i++)
	{
		const GroupKey *key = &table->keys[i];
		Datum		value;

		if ((table->left_out >> i) & 1)
		{
			header->null_keys |= UINT64CONST(1) << i;
			continue;
		}
		value = key->vector->values[row];
		Assert(row >= 0 && row < BATCH_ROWS_MAX);
		GROUP_KEY_WORDS(group)[i] = key->words[row];
		if (key->vector->has_nulls && key->vector->nulls[row])
			header->null_keys |= UINT64CONST(1) << i;
		else if (group_copies_key(table, key))
		{
			Size		bytes = VARSIZE_ANY(DatumGetPointer(value));
			void	   *copy = MemoryContextAlloc(table->memory, bytes);

			memcpy(copy, DatumGetPointer(value), bytes);
			*stored_value(table, group, i) = PointerGetDatum(copy);
		}
		else if (key->value_at >= 0)
			*stored_value(table, group, i) = value;
	}
}

/* The value of a group's key as a Datum of its type. */
Datum
group_key_datum(const GroupTable *table, char *group, int i)
{
	const GroupKey *key = &table->keys[i];

	Assert(i >= 0 && i < table->key_count);
	if (key->value_at < 0)
		return GROUP_KEY_WORDS(group)[i];
	if (key->type == FLOAT4OID)
		return Float4GetDatum((float4) DatumGetFloat8(*stored_value(table, group, i)));
	return *stored_value(table, group, i);
}
