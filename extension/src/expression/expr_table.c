/*
 * expr_table.c
 *	  The expressions of a scan, each only once.
 *
 * The operands of an expression are looked up before the expression itself, so
 * two expressions are the same if their operands are the same pointers: a look
 * up compares no subtrees, and compiling takes time in proportion to the size of
 * the source.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"

#include "expr.h"

typedef struct ExpressionEntry
{
	VectorExpr *expression;
	uint32		hash;
	char		status;			/* of simplehash */
} ExpressionEntry;

static uint32
hash_pointer(uint32 hash, const void *pointer)
{
	uint64		bits = (uint64) (uintptr_t) pointer;

	return hash_combine(hash, murmurhash32((uint32) bits ^ (uint32) (bits >> 32)));
}

static uint32
hash_leaf(const Expr *leaf)
{
	const Const *constant = (const Const *) leaf;
	int16		length;
	bool		by_value;

	if (leaf == NULL)
		return 0;
	if (IsA(leaf, Param))
		return murmurhash32((uint32) ((const Param *) leaf)->paramid);
	if (constant->constisnull)
		return 1;
	get_typlenbyval(constant->consttype, &length, &by_value);
	return datum_image_hash(constant->constvalue, by_value, length);
}

static uint32
hash_expression(const VectorExpr *expression)
{
	uint32		hash = hash_leaf(expression->leaf);

	hash = hash_combine(hash, murmurhash32(expression->type));
	hash = hash_combine(hash, murmurhash32((uint32) expression->operation << 4 |
										   expression->bool_operation << 2 |
										   expression->is_negated << 1 |
										   expression->is_bpchar));
	hash = hash_combine(hash, murmurhash32(expression->collation ^ expression->bool_test));
	hash = hash_pointer(hash, (const void *) (uintptr_t) expression->function);
	hash = hash_pointer(hash, expression->column);
	hash = hash_pointer(hash, expression->left);
	hash = hash_pointer(hash, expression->condition);
	return hash_pointer(hash, expression->right);
}

static bool
is_same(const VectorExpr *a, const VectorExpr *b)
{
	return a->function == b->function && a->kind == b->kind &&
		a->type == b->type && a->operation == b->operation &&
		a->column == b->column && a->left == b->left && a->right == b->right &&
		a->condition == b->condition &&
		a->is_constant == b->is_constant && a->is_negated == b->is_negated &&
		a->is_bpchar == b->is_bpchar && a->is_for_comparison == b->is_for_comparison &&
		a->bool_operation == b->bool_operation && a->bool_test == b->bool_test &&
		a->collation == b->collation && equal(a->leaf, b->leaf);
}

#define SH_PREFIX expression_table
#define SH_ELEMENT_TYPE ExpressionEntry
#define SH_KEY_TYPE VectorExpr *
#define SH_KEY expression
#define SH_HASH_KEY(table_, key_) hash_expression(key_)
#define SH_EQUAL(table_, a_, b_) is_same(a_, b_)
#define SH_STORE_HASH
#define SH_GET_HASH(table_, entry_) (entry_)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Do both operands take a vector to be brought to one scale? */
static bool
aligns_scales(const VectorExpr *expression)
{
	return expression->left != NULL && expression->left->kind == VALUE_NUMERIC &&
		(expression->function == kernel_compare ||
		 expression->function == kernel_arithmetic ||
		 expression->function == kernel_choose);
}

/*
 * The expression of the context that is the same as the draft: a copy of it,
 * with room for its result, if there was none.  A trial keeps no table, which takes
 * longer to make than the few expressions of a filter, and has no results.
 */
VectorExpr *
vector_intern(VectorContext *context, const VectorExpr *draft, bool *found)
{
	expression_table_hash *table = context->expressions;
	ExpressionEntry *entry;
	VectorExpr *expression;

	*found = false;
	if (context->is_trial)
	{
		const Size	bytes = offsetof(VectorExpr, result);

		return memcpy(palloc(bytes), draft, bytes);
	}
	if (table == NULL)
		context->expressions = table =
			expression_table_create(CurrentMemoryContext, 16, NULL);
	/* The table keeps the key that it is given, so that has to be the copy. */
	entry = expression_table_lookup(table, unconstify(VectorExpr *, draft));
	*found = (entry != NULL);
	if (*found)
	{
		entry->expression->is_shared = true;
		return entry->expression;
	}
	expression = palloc(sizeof(VectorExpr));
	*expression = *draft;
	if (expression->column == NULL)
		vector_allocate(&expression->result);
	if (aligns_scales(expression))
	{
		vector_allocate(&expression->scratch_left);
		vector_allocate(&expression->scratch_right);
	}
	(void) expression_table_insert(table, expression, found);
	*found = false;
	return expression;
}
