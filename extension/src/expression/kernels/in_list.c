/*
 * in_list.c
 *	  x IN (constants) and x NOT IN (constants), of integers and of text.
 *
 * A long list is hashed, as core hashes its own.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "../expr.h"
#include "bytes.h"

#define HASH_MULTIPLIER UINT64CONST(0x9E3779B97F4A7C15)

/* Values up to which comparing all of them is faster than hashing. */
#define LIST_COMPARED_MAX	8

/* A bucket's value is one less than what it holds: 0 is an empty bucket. */
struct InListTable
{
	uint32		mask;
	uint32		buckets[FLEXIBLE_ARRAY_MEMBER];
};

static inline uint32
hash_value(const VectorExpr *expression, Datum value)
{
	Bytes		bytes;

	if (expression->left->kind == VALUE_INTEGER)
		return (uint32) (((uint64) value * HASH_MULTIPLIER) >> 32);
	bytes = bytes_of(value, expression->is_bpchar);
	return hash_bytes((const unsigned char *) bytes.data, bytes.length);
}

static inline bool
values_equal(const VectorExpr *expression, Datum a, Datum b)
{
	if (expression->left->kind == VALUE_INTEGER)
		return a == b;
	return value_equals(a, bytes_of(b, expression->is_bpchar), expression->is_bpchar);
}

/* Make the hash table of a list that is complete. */
void
in_list_hash(VectorExpr *expression)
{
	uint32		bucket_count;
	InListTable *table;

	if (expression->list_count <= LIST_COMPARED_MAX)
		return;
	bucket_count = pg_nextpower2_32(expression->list_count * 2);
	table = palloc0(offsetof(InListTable, buckets) + sizeof(uint32) * bucket_count);
	table->mask = bucket_count - 1;
	for (int i = 0; i < expression->list_count; i++)
	{
		uint32		bucket = hash_value(expression, expression->list[i]) & table->mask;

		CHECK_FOR_INTERRUPTS();
		/* One of equal values will do: many would be a long chain. */
		while (table->buckets[bucket] != 0 &&
			   !values_equal(expression, expression->list[i],
							 expression->list[table->buckets[bucket] - 1]))
			bucket = (bucket + 1) & table->mask;
		table->buckets[bucket] = i + 1;
	}
	expression->list_table = table;
}

static inline bool
list_contains(const VectorExpr *expression, Datum value)
{
	const InListTable *table = expression->list_table;
	uint32		bucket;

	if (table == NULL)
	{
		for (int i = 0; i < expression->list_count; i++)
			if (values_equal(expression, value, expression->list[i]))
				return true;
		return false;
	}
	bucket = hash_value(expression, value) & table->mask;
	while (table->buckets[bucket] != 0)
	{
		if (values_equal(expression, value,
						 expression->list[table->buckets[bucket] - 1]))
			return true;
		bucket = (bucket + 1) & table->mask;
	}
	return false;
}

/* x IN (list) and x NOT IN (list), with a NULL in the list as SQL has it. */
bool
kernel_in_list(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	const bool	is_text = (expression->left->kind == VALUE_TEXT);

	if (operand == NULL)
		return false;
	result->has_nulls = operand->has_nulls || expression->list_has_null;
	FOR_SELECTED(row, selection,
				 bool is_null = operand->has_nulls && operand->nulls[row];
				 bool found = false;
				 if (!is_null)
				 {
					 if (is_text && is_toasted(operand->values[row]))
					 return false;
					 found = list_contains(expression, operand->values[row]);
					 is_null = !found && expression->list_has_null;
				 }
				 result->nulls[row] = is_null;
				 result->values[row] = Int64GetDatum(found != expression->is_negated));
	/* x IN () is false and x NOT IN () true, even where x is NULL. */
	if (expression->list_count == 0 && !expression->list_has_null)
		result->has_nulls = false;
	return true;
}
