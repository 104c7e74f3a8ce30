/*
 * join_explain.c
 *	  A BatchJoin in EXPLAIN.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/ruleutils.h"

#include "join_state.h"

static const char *
type_label(JoinType type)
{
	switch (type)
	{
		case JOIN_LEFT:
			return "Left";
		case JOIN_RIGHT:
			return "Right";
		case JOIN_FULL:
			return "Full";
		case JOIN_SEMI:
			return "Semi";
		case JOIN_ANTI:
			return "Anti";
		default:
			return "Inner";
	}
}

static void
explain_clauses(CustomScanState *css, const char *label, List *clauses,
				List *ancestors, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, css->ss.ps.plan,
												   ancestors);

	if (clauses != NIL)
		ExplainPropertyText(label,
							deparse_expression((Node *) make_ands_explicit(clauses),
											   context, true, false), es);
}

/* Note what a loop that ends did. */
void
join_note_figures(BatchJoinState *state)
{
	JoinFigures *figures = &state->figures;
	const JoinRounds *rounds = state->rounds;

	figures->has_read |= state->is_filled;
	figures->row_count = Max(figures->row_count, rounds != NULL ? rounds->inner_row_count :
							 state->table->row_count);
	if (rounds == NULL)
		return;
	figures->round_count = Max(figures->round_count, rounds->rounds_made);
	figures->file_blocks = Max(figures->file_blocks, rounds->store->block_count);
}

/* In text, of what there was; else all. */
static void
explain_figures(const JoinFigures *figures, ExplainState *es)
{
	const bool	shows_all = es->format != EXPLAIN_FORMAT_TEXT;

	if (shows_all || figures->has_read)
	{
		ExplainPropertyInteger("Hash Table Rows", NULL, (int64) figures->row_count, es);
		ExplainPropertyInteger("Hash Table Memory", "kB", (int64) ((figures->table_bytes + 1023) / 1024), es);
	}
	if (shows_all || figures->round_count > 0)
	{
		ExplainPropertyInteger("Hash Table Rounds", NULL, figures->round_count, es);
		ExplainPropertyInteger("Disk Usage", "kB", figures->file_blocks * (BLCKSZ / 1024), es);
	}
}

void
join_explain(CustomScanState *css, List *ancestors, ExplainState *es)
{
	BatchJoinState *state = (BatchJoinState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	List	   *clauses = list_nth(plan->custom_exprs, BATCH_JOIN_CLAUSES);

	if (state->node.original != NULL)
	{
		if (batchexec_explain)
			ExplainPropertyText("Not Batched", state->node.obstacle, es);
		return;
	}
	ExplainPropertyText("Join Type", type_label(linitial_int(list_nth(plan->custom_private, BATCH_JOIN_TYPE))), es);
	explain_clauses(css, "Hash Cond", list_nth(plan->custom_exprs, BATCH_JOIN_CONDITION),
					ancestors, es);
	explain_clauses(css, "Join Filter", clauses, ancestors, es);
	if (!es->analyze)
		return;
	if (clauses != NIL && css->ss.ps.instrument != NULL)
		ExplainPropertyFloat("Rows Removed by Join Filter", NULL,
							 css->ss.ps.instrument->nfiltered1 /
							 Max(css->ss.ps.instrument->nloops, 1), 0, es);
	if (!batchexec_explain)
		return;
	join_note_figures(state);
	explain_figures(&state->figures, es);
	counters_explain_compaction(&state->node.own_counters, es);
}
