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

#include "plan.h"

static bool
is_table(const RelOptInfo *rel)
{
	return rel != NULL && rel->reloptkind == RELOPT_BASEREL && rel->rtekind == RTE_RELATION;
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

			if (index->unique && index->nkeycolumns > 1 && index->indpred == NIL &&
				index->indexprs == NIL)
				add_keys_to(root, index);
		}
	}
}
