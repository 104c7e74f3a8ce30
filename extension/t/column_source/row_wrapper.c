/*
 * row_wrapper.c
 *	  A foreign data wrapper for tests of registered sources of batches.
 *
 * A foreign table has the rows of a local table, whose columns of the same names
 * it shows.  It is read by rows where pg_batchexec is not loaded, and by batches
 * where it is.  Options of a foreign table:
 *
 *		local_table			whose rows it has
 *		checks_conditions	true: the wrapper checks conditions itself, as if remotely
 *		damaged_row			the number of a row that can't be read
 *		has_batches			false: it is read by rows alone
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "column_batch.h"
#include "server.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(row_wrapper_handler);
PG_FUNCTION_INFO_V1(row_wrapper_validator);

void		_PG_init(void);

/* The scan of a foreign table, by rows or by batches. */
typedef struct RowScan
{
	Relation	local;
	TableScanDesc scan;
	TupleTableSlot *row;		/* of the local table */
	AttrNumber *columns;		/* of the local table, for each of the foreign one; 0: dropped */
	ExprState  *conditions;		/* that the wrapper checks */
	ExprContext *econtext;		/* for these */
	int64		damaged_row;	/* 0: none is */
	int64		rows_read;
	bool		is_finished;
} RowScan;

/* An option of a foreign table, or NULL. */
static char *
table_option(Oid table, const char *name)
{
	ListCell   *cell;

	foreach(cell, GetForeignTable(table)->options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			return defGetString(option);
	}
	return NULL;
}

static bool
table_flag(Oid table, const char *name, bool value)
{
	const char *option = table_option(table, name);

	if (option != NULL && !parse_bool(option, &value))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("option \"%s\" is not a boolean", name)));
	return value;
}

static Relation
open_local_table(Oid table)
{
	const char *name = table_option(table, "local_table");

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
				 errmsg("foreign table \"%s\" has no option \"local_table\"", get_rel_name(table))));
	return table_openrv(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name))),
						AccessShareLock);
}

static void
get_size(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	Relation	local = open_local_table(table);
	double		all_visible;

	table_relation_estimate_size(local, NULL, &rel->pages, &rel->tuples, &all_visible);
	table_close(local, AccessShareLock);
	rel->rows = clamp_row_est(rel->tuples *
							  clauselist_selectivity(root, rel->baserestrictinfo, 0, JOIN_INNER, NULL));
}

static void
get_paths(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	const Cost	startup = rel->baserestrictcost.startup;
	const Cost	total = startup + rel->pages * seq_page_cost +
		rel->tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple);

	add_path(rel, (Path *) FOREIGN_SCAN_PATH(root, rel, startup, total));
}

static ForeignScan *
get_plan(PlannerInfo *root, RelOptInfo *rel, Oid table, ForeignPath *path, List *targets,
		 List *clauses, Plan *outer_plan)
{
	const bool	checks_conditions = table_flag(table, "checks_conditions", false);
	List	   *remote = NIL;
	List	   *local = NIL;
	ListCell   *cell;

	foreach(cell, extract_actual_clauses(clauses, false))
	{
		if (checks_conditions && !contain_volatile_functions(lfirst(cell)) &&
			!contain_subplans(lfirst(cell)))
			remote = lappend(remote, lfirst(cell));
		else
			local = lappend(local, lfirst(cell));
	}
	return make_foreignscan(targets, local, rel->relid, remote, NIL, NIL, remote, outer_plan);
}

/* The local table is read with the rights of the user that the foreign table is. */
static Oid
reading_user(const ForeignScanState *state)
{
	const ForeignScan *plan = (const ForeignScan *) state->ss.ps.plan;
	const Oid	user = FOREIGN_SCAN_USER(plan, state->ss.ps.state);

	return OidIsValid(user) ? user : GetUserId();
}

static void
check_rights(const ForeignScanState *state, Relation local)
{
	const AclResult result = pg_class_aclcheck(RelationGetRelid(local), reading_user(state), ACL_SELECT);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_TABLE, RelationGetRelationName(local));
}

