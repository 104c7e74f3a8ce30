/*
 * composite_key.c
 *	  Joins to a key of several columns, estimated as those of a foreign key.
 *
 * Core multiplies the selectivities of a join's clauses: a join of lineitem to partsupp
 * by the part and the supplier, which finds a row for each, is estimated to find one of
 * 2,500.  A foreign key tells it better, but few schemas declare one to a key of several
 * columns.  A unique index tells as much, if rows are joined to those that they belong
 * to, which core, too, takes for granted of a single column.
 */
#include "postgres.h"

#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"

#include "cost.h"
#include "plan.h"

static bool
is_table(const RelOptInfo *rel)
{
	return rel != NULL && rel->reloptkind == RELOPT_BASEREL && rel->rtekind == RTE_RELATION;
}

static bool
is_composite_key(const IndexOptInfo *index)
{
	return index->unique && index->nkeycolumns > 1 && index->indpred == NIL && index->indexprs == NIL;
}

/* The member of a class that is a column of this table: the one of that number, or any (0). */
static EquivalenceMember *
column_of_class(const EquivalenceClass *class, Index relid, AttrNumber attno)
{
	ListCell   *cell;

	foreach(cell, class->ec_members)
	{
		EquivalenceMember *member = lfirst_node(EquivalenceMember, cell);
		const Var  *var = (const Var *) member->em_expr;

		if (!member->em_is_child && IsA(var, Var) && var->varno == relid &&
			var->varlevelsup == 0 && var->varattno > 0 &&
			(attno == 0 || var->varattno == attno))
			return member;
	}
	return NULL;
}

/* Match one column of a key with a column of the other table; false where none equals it. */
static bool
match_column(const PlannerInfo *root, ForeignKeyOptInfo *key, int column)
{
	ListCell   *cell;

	foreach(cell, root->eq_classes)
	{
		EquivalenceClass *class = lfirst_node(EquivalenceClass, cell);
		EquivalenceMember *referencing;

		if (class->ec_has_volatile || !bms_is_member(key->ref_relid, class->ec_relids) ||
			!bms_is_member(key->con_relid, class->ec_relids) ||
			column_of_class(class, key->ref_relid, key->confkey[column]) == NULL)
			continue;
		referencing = column_of_class(class, key->con_relid, 0);
		if (referencing == NULL)
			continue;
		key->conkey[column] = ((const Var *) referencing->em_expr)->varattno;
		key->eclass[column] = class;
		key->fk_eclass_member[column] = referencing;
		key->nmatched_ec++;
		key->nconst_ec += class->ec_has_const;
		return true;
	}
	return false;
}

/* The key by which rows of one table are joined to those of a unique index; NULL: they aren't. */
static ForeignKeyOptInfo *
match_key(const PlannerInfo *root, const IndexOptInfo *index, Index relid)
{
	ForeignKeyOptInfo *key = makeNode(ForeignKeyOptInfo);

	key->con_relid = relid;
	key->ref_relid = index->rel->relid;
	key->nkeys = index->nkeycolumns;
	for (int i = 0; i < key->nkeys; i++)
	{
		key->confkey[i] = index->indexkeys[i];
		if (!match_column(root, key, i))
			return NULL;
	}
	return key;
}

/* Do clauses make columns of two tables equal? */
static bool
tables_are_joined(const PlannerInfo *root, Index one, Index other)
{
	ListCell   *cell;

	foreach(cell, root->eq_classes)
	{
		const EquivalenceClass *class = lfirst_node(EquivalenceClass, cell);

		if (bms_is_member(one, class->ec_relids) && bms_is_member(other, class->ec_relids))
			return true;
	}
	return false;
}

static void
add_keys_to(PlannerInfo *root, const IndexOptInfo *index)
{
	for (int relid = 1; relid < root->simple_rel_array_size; relid++)
	{
		ForeignKeyOptInfo *key = NULL;

		if (is_table(root->simple_rel_array[relid]) && relid != index->rel->relid &&
			tables_are_joined(root, relid, index->rel->relid))
			key = match_key(root, index, relid);
		/* Behind the declared ones, which take their clauses first. */
		if (key != NULL)
			root->fkey_list = lappend(root->fkey_list, key);
	}
}

