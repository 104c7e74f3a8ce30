/*
 * plan_join_path.c
 *	  Batched hash joins, told to the planner.
 *
 * A join whose outer side comes in batches gets a hash join's path with the costs
 * of a BatchJoin.  As in plan_path.c, it is the planner's own path.
 *
 * The search for join orders goes level by level, as core's does: the joins that might
 * be batched are collected on the way, and the cheapest of them is proposed at the end of their level.
 *
 * What a node hands on in batches costs less than the same as rows.  A path has
 * one cost, that of rows; that of batches is remembered here.
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/geqo.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

#include "cost.h"
#include "group.h"
#include "join.h"
#include "join_table.h"
#include "plan.h"
#include "server.h"

/*
 * Each worker makes a hash table of the whole inner side.  A part of that work is taken from the
 * others' processors and memory: this share of it for each worker.
 */
#define REPEATED_WORK_SHARE	0.25

/* Hash chains of candidates, and of inputs, by the address of their table or join. */
#define CHAIN_BITS			7
#define CHAINS				(1 << CHAIN_BITS)

/* A join that might be batched. */
typedef struct JoinCandidate
{
	struct JoinCandidate *before;	/* the one before it in its chain */
	RelOptInfo *joined;
	RelOptInfo *outer;
	RelOptInfo *inner;
	JoinType	type;
	JoinPathExtraData extra;
	int			key_count;
} JoinCandidate;

/*
 * The path of a table or join whose rows come in batches: a join's cheapest one,
 * whether or not it beats the stock ones.  NULL: it has none.
 */
typedef struct BatchedInput
{
	struct BatchedInput *before;	/* the one before it in its chain */
	const RelOptInfo *rel;
	bool		is_partial;
	Path	   *path;
	BatchedCost cost;
} BatchedInput;

/* What the search for the join order of one query has found. */
typedef struct JoinSearch
{
	const PlannerInfo *root;
	JoinCandidate *candidates[CHAINS];	/* of this level, the last of each chain */
	BatchedInput *inputs[CHAINS];	/* of all levels, the last of each chain */
	List	   *batchable;		/* clauses that can be keys */
	List	   *others;			/* clauses that can't */
} JoinSearch;

static join_search_hook_type previous_search_hook = NULL;
static set_join_pathlist_hook_type previous_join_hook = NULL;
static JoinSearch *search = NULL;

/* May a node above stop the query before all rows of a join are read? */
static bool
query_may_stop(const PlannerInfo *root)
{
	const Query *query = root->parse;

	return root->tuple_fraction > 0 && !query->hasAggs && query->groupClause == NIL &&
		query->distinctClause == NIL && query->sortClause == NIL;
}

static bool
target_is_columns(const PathTarget *target)
{
	ListCell   *cell;

	foreach(cell, target->exprs)
		if (!IsA(lfirst(cell), Var))
			return false;
	return true;
}

static bool
type_is_batchable(JoinType type)
{
	return type == JOIN_INNER || type == JOIN_LEFT || type == JOIN_RIGHT || type == JOIN_FULL ||
		type == JOIN_SEMI || type == JOIN_ANTI;
}

/* Does a clause compare an expression of one side with one of the other?  Marks the outer one, as core expects. */
static bool
clause_joins(RestrictInfo *clause, const RelOptInfo *outer, const RelOptInfo *inner)
{
	clause->outer_is_left = bms_is_subset(clause->left_relids, outer->relids);
	return clause->outer_is_left ? bms_is_subset(clause->right_relids, inner->relids) :
		bms_is_subset(clause->left_relids, inner->relids) &&
		bms_is_subset(clause->right_relids, outer->relids);
}