/* Find the columns of a foreign table in the local one. */
static AttrNumber *
map_columns(TupleDesc foreign, Relation local)
{
	AttrNumber *columns = palloc0(sizeof(AttrNumber) * (foreign->natts + 1));

	for (int i = 0; i < foreign->natts; i++)
	{
		const Form_pg_attribute form = TupleDescAttr(foreign, i);

		if (form->attisdropped)
			continue;
		columns[i] = get_attnum(RelationGetRelid(local), NameStr(form->attname));
		if (columns[i] <= 0 ||
			TupleDescAttr(RelationGetDescr(local), columns[i] - 1)->atttypid != form->atttypid)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_COLUMN_NAME),
					 errmsg("table \"%s\" has no column \"%s\" of this type",
							RelationGetRelationName(local), NameStr(form->attname))));
	}
	return columns;
}

static void
begin_scan(ForeignScanState *state, int eflags)
{
	EState	   *estate = state->ss.ps.state;
	const Oid	table = RelationGetRelid(state->ss.ss_currentRelation);
	const char *damaged_row = table_option(table, "damaged_row");
	RowScan    *scan;

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	scan = palloc0(sizeof(RowScan));
	scan->local = open_local_table(table);
	check_rights(state, scan->local);
	scan->columns = map_columns(RelationGetDescr(state->ss.ss_currentRelation), scan->local);
	scan->damaged_row = damaged_row != NULL ? pg_strtoint32(damaged_row) : 0;
	scan->conditions = ExecInitQual(((ForeignScan *) state->ss.ps.plan)->fdw_exprs, &state->ss.ps);
	scan->econtext = CreateExprContext(estate);
	scan->row = table_slot_create(scan->local, NULL);
	scan->scan = BEGIN_SCAN(scan->local, estate->es_snapshot);
	state->fdw_state = scan;
}

/* Put the row of the local table in the foreign table's slot. */
static void
show_row(const RowScan *scan, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	slot_getallattrs(scan->row);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		const AttrNumber column = scan->columns[i];

		slot->tts_isnull[i] = column == 0 || scan->row->tts_isnull[column - 1];
		slot->tts_values[i] = slot->tts_isnull[i] ? (Datum) 0 : scan->row->tts_values[column - 1];
	}
	ExecStoreVirtualTuple(slot);
}

/* Is the next row of the local table one that can't be read? */
static bool
is_before_damage(const RowScan *scan)
{
	return scan->rows_read + 1 == scan->damaged_row;
}

/* Read one row of the local table; false at its end, and where a condition is not met. */
static bool
read_row(RowScan *scan, TupleTableSlot *slot)
{
	CHECK_FOR_INTERRUPTS();
	if (!table_scan_getnextslot(scan->scan, ForwardScanDirection, scan->row))
	{
		scan->is_finished = true;
		return false;
	}
	if (is_before_damage(scan))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row %lld is damaged", (long long) scan->damaged_row)));
	scan->rows_read++;
	show_row(scan, slot);
	ResetExprContext(scan->econtext);
	scan->econtext->ecxt_scantuple = slot;
	return ExecQual(scan->conditions, scan->econtext);
}

static TupleTableSlot *
iterate_scan(ForeignScanState *state)
{
	RowScan    *scan = state->fdw_state;
	TupleTableSlot *slot = state->ss.ss_ScanTupleSlot;

	while (!scan->is_finished)
		if (read_row(scan, slot))
			return slot;
	return ExecClearTuple(slot);
}

static void
rescan_scan(ForeignScanState *state)
{
	RowScan    *scan = state->fdw_state;

	scan->rows_read = 0;
	scan->is_finished = false;
	ExecClearTuple(state->ss.ss_ScanTupleSlot);
	ExecClearTuple(scan->row);
	table_rescan(scan->scan, NULL);
}