/* Have core estimate joins to the unique indexes of several columns.  Before joins are made. */
void
composite_keys_add(PlannerInfo *root)
{
	for (int relid = 1; relid < root->simple_rel_array_size; relid++)
	{
		const RelOptInfo *rel = root->simple_rel_array[relid];
		ListCell   *cell;

		if (!is_table(rel))
			continue;
		foreach(cell, rel->indexlist)
		{
			const IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);

			if (is_composite_key(index))
				add_keys_to(root, index);
		}
	}
}

/* The column of another table that a clause sets equal to this one; 0: it does not. */
static AttrNumber
column_equal_to(const RestrictInfo *clause, Index relid, Index other, AttrNumber attno)
{
	const OpExpr *call = (const OpExpr *) clause->clause;
	const Var  *left;
	const Var  *right;

	if (!IsA(call, OpExpr) || clause->mergeopfamilies == NIL || list_length(call->args) != 2)
		return 0;
	left = linitial(call->args);
	right = lsecond(call->args);
	if (!IsA(left, Var) || !IsA(right, Var))
		return 0;
	if (left->varno == other)
	{
		const Var  *swapped = left;

		left = right;
		right = swapped;
	}
	return left->varno == relid && right->varno == other && right->varattno == attno ? left->varattno : 0;
}

/* Which of these clauses look up all columns of an index on another table; NIL: they don't. */
static List *
clauses_of_key(const IndexOptInfo *index, Index relid, const List *clauses)
{
	List	   *found = NIL;

	for (int i = 0; i < index->nkeycolumns; i++)
	{
		const int	count = list_length(found);
		ListCell   *cell;

		foreach(cell, clauses)
			if (column_equal_to(lfirst(cell), relid, index->rel->relid, index->indexkeys[i]) > 0)
				found = lappend(found, lfirst(cell));
		if (list_length(found) == count)
			return NIL;
	}
	return found;
}

/* The rows that a look-up finds by a key of several columns of another table, or 0. */
static double
rows_of_lookup(PlannerInfo *root, const RelOptInfo *rel, const ParamPathInfo *lookup)
{
	double		rows = 0;
	int			relid = -1;

	while ((relid = bms_next_member(lookup->ppi_req_outer, relid)) >= 0)
	{
		const RelOptInfo *other = root->simple_rel_array[relid];
		ListCell   *cell;

		if (!is_table(other))
			continue;
		foreach(cell, other->indexlist)
		{
			const IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);
			List	   *of_key = is_composite_key(index) ?
				clauses_of_key(index, rel->relid, lookup->ppi_clauses) : NIL;

			if (of_key == NIL)
				continue;
			rows = Max(rows, rel->rows / Max(other->tuples, 1) *
					   clauselist_selectivity(root, list_difference_ptr(lookup->ppi_clauses, of_key),
											  rel->relid, JOIN_INNER, NULL));
		}
	}
	return Min(rows, rel->rows);
}

/* What it costs to find a row more by this path. */
static Cost
cost_of_row_found(PlannerInfo *root, const Path *path)
{
	return cpu_index_tuple_cost + cpu_tuple_cost +
		(IsA(path, IndexPath) && path->pathtype == T_IndexScan ? cost_fetch(root, (const IndexPath *) path) : 0);
}

/*
 * Estimate what nested loops find by a key of several columns as composite_keys_add does the join: core multiplies
 * the selectivities of the columns, takes a row for each look-up, and a nested loop for these few.
 */
void
composite_keys_correct_lookups(PlannerInfo *root, RelOptInfo *rel)
{
	ListCell   *cell;

	if (!is_table(rel))
		return;
	foreach(cell, rel->ppilist)
	{
		ParamPathInfo *lookup = lfirst(cell);
		const double missing = list_length(lookup->ppi_clauses) > 1 ?
			rows_of_lookup(root, rel, lookup) - lookup->ppi_rows : 0;
		ListCell   *path_cell;

		if (missing <= 0)
			continue;
		lookup->ppi_rows += missing;
		foreach(path_cell, rel->pathlist)
		{
			Path	   *path = lfirst(path_cell);

			if (path->param_info != lookup)
				continue;
			path->rows += missing;
			path->total_cost += missing * cost_of_row_found(root, path);
		}
	}
}