/* Can a clause be a key of a batched join?  Looked up once in a search. */
static bool
clause_is_batchable(RestrictInfo *clause)
{
	bool		is_batchable;

	if (list_member_ptr(search->batchable, clause))
		return true;
	if (list_member_ptr(search->others, clause))
		return false;
	is_batchable = join_clause_obstacle((Node *) clause->clause) == NULL;
	if (is_batchable)
		search->batchable = lappend(search->batchable, clause);
	else
		search->others = lappend(search->others, clause);
	return is_batchable;
}

/*
 * How many clauses a batched hash join has as its keys; 0 where it has no batched form.
 * Adds them to *keys, where there is one.
 */
static int
count_keys(const JoinCandidate *candidate, List **keys)
{
	const RelOptInfo *joined = candidate->joined;
	int			count = 0;
	ListCell   *cell;

	foreach(cell, candidate->extra.restrictlist)
	{
		RestrictInfo *clause = lfirst_node(RestrictInfo, cell);

		if (IS_OUTER_JOIN(candidate->type) && RINFO_IS_PUSHED_DOWN(clause, joined->relids))
			continue;
		if (clause->can_join && OidIsValid(clause->hashjoinoperator) &&
			clause_joins(clause, candidate->outer, candidate->inner))
		{
			if (!clause_is_batchable(clause))
				return 0;
			if (keys != NULL)
				*keys = lappend(*keys, clause);
			count++;
		}
		else if (candidate->type != JOIN_INNER)
			return 0;
	}
	return count <= GROUP_KEYS_MAX ? count : 0;
}

static List *
keys_of_candidate(const JoinCandidate *candidate)
{
	List	   *keys = NIL;

	(void) count_keys(candidate, &keys);
	return keys;
}

/* Is the inner side one of rows that a hash table can hold? */
static bool
inner_is_batchable(const Path *inner)
{
	return inner->param_info == NULL &&
		list_length(inner->pathtarget->exprs) <= JOIN_INNER_COLUMNS_MAX;
}

/* A join's inner path, and its cost, of its batches where it has these. */
typedef struct JoinInner
{
	Path	   *path;
	Cost		cost;
} JoinInner;

/* The paths of a join's sides, and what a batched join costs over them. */
typedef struct JoinChoice
{
	const JoinCandidate *candidate;
	Path	   *outer;
	Path	   *inner;
	BatchedCost cost;
} JoinChoice;

/* Pairs of equal keys, before the other clauses are checked. */
static double
count_matches(PlannerInfo *root, const JoinCandidate *candidate)
{
	const List *clauses = candidate->extra.restrictlist;
	double		selectivity;

	if (candidate->type != JOIN_INNER || list_length(clauses) == candidate->key_count)
		return candidate->joined->rows;
	selectivity = clauselist_selectivity(root,
										 list_difference_ptr(clauses, keys_of_candidate(candidate)),
										 0, JOIN_INNER, NULL);
	return Min(candidate->joined->rows / Max(selectivity, 1e-9),
			   candidate->outer->rows * candidate->inner->rows);
}

/* What the files of a join in rounds cost; 0: its inner rows fit in memory. */
static Cost
cost_rounds(const Path *outer, const Path *inner)
{
	const PathTarget *target = inner->pathtarget;
	const double memories = cost_group_memories(inner->rows, target->width,
												list_length(target->exprs));

	if (memories < 1)
		return 0;
	return cost_files(inner->rows, target->width) +
		cost_files(outer->rows, outer->pathtarget->width) * (1 - 1 / memories);
}

/* What a join's clauses beside its keys cost for each pair. */
static Cost
cost_of_others(PlannerInfo *root, const JoinCandidate *candidate)
{
	const List *clauses = candidate->extra.restrictlist;
	QualCost	all;
	QualCost	of_keys;

	if (list_length(clauses) == candidate->key_count)
		return 0;
	cost_qual_eval(&all, (List *) clauses, root);
	cost_qual_eval(&of_keys, keys_of_candidate(candidate), root);
	return Max(all.per_tuple - of_keys.per_tuple, 0);
}

