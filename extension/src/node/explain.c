/*
 * explain.c
 *	  Why a plan, or a part of it, was not batched, in EXPLAIN.
 */
#include "postgres.h"

#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "batchexec.h"
#include "explain.h"

static ExplainOneQuery_hook_type previous_explain_hook = NULL;

/* Set until the query of an EXPLAIN that shows reasons is planned. */
static bool is_explaining = false;
static List *noted_reasons = NIL;

/* The name that core has given a table of the plan; the target of an INSERT has none from it. */
static const char *
table_alias(const ExplainState *es, int scanrelid)
{
	const char *name = list_nth(es->rtable_names, scanrelid - 1);

	return name != NULL ? name : rt_fetch(scanrelid, es->rtable)->eref->aliasname;
}

char *
explain_table_label(const ExplainState *es, int scanrelid)
{
	const Oid	table = rt_fetch(scanrelid, es->rtable)->relid;
	const char *alias = table_alias(es, scanrelid);
	const char *name = get_rel_name(table);
	const char *schema = es->verbose ? get_namespace_name_or_temp(get_rel_namespace(table)) : NULL;
	char	   *label;

	if (name == NULL)
		return pstrdup(quote_identifier(alias));
	label = pstrdup(quote_identifier(name));
	if (schema != NULL)
		label = psprintf("%s.%s", quote_identifier(schema), label);
	return strcmp(name, alias) == 0 ? label : psprintf("%s %s", label, quote_identifier(alias));
}

void
explain_table_fields(ExplainState *es, int scanrelid)
{
	const Oid	table = rt_fetch(scanrelid, es->rtable)->relid;
	const char *name = get_rel_name(table);
	const char *schema = es->verbose ? get_namespace_name_or_temp(get_rel_namespace(table)) : NULL;

	Assert(es->format != EXPLAIN_FORMAT_TEXT);
	if (name != NULL)
		ExplainPropertyText("Relation Name", name, es);
	if (schema != NULL)
		ExplainPropertyText("Schema", schema, es);
	ExplainPropertyText("Alias", table_alias(es, scanrelid), es);
}

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
