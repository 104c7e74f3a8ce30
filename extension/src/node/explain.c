/*
 * explain.c
 *	  Why a plan, or a part of it, was not batched, in EXPLAIN.
 */
#include "postgres.h"

#include "batchexec.h"
#include "explain.h"

static ExplainOneQuery_hook_type previous_explain_hook = NULL;

/* Set until the query of an EXPLAIN that shows reasons is planned. */
static bool is_explaining = false;
static List *noted_reasons = NIL;

bool
explain_awaits_reasons(void)
{
	return is_explaining;
}

void
explain_note_reasons(List *reasons)
{
	if (!is_explaining)
		return;
	noted_reasons = reasons;
	/* Queries of functions that it calls are of no interest. */
	is_explaining = false;
}

static void
show_reasons(List *reasons, ExplainState *es)
{
	ListCell   *cell;

	if (reasons == NIL)
		return;
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainOpenGroup("Batch Execution", NULL, true, es);
		ExplainPropertyList("Not Batched", reasons, es);
		ExplainCloseGroup("Batch Execution", NULL, true, es);
		return;
	}
	foreach(cell, reasons)
		ExplainPropertyText("Not Batched", lfirst(cell), es);
}

static void
explain_with_reasons(Query *query, int cursor_options, IntoClause *into,
					 ExplainState *es, const char *query_string,
					 ParamListInfo parameters, QueryEnvironment *environment)
{
	List	   *volatile reasons = NIL;

	is_explaining = batchexec_explain;
	noted_reasons = NIL;
	PG_TRY();
	{
		if (previous_explain_hook != NULL)
			previous_explain_hook(query, cursor_options, into, es,
								  query_string, parameters, environment);
		else
			standard_ExplainOneQuery(query, cursor_options, into, es, query_string,
									 parameters, environment);
	}
	PG_FINALLY();
	{
		is_explaining = false;
		reasons = noted_reasons;
		noted_reasons = NIL;
	}
	PG_END_TRY();
	show_reasons(reasons, es);
}

void
explain_install_hook(void)
{
	previous_explain_hook = ExplainOneQuery_hook;
	ExplainOneQuery_hook = explain_with_reasons;
}