/* What a batched join costs over its two sides, without what is above it. */
static BatchedCost
cost_join(PlannerInfo *root, const BatchedInput *outer, const JoinInner *inner,
		  const JoinCandidate *candidate)
{
	const double matches = count_matches(root, candidate);
	BatchedCost cost;
	const double repetition = 1 + REPEATED_WORK_SHARE * outer->path->parallel_workers;

	cost.startup = outer->cost.startup +
		repetition * (inner->cost + cost_hash_rows(inner->path->rows, candidate->key_count, JOIN_KEEPS_ONE(candidate->type)));
	cost.total = cost.startup + outer->cost.total - outer->cost.startup +
		cost_probe(outer->path->rows, candidate->key_count, matches) +
		cost_rounds(outer->path, inner->path) + matches * cost_of_others(root, candidate);
	return cost;
}

/* The number of the chain that a table or join shares with others. */
static int
chain_of_rel(const RelOptInfo *rel)
{
	return (int) ((uint64) (uintptr_t) rel * UINT64CONST(0x9E3779B97F4A7C15) >> (64 - CHAIN_BITS));
}

/* What was found of a table or join as a side in batches, or NULL. */
static BatchedInput *
find_input(const RelOptInfo *rel, bool is_partial)
{
	BatchedInput *input = search->inputs[chain_of_rel(rel)];

	while (input != NULL && (input->rel != rel || input->is_partial != is_partial))
		input = input->before;
	return input;
}

static BatchedInput *
remember_input(const RelOptInfo *rel, bool is_partial, Path *path, BatchedCost cost)
{
	BatchedInput **chain = &search->inputs[chain_of_rel(rel)];
	BatchedInput *input = palloc(sizeof(BatchedInput));

	*input = (BatchedInput) {*chain, rel, is_partial, path, cost};
	return *chain = input;
}

/* Of a side of a join, the path that hands on batches, and its cost as such; or NULL. */
static const BatchedInput *
side_in_batches(PlannerInfo *root, RelOptInfo *rel, bool is_partial)
{
	BatchedInput *input = find_input(rel, is_partial);
	BatchedCost cost = {0};
	Path	   *path;

	if (input == NULL && IS_SIMPLE_REL(rel))
	{
		path = target_is_columns(rel->reltarget) ?
			path_table_scan(root, rel, is_partial) : NULL;
		if (path != NULL && !path_cost_scan_in_batches(root, path, &cost))
			path = NULL;
		if (path != NULL)
		{
			path->startup_cost = cost.startup;
			path->total_cost = cost.total;
		}
		input = remember_input(rel, is_partial, path, cost);
	}
	return input != NULL && input->path != NULL ? input : NULL;
}

/* The cheaper of a candidate's inner paths, in batches or not; or none. */
static JoinInner
inner_of_candidate(PlannerInfo *root, const JoinCandidate *candidate, bool is_partial)
{
	RelOptInfo *rel = candidate->inner;
	Path	   *path = rel->cheapest_total_path;
	const BatchedInput *in_batches;
	JoinInner	inner = {NULL};

	if (is_partial && (candidate->type == JOIN_RIGHT || candidate->type == JOIN_FULL ||
					   candidate->outer->partial_pathlist == NIL))
		return inner;
	if (is_partial && !path->parallel_safe)
		path = get_cheapest_parallel_safe_total_inner(rel->pathlist);
	if (path != NULL && inner_is_batchable(path))
		inner = (JoinInner) {path, path->total_cost};
	in_batches = side_in_batches(root, rel, false);
	if (in_batches != NULL && inner_is_batchable(in_batches->path) &&
		(in_batches->path->parallel_safe || !is_partial) &&
		(inner.path == NULL || in_batches->cost.total < inner.cost))
		inner = (JoinInner) {in_batches->path, in_batches->cost.total};
	return inner;
}

/* The last one of the chain that the candidates for a join are in. */
static JoinCandidate **
candidate_chain(const RelOptInfo *joined)
{
	return &search->candidates[chain_of_rel(joined)];
}

