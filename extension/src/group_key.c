/*
 * group_key.c
 *	  Keys of groups: hashed column by column, compared and stored by row.
 *
 * A group keeps the key values of its first row, as core does.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgrprotos.h"

#include "group.h"

#define HASH_MULTIPLIER UINT64CONST(0x9E3779B97F4A7C15)
#define HASH_OF_NULL	UINT64CONST(0x5851F42D4C957F2D)

/* Set up a key; numerics are compared by their stored form. */
void
group_key_compile(GroupKey *key, VectorContext *context, Expr *source)
{
	const Var  *var = (const Var *) source;

	key->type = exprType((Node *) source);
	value_kind_of_type(key->type, &key->kind);
	key->is_bpchar = (key->type == BPCHAROID);
	key->state = row_expression(context, source);
	vector_allocate(&key->row_vector);
	if (key->kind != VALUE_NUMERIC)
		key->expression = vector_compile(context, source);
	else if (IsA(source, Var) && var->varattno > 0 &&
			 var->varno == context->scanrelid)
		key->expression = vector_column(context, var->varattno, NUMERICOID,
										VALUE_TEXT);
}

static void
evaluate_by_row(GroupKey *key, VectorContext *context,
				const Selection *selection)
{
	Vector	   *result = &key->row_vector;
	ExprContext *econtext = context->econtext;
	TupleBatch *batch = context->batch;

	result->has_nulls = false;
	FOR_SELECTED(row, selection,
				 Datum value;
				 econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
				 value = ExecEvalExprSwitchContext(key->state, econtext,
												   &result->nulls[row]);
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

/* Evaluate all keys for the selected rows of the batch. */
void
group_keys_evaluate(GroupTable *table, VectorContext *context,
					const Selection *selection)
{
	for (int i = 0; i < table->key_count; i++)
	{
		GroupKey   *key = &table->keys[i];

		key->vector = key->expression == NULL ? NULL :
			vector_evaluate(key->expression, context, selection);
		if (key->vector == NULL)
		{
			evaluate_by_row(key, context, selection);
			key->vector = &key->row_vector;
		}
		if (key->kind == VALUE_TEXT || key->kind == VALUE_NUMERIC)
			key->vector = detoast_values(key, key->vector, context, selection);
	}
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
float_bits(Datum word)
{
	float8		value = DatumGetFloat8(word);

	if (value == 0.0)
		return 0;
	return isnan(value) ? HASH_OF_NULL : (uint64) word;
}

static inline uint64
hash_text(const void *value, bool is_bpchar)
{
	const char *data = VARDATA_ANY(value);
	int			bytes = text_bytes(value, is_bpchar);
	uint64		word = 0;

	if (bytes > (int) sizeof(word))
		return hash_bytes((const unsigned char *) data, bytes);
	memcpy(&word, data, bytes);
	return word ^ ((uint64) bytes << 56);
}

/* One key value as a word whose equality follows from that of the keys. */
static inline uint64
hash_word(const GroupKey *key, Datum word)
{
	switch (key->kind)
	{
		case VALUE_FLOAT:
			return float_bits(word);
		case VALUE_TEXT:
			return hash_text(DatumGetPointer(word), key->is_bpchar);
		case VALUE_NUMERIC:
			return (uint32) DatumGetInt32(DirectFunctionCall1(hash_numeric, word));
		default:
			return (uint64) word;
	}
}

static inline uint64
mix(uint64 hash, uint64 word)
{
	hash = (hash ^ word) * HASH_MULTIPLIER;
	return hash ^ (hash >> 32);
}

/* Hash the keys of every selected row, a key at a time. */
void
group_keys_hash(GroupTable *table, const Selection *selection)
{
	uint64		hashes[BATCH_ROWS_MAX];

	FOR_SELECTED(row, selection, hashes[row] = 0);
	for (int i = 0; i < table->key_count; i++)
	{
		const GroupKey *key = &table->keys[i];
		const Datum *values = key->vector->values;
		const bool *nulls = key->vector->nulls;

		if (key->vector->has_nulls)
			FOR_SELECTED(row, selection,
						 hashes[row] = mix(hashes[row], nulls[row] ? HASH_OF_NULL :
										   hash_word(key, values[row])));
		else if (key->kind == VALUE_INTEGER)
			FOR_SELECTED(row, selection,
						 hashes[row] = mix(hashes[row], (uint64) values[row]));
		else
			FOR_SELECTED(row, selection,
						 hashes[row] = mix(hashes[row], hash_word(key, values[row])));
	}
	FOR_SELECTED(row, selection, table->row_hashes[row] = (uint32) hashes[row]);
}

static bool
words_equal(const GroupKey *key, Datum a, Datum b)
{
	const void *left = DatumGetPointer(a);
	const void *right = DatumGetPointer(b);
	int			bytes;

	switch (key->kind)
	{
		case VALUE_FLOAT:
			return float_bits(a) == float_bits(b);
		case VALUE_TEXT:
			bytes = text_bytes(left, key->is_bpchar);
			return bytes == text_bytes(right, key->is_bpchar) &&
				memcmp(VARDATA_ANY(left), VARDATA_ANY(right), bytes) == 0;
		case VALUE_NUMERIC:
			return DatumGetBool(DirectFunctionCall2(numeric_eq, a, b));
		default:
			return a == b;
	}
}

/* Has the row the keys of the group? */
bool
group_keys_match(const GroupTable *table, const char *group, int row)
{
	uint32		null_keys = ((const GroupHeader *) group)->null_keys;
	const Datum *words = (const Datum *) (group + sizeof(GroupHeader));

	for (int i = 0; i < table->key_count; i++)
	{
		const GroupKey *key = &table->keys[i];
		bool		is_null = key->vector->has_nulls && key->vector->nulls[row];

		if (is_null != ((null_keys >> i) & 1))
			return false;
		if (!is_null && !words_equal(key, words[i], key->vector->values[row]))
			return false;
	}
	return true;
}

/* Give a new group the keys of its first row. */
void
group_keys_store(GroupTable *table, char *group, int row)
{
	GroupHeader *header = (GroupHeader *) group;
	Datum	   *words = GROUP_KEY_WORDS(group);

	for (int i = 0; i < table->key_count; i++)
	{
		const GroupKey *key = &table->keys[i];

		words[i] = (Datum) 0;
		if (key->vector->has_nulls && key->vector->nulls[row])
			header->null_keys |= UINT32_C(1) << i;
		else if (key->kind == VALUE_TEXT || key->kind == VALUE_NUMERIC)
		{
			const void *value = DatumGetPointer(key->vector->values[row]);
			Size		bytes = VARSIZE_ANY(value);
			void	   *copy = MemoryContextAlloc(table->memory, bytes);

			memcpy(copy, value, bytes);
			words[i] = PointerGetDatum(copy);
		}
		else
			words[i] = key->vector->values[row];
	}
}

/* A stored key as a Datum of its type. */
Datum
group_key_datum(const GroupKey *key, Datum word)
{
	return key->type == FLOAT4OID ?
		Float4GetDatum((float4) DatumGetFloat8(word)) : word;
}