static void
end_scan(ForeignScanState *state)
{
	RowScan    *scan = state->fdw_state;

	if (scan == NULL)
		return;
	ExecDropSingleTupleTableSlot(scan->row);
	table_endscan(scan->scan);
	table_close(scan->local, NoLock);
}

static void
explain_scan(ForeignScanState *state, ExplainState *es)
{
	const char *name = table_option(RelationGetRelid(state->ss.ss_currentRelation), "local_table");

	ExplainPropertyText("Local Table", name, es);
}

static bool
runs_in_workers(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *entry)
{
	return true;
}

/* The source of batches. */

static bool
reads(Relation relation)
{
	return relation->rd_rel->relkind == RELKIND_FOREIGN_TABLE &&
		GetFdwRoutineForRelation(relation, false)->IterateForeignScan == iterate_scan &&
		table_flag(RelationGetRelid(relation), "has_batches", true);
}

static const BatchSourceOps row_source_ops;

static BatchSource *
create(Relation relation, TupleTableSlot *slot)
{
	return &create_column_source(&row_source_ops, sizeof(ColumnSource), relation, slot)->base;
}

static void
start(BatchSource *base, Snapshot snapshot, ParallelTableScanDesc shared)
{
	/* The foreign scan has been begun, or rescanned. */
}

static bool
next(BatchSource *base, int rows_max)
{
	ColumnSource *source = (ColumnSource *) base;
	RowScan    *scan = base->foreign_scan->fdw_state;
	TupleTableSlot *slot = base->foreign_scan->ss.ss_ScanTupleSlot;
	const int	limit = Min(rows_max, *services->batch_rows);
	int			rows = 0;

	MemoryContextReset(source->values);
	while (rows < limit && !scan->is_finished && (rows == 0 || !is_before_damage(scan)))
		if (read_row(scan, slot))
			add_row(source, slot, rows++);
	if (rows == 0)
		return false;
	services->start_batch(base->batch, rows);
	return true;
}

static void
rescan(BatchSource *base)
{
}

static void
stop(BatchSource *base)
{
	ExecClearTuple(base->foreign_scan->ss.ss_ScanTupleSlot);
}

static const BatchSourceOps row_source_ops = {
	.name = "row_wrapper",
	.reads = reads,
	.slot_ops = &TTSOpsVirtual,
	.create = create,
	.start = start,
	.next = next,
	.rescan = rescan,
	.stop = stop,
};

/* The wrapper does without pg_batchexec where that is not loaded. */
void
_PG_init(void)
{
	batchexec_register_source_type *register_source =
		(batchexec_register_source_type *) *find_rendezvous_variable(BATCHEXEC_REGISTER_SOURCE);

	define_dictionary_settings("row_wrapper.dictionaries", "row_wrapper.dictionary_fault");
	if (register_source != NULL)
		services = register_source(&row_source_ops, BATCHEXEC_SOURCE_VERSION);
}

Datum
row_wrapper_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = get_size;
	routine->GetForeignPaths = get_paths;
	routine->GetForeignPlan = get_plan;
	routine->BeginForeignScan = begin_scan;
	routine->IterateForeignScan = iterate_scan;
	routine->ReScanForeignScan = rescan_scan;
	routine->EndForeignScan = end_scan;
	routine->ExplainForeignScan = explain_scan;
	routine->IsForeignScanParallelSafe = runs_in_workers;
	PG_RETURN_POINTER(routine);
}

Datum
row_wrapper_validator(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	foreach(cell, untransformRelOptions(PG_GETARG_DATUM(0)))
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (PG_GETARG_OID(1) != ForeignTableRelationId ||
			(strcmp(option->defname, "local_table") != 0 &&
			 strcmp(option->defname, "checks_conditions") != 0 &&
			 strcmp(option->defname, "damaged_row") != 0 &&
			 strcmp(option->defname, "has_batches") != 0))
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", option->defname)));
	}
	PG_RETURN_VOID();
}