/* The cheapest of the candidates for a join; the first of those that cost the same. */
static JoinChoice
cheapest_candidate(PlannerInfo *root, const RelOptInfo *joined, bool is_partial)
{
	JoinChoice	best = {0};

	for (const JoinCandidate *candidate = *candidate_chain(joined); candidate != NULL;
		 candidate = candidate->before)
	{
		const BatchedInput *outer;
		JoinChoice	choice;
		JoinInner	inner;

		if (candidate->joined != joined)
			continue;
		inner = inner_of_candidate(root, candidate, is_partial);
		if (inner.path == NULL)
			continue;
		outer = side_in_batches(root, candidate->outer, is_partial);
		if (outer == NULL)
			continue;
		choice = (JoinChoice) {candidate, outer->path, inner.path,
							   cost_join(root, outer, &inner, candidate)};
		if (best.candidate == NULL || choice.cost.total <= best.cost.total)
			best = choice;
	}
	return best;
}

static Path *
create_batched_join(PlannerInfo *root, RelOptInfo *joined, const JoinChoice *choice)
{
	JoinCandidate *candidate = unconstify(JoinCandidate *, choice->candidate);
	/* This marks the outer side of each clause again: the candidate looked at last may join in the other direction. */
	List	   *keys = keys_of_candidate(candidate);
	JoinCostWorkspace workspace;
	HashPath   *path;

	initial_cost_hashjoin(root, &workspace, candidate->type, keys, choice->outer,
						  choice->inner, &candidate->extra, false);
	path = create_hashjoin_path(root, joined, candidate->type, &workspace, &candidate->extra,
								choice->outer, choice->inner, false,
								candidate->extra.restrictlist, NULL, keys);
	return &path->jpath.path;
}

/* Will an aggregation, or DISTINCT, take the rows of this join, in batches? */
static bool
feeds_aggregation(const PlannerInfo *root, const RelOptInfo *joined)
{
	const Query *query = root->parse;

	return bms_equal(joined->relids, ALL_RELIDS(root)) &&
		(query->hasAggs || query->groupClause != NIL ||
		 (query->distinctClause != NIL && !query->hasDistinctOn && !query->hasWindowFuncs &&
		  !query->hasTargetSRFs));
}

/* Remember the cheapest batched path of a join, and propose it. */
static void
add_batched_join(PlannerInfo *root, RelOptInfo *joined, bool is_partial)
{
	const JoinChoice choice = cheapest_candidate(root, joined, is_partial);
	Path	   *remembered = NULL;
	Path	   *path;

	if (choice.candidate == NULL)
	{
		(void) remember_input(joined, is_partial, NULL, choice.cost);
		return;
	}
	path = create_batched_join(root, joined, &choice);
	path->startup_cost = choice.cost.startup;
	path->total_cost = choice.cost.total;
	if (!feeds_aggregation(root, joined))
		path->total_cost += path->rows *
			(batchexec_cost_result_row + joined->reltarget->cost.per_tuple);
	/* The planner may free a path that it is given. */
	if (target_is_columns(joined->reltarget))
		remembered = memcpy(palloc(sizeof(HashPath)), path, sizeof(HashPath));
	(void) remember_input(joined, is_partial, remembered, choice.cost);
	if (is_partial)
		add_partial_path(joined, path);
	else
		add_path(joined, path);
}

