/*
 * into.c
 *	  CREATE TABLE AS, SELECT INTO, and materialized views: their rows are written a page at a time.
 *
 * The server has a receiver of its own for such a query's rows, which makes the table when the query starts
 * and then inserts each row.  Another receiver goes in front of it, which keeps
 * rows, and writes them as BatchInsert does, with what the server's own would hand to each insertion.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/hio.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/rel.h"

#include "batchexec.h"
#include "into.h"
#include "row_buffer.h"
#include "server.h"
#include "statistics.h"

typedef struct BatchReceiver
{
	DestReceiver base;			/* must be first */
	DestReceiver *stock;
	IntoTarget	target;
	RowBuffer	rows;			/* of no table, where the stock receiver takes the rows */
} BatchReceiver;

static ProcessUtility_hook_type previous_utility_hook = NULL;
static ExecutorRun_hook_type previous_run_hook = NULL;

/* Does a statement that makes a table of a query's rows run? */
static bool is_awaiting_plan = false;
static const PlannedStmt *noted_plan = NULL;

bool
into_awaits_plan(void)
{
	return is_awaiting_plan && batching_is_on();
}

void
into_note_plan(const PlannedStmt *statement, bool rows_may_wait)
{
	const bool	pays = batchexec_mode != BATCH_MODE_ALLOW ||
		statement->planTree->plan_rows >= INSERT_ROWS_TO_PAY;

	noted_plan = rows_may_wait && pays && statement->commandType == CMD_SELECT ? statement : NULL;
}

static void
write_rows(BatchReceiver *receiver)
{
	if (receiver->rows.row_count == 0)
		return;
	row_buffer_write(&receiver->rows, receiver->target.command, receiver->target.options, receiver->target.bulk);
	row_buffer_forget(&receiver->rows);
}

static void
start_receiver(DestReceiver *self, int operation, TupleDesc descriptor)
{
	BatchReceiver *receiver = (BatchReceiver *) self;
	Relation	relation;

	receiver->stock->rStartup(receiver->stock, operation, descriptor);
	if (!server_into_target(receiver->stock, &receiver->target))
		return;
	relation = receiver->target.relation;
	if (relation->rd_tableam == GetHeapamTableAmRoutine() &&
		RelationGetDescr(relation)->natts == descriptor->natts)
		row_buffer_begin(&receiver->rows, relation);
}

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	BatchReceiver *receiver = (BatchReceiver *) self;

	if (receiver->rows.relation == NULL)
		return receiver->stock->receiveSlot(slot, receiver->stock);
	Assert(!TTS_EMPTY(slot));
	row_buffer_keep(&receiver->rows, slot);
	if (row_buffer_is_full(&receiver->rows))
		write_rows(receiver);
	return true;
}

/* The stock receiver lets go of the table. */
static void
stop_receiver(DestReceiver *self)
{
	BatchReceiver *receiver = (BatchReceiver *) self;

	if (receiver->rows.relation != NULL)
	{
		write_rows(receiver);
		statistics_count_rows_inserted(receiver->rows.rows_written, receiver->rows.batches_written);
		row_buffer_end(&receiver->rows);
	}
	receiver->stock->rShutdown(receiver->stock);
}

/* Whoever made the stock receiver destroys it. */
static void
destroy_receiver(DestReceiver *self)
{
	pfree(self);
}

static DestReceiver *
create_receiver(DestReceiver *stock)
{
	BatchReceiver *receiver = palloc0(sizeof(BatchReceiver));

	receiver->base = (DestReceiver) {
		.receiveSlot = receive_row,
		.rStartup = start_receiver,
		.rShutdown = stop_receiver,
		.rDestroy = destroy_receiver,
		.mydest = stock->mydest,
	};
	receiver->stock = stock;
	return &receiver->base;
}

static void
run_previous(RUN_PARAMETERS)
{
	if (previous_run_hook != NULL)
		previous_run_hook(RUN_ARGUMENTS);
	else
		standard_ExecutorRun(RUN_ARGUMENTS);
}

static void
run_with_receiver(RUN_PARAMETERS)
{
	DestReceiver *const stock = query->dest;

	if (noted_plan == NULL || query->plannedstmt != noted_plan ||
		(stock->mydest != DestIntoRel && stock->mydest != DestTransientRel))
	{
		run_previous(RUN_ARGUMENTS);
		return;
	}
	Assert(noted_plan->commandType == CMD_SELECT);
	noted_plan = NULL;
	/* What is planned from now on is of functions that the query calls. */
	is_awaiting_plan = false;
	query->dest = create_receiver(stock);
	PG_TRY();
	{
		run_previous(RUN_ARGUMENTS);
	}
	PG_FINALLY();
	{
		query->dest->rDestroy(query->dest);
		query->dest = stock;
	}
	PG_END_TRY();
}

/* Does a statement make a table of a query's rows? */
static bool
makes_table_of_rows(const Node *statement)
{
	if (IsA(statement, ExplainStmt))
	{
		const Query *query = (const Query *) ((const ExplainStmt *) statement)->query;

		return IsA(query, Query) && query->utilityStmt != NULL && IsA(query->utilityStmt, CreateTableAsStmt);
	}
	return IsA(statement, CreateTableAsStmt) || IsA(statement, RefreshMatViewStmt);
}

static void
process_utility(PlannedStmt *statement, const char *query_string, bool is_read_only,
				ProcessUtilityContext context, ParamListInfo parameters,
				QueryEnvironment *environment, DestReceiver *receiver, QueryCompletion *completion)
{
	const bool	was_awaiting = is_awaiting_plan;

	is_awaiting_plan = makes_table_of_rows(statement->utilityStmt);
	PG_TRY();
	{
		if (previous_utility_hook != NULL)
			previous_utility_hook(statement, query_string, is_read_only, context, parameters, environment,
								  receiver, completion);
		else
			standard_ProcessUtility(statement, query_string, is_read_only, context, parameters, environment,
									receiver, completion);
	}
	PG_FINALLY();
	{
		is_awaiting_plan = was_awaiting;
		noted_plan = NULL;
	}
	PG_END_TRY();
}

void
into_install_hooks(void)
{
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	previous_run_hook = ExecutorRun_hook;
	ExecutorRun_hook = run_with_receiver;
}
