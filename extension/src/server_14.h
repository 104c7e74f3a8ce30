/*
 * server_14.h
 *	  What PostgreSQL 14 lacks, under the names that 15 gives it.
 */
#ifndef SERVER_14_H
#define SERVER_14_H

#if PG_VERSION_NUM < 150000

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

/* 14 has no MERGE. */
#define CMD_MERGE CMD_UNKNOWN

/* 14 takes each custom scan to project. */
#define CUSTOMPATH_SUPPORT_PROJECTION 0

#define MarkGUCPrefixReserved(prefix_) EmitWarningsOnPlaceholders(prefix_)
#define pgstat_should_count_relation(relation_) ((relation_)->pgstat_info != NULL)

/* Have a set-returning function return a tuplestore of its declared row type. */
static inline void
InitMaterializedSRF(FunctionCallInfo fcinfo, bits32 flags)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext previous;

	Assert(flags == 0);
	if (result == NULL || !IsA(result, ReturnSetInfo) || (result->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	previous = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &result->setDesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	result->setResult = tuplestore_begin_heap((result->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
	result->returnMode = SFRM_Materialize;
	MemoryContextSwitchTo(previous);
}

#endif

#endif							/* SERVER_14_H */