/* Remember what might be batched of the joins of these sides. */
static void
collect_candidate(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
				  JoinType type, JoinPathExtraData *extra)
{
	JoinCandidate found;
	JoinCandidate **chain;

	if (previous_join_hook != NULL)
		previous_join_hook(root, joined, outer, inner, type, extra);
	if (search == NULL || search->root != root || joined->reloptkind != RELOPT_JOINREL ||
		IS_IN_GROUPS(joined) || !MAY_JOIN_BY_HASH(extra) ||
		!type_is_batchable(type) || !bms_is_empty(joined->lateral_relids) ||
		(side_in_batches(root, outer, false) == NULL &&
		 (outer->partial_pathlist == NIL || side_in_batches(root, outer, true) == NULL)))
		return;
	chain = candidate_chain(joined);
	found = (JoinCandidate) {*chain, joined, outer, inner, type, *extra, 0};
	found.key_count = count_keys(&found, NULL);
	if (found.key_count == 0)
		return;
	/* That of an inner join is a variable of the function that calls this. */
	found.extra.sjinfo = memcpy(palloc(sizeof(SpecialJoinInfo)), extra->sjinfo, sizeof(SpecialJoinInfo));
	*chain = memcpy(palloc(sizeof(JoinCandidate)), &found, sizeof(JoinCandidate));
}

/* The paths of the joins of one level, as core completes them. */
static void
complete_level(PlannerInfo *root, List *joins)
{
	ListCell   *cell;

	foreach(cell, joins)
	{
		RelOptInfo *joined = lfirst(cell);

		generate_partitionwise_join_paths(root, joined);
		add_batched_join(root, joined, false);
		if (joined->consider_parallel)
			add_batched_join(root, joined, true);
		if (!bms_equal(joined->relids, ALL_RELIDS(root)))
			generate_useful_gather_paths(root, joined, false);
		set_cheapest(joined);
		if (!bms_equal(joined->relids, ALL_RELIDS(root)))
			COMPLETE_GROUPED_PATHS(root, joined);
	}
	memset(search->candidates, 0, sizeof(search->candidates));
}

/* Can any of these tables be the outer side of a batched join? */
static bool
has_batchable_table(PlannerInfo *root, List *rels)
{
	ListCell   *cell;

	foreach(cell, rels)
		if (path_has_table_scan(root, lfirst(cell)))
			return true;
	return false;
}

static RelOptInfo *
search_levels(PlannerInfo *root, int levels, List *initial_rels)
{
	RelOptInfo *result;
	const bool	may_leave_out = merge_joins_are_optional(root, initial_rels);
	List	   *below = initial_rels;

	root->join_rel_level = palloc0((levels + 1) * sizeof(List *));
	root->join_rel_level[1] = initial_rels;
	for (int level = 2; level <= levels; level++)
	{
		if (may_leave_out && level > 2)
			(void) merge_joins_leave_out(!merge_join_has_won(below));
		join_search_one_level(root, level);
		below = root->join_rel_level[level];
		complete_level(root, below);
	}
	if (root->join_rel_level[levels] == NIL)
		elog(ERROR, "failed to build any %d-way joins", levels);
	result = linitial(root->join_rel_level[levels]);
	root->join_rel_level = NULL;
	return result;
}

static RelOptInfo *
search_joins(PlannerInfo *root, int levels, List *initial_rels)
{
	JoinSearch	own = {.root = root};
	JoinSearch *const before = search;
	RelOptInfo *volatile result = NULL;

	if (previous_search_hook != NULL)
		return previous_search_hook(root, levels, initial_rels);
	if (enable_geqo && levels >= geqo_threshold)
		return geqo(root, levels, initial_rels);
	if (!batchexec_join_paths || !path_is_planning() || !MAY_HASH_JOINS(root) ||
		query_may_stop(root) || !has_batchable_table(root, initial_rels))
		return standard_join_search(root, levels, initial_rels);

	composite_keys_add(root);
	/* A function that is evaluated on the way may plan a search of its own, and fail. */
	search = &own;
	PG_TRY();
	{
		result = search_levels(root, levels, initial_rels);
	}
	PG_FINALLY();
	{
		search = before;
		(void) merge_joins_leave_out(false);
	}
	PG_END_TRY();
	return result;
}

void
join_path_install_hook(void)
{
	previous_join_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = collect_candidate;
	previous_search_hook = join_search_hook;
	join_search_hook = search_joins;
}
