/*
 * server.h
 *	  What differs between PostgreSQL 14 and 19, under one name each: that of the newest server
 *	  where it has one.  The rest of the code is the same for all of them.
 */
#ifndef BATCHEXEC_SERVER_H
#define BATCHEXEC_SERVER_H

#include "access/tableam.h"
#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "nodes/tidbitmap.h"
#include "storage/buffile.h"
#include "storage/ipc.h"
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#else
#include "storage/bufmgr.h"
#endif
#include "tcop/dest.h"

#if PG_VERSION_NUM < 190000
#define pg_fallthrough	__attribute__((fallthrough))
#endif

/* ---- hooks ---- */

/* 19 tells the planner of the EXPLAIN that asks for the plan. */
#if PG_VERSION_NUM >= 190000
#define PLANNER_PARAMETERS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo parameters, ExplainState *explain
#define PLANNER_ARGUMENTS	parse, query_string, cursor_options, parameters, explain
#else
#define PLANNER_PARAMETERS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo parameters
#define PLANNER_ARGUMENTS	parse, query_string, cursor_options, parameters
#endif

#if PG_VERSION_NUM >= 180000
#define RUN_PARAMETERS	QueryDesc *query, ScanDirection direction, uint64 count
#define RUN_ARGUMENTS	query, direction, count
#else
#define RUN_PARAMETERS	QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define RUN_ARGUMENTS	query, direction, count, once
#endif

#if PG_VERSION_NUM < 170000
extern void standard_ExplainOneQuery(Query *query, int cursor_options, IntoClause *into,
									 ExplainState *es, const char *query_string,
									 ParamListInfo parameters, QueryEnvironment *environment);
#endif

#if PG_VERSION_NUM < 150000
typedef void (*shmem_request_hook_type) (void);

#define MarkGUCPrefixReserved(prefix_) EmitWarningsOnPlaceholders(prefix_)
#endif

extern void server_install_hooks(void);

/* Have a library's shared memory asked for when the server starts; returns the hook that was there. */
extern shmem_request_hook_type server_request_memory(shmem_request_hook_type hook);

/* ---- planning ---- */

/* Leave merge joins out of what is planned next, or let them in again. */
extern void server_leave_out_merge_joins(bool leave_out);

#if PG_VERSION_NUM >= 190000
/* 19 reads enable_* once a planning, and an extension may forbid what they allow. */
#define MAY_JOIN_BY_HASH(extra_)	(((extra_)->pgs_mask & PGS_HASHJOIN) != 0)
#define MAY_MERGE_JOINS(root_)	(((root_)->glob->default_pgs_mask & PGS_MERGEJOIN_PLAIN) != 0)
#define MAY_HASH_JOINS(root_)	(((root_)->glob->default_pgs_mask & PGS_HASHJOIN) != 0)
#define MAY_SCAN_WHOLE(rel_)	(((rel_)->pgs_mask & PGS_SEQSCAN) != 0)
#define PATH_IS_UNIQUE(path_)	IsA(path_, UniquePath)
#else
/* Up to 18, what other extensions allow shows in enable_* for a while alone. */
#define MAY_SCAN_WHOLE(rel_)	true
#define MAY_JOIN_BY_HASH(extra_)	enable_hashjoin
#define MAY_MERGE_JOINS(root_)	enable_mergejoin
#define MAY_HASH_JOINS(root_)	enable_hashjoin
/* Up to 18 there are two kinds, with the subpath in the same place. */
#define PATH_IS_UNIQUE(path_)	(IsA(path_, UniquePath) || IsA(path_, UpperUniquePath))
StaticAssertDecl(offsetof(UniquePath, subpath) == offsetof(UpperUniquePath, subpath), "a unique path's subpath has one place");
#endif

#if PG_VERSION_NUM >= 160000
#define ALL_RELIDS(root_)	((root_)->all_query_rels)
#define GROUP_CLAUSE(root_)	((root_)->processed_groupClause)
#define DISTINCT_CLAUSE(root_)	((root_)->processed_distinctClause)
#define OUTER_JOIN_CLAUSE(cell_)	(lfirst_node(OuterJoinClauseInfo, cell_)->rinfo)
#else
#define ALL_RELIDS(root_)	((root_)->all_baserels)
#define GROUP_CLAUSE(root_)	((root_)->parse->groupClause)
#define DISTINCT_CLAUSE(root_)	((root_)->parse->distinctClause)
#define OUTER_JOIN_CLAUSE(cell_)	lfirst_node(RestrictInfo, cell_)
#endif

/* What core counts beside the cost, as an argument. */
#if PG_VERSION_NUM >= 180000
#define DISABLED_NODES(path_)	(path_)->disabled_nodes,
#else
#define DISABLED_NODES(path_)
#endif

/* A subquery's scan, of the columns as the subquery has them. */
#if PG_VERSION_NUM >= 160000
#define SUBQUERY_SCAN_PATH(root_, rel_, subpath_) \
	create_subqueryscan_path(root_, rel_, subpath_, true, NIL, NULL)
#else
#define SUBQUERY_SCAN_PATH(root_, rel_, subpath_) \
	create_subqueryscan_path(root_, rel_, subpath_, NIL, NULL)
#endif

/* All rows of these paths, in this process. */
#if PG_VERSION_NUM >= 190000
#define APPEND_PATH(root_, rel_, subpaths_) \
	create_append_path(root_, rel_, (AppendPathInput) {.subpaths = (subpaths_)}, NIL, NULL, 0, false, -1)
#else
#define APPEND_PATH(root_, rel_, subpaths_) \
	create_append_path(root_, rel_, subpaths_, NIL, NIL, NULL, 0, false, -1)
#endif

#if PG_VERSION_NUM >= 180000
#define FOREIGN_SCAN_PATH(root_, rel_, startup_, total_) \
	create_foreignscan_path(root_, rel_, NULL, (rel_)->rows, 0, startup_, total_, NIL, \
							(rel_)->lateral_relids, NULL, NIL, NIL)
#elif PG_VERSION_NUM >= 170000
#define FOREIGN_SCAN_PATH(root_, rel_, startup_, total_) \
	create_foreignscan_path(root_, rel_, NULL, (rel_)->rows, startup_, total_, NIL, \
							(rel_)->lateral_relids, NULL, NIL, NIL)
#else
#define FOREIGN_SCAN_PATH(root_, rel_, startup_, total_) \
	create_foreignscan_path(root_, rel_, NULL, (rel_)->rows, startup_, total_, NIL, \
							(rel_)->lateral_relids, NULL, NIL)
#endif

/*
 * With eager aggregation, which came with 19, a join below the last one may be joined in groups.
 * To be called once its cheapest path is known.
 */
#if PG_VERSION_NUM >= 190000
#define COMPLETE_GROUPED_PATHS(root_, joined_) \
	do { \
		if ((joined_)->grouped_rel != NULL) \
		{ \
			generate_grouped_paths(root_, (joined_)->grouped_rel, joined_); \
			set_cheapest((joined_)->grouped_rel); \
		} \
	} while (0)
#define IS_IN_GROUPS(rel_)	IS_GROUPED_REL(rel_)
#else
#define COMPLETE_GROUPED_PATHS(root_, joined_)	((void) 0)
#define IS_IN_GROUPS(rel_)	false
#endif

/* ---- plans ---- */

#if PG_VERSION_NUM >= 180000
#define APPEND_IS_PRUNED(append_)	((append_)->part_prune_index >= 0)
/* Tables of a query, without the entry of its GROUP BY clause. */
#define EXPLAINED_TABLES(es_)	((es_)->rtable_size)
#define HAS_GENERATED_COLUMNS(constraints_) \
	((constraints_)->has_generated_stored || (constraints_)->has_generated_virtual)
#else
#define APPEND_IS_PRUNED(append_)	((append_)->part_prune_info != NULL)
#define EXPLAINED_TABLES(es_)	list_length((es_)->rtable)
#define HAS_GENERATED_COLUMNS(constraints_)	((constraints_)->has_generated_stored)
#endif

/* random() without arguments has got namesakes. */
#if PG_VERSION_NUM < 170000
#define F_RANDOM_	F_RANDOM
#endif

#if PG_VERSION_NUM < 190000
#define DOMAIN_HAS_CONSTRAINTS(type_)	DomainHasConstraints(type_)
#else
#define DOMAIN_HAS_CONSTRAINTS(type_)	DomainHasConstraints(type_, NULL)
#endif

/* The aggregate or window function of a constructor of JSON; NULL: it is no such constructor. */
#if PG_VERSION_NUM >= 160000
#define JSON_CONSTRUCTOR_FUNCTION(node_) \
	(IsA(node_, JsonConstructorExpr) ? (Node *) ((JsonConstructorExpr *) (node_))->func : NULL)
#else
#define JSON_CONSTRUCTOR_FUNCTION(node_)	((Node *) NULL)
#endif

#if PG_VERSION_NUM < 150000
/* 14 has no MERGE. */
#define CMD_MERGE CMD_UNKNOWN
/* 14 takes each custom scan to project. */
#define CUSTOMPATH_SUPPORT_PROJECTION 0
#endif

/* ---- execution ---- */

/* Does a hash join that returns rows without a match evaluate the keys behind one that is NULL? */
#define JOIN_EVALUATES_KEYS_BEHIND_NULL	(PG_VERSION_NUM < 190000)

#if PG_VERSION_NUM < 190000
typedef Instrumentation NodeInstrumentation;

#define TupleDescFinalize(descriptor_)	((void) 0)
#define INIT_SCAN_SLOT(estate_, state_, descriptor_, ops_) \
	ExecInitScanTupleSlot(estate_, state_, descriptor_, ops_)
#else
#define INIT_SCAN_SLOT(estate_, state_, descriptor_, ops_) \
	ExecInitScanTupleSlot(estate_, state_, descriptor_, ops_, 0)
#endif

/* Add a new row to all indexes of its table. */
#if PG_VERSION_NUM >= 190000
#define INSERT_INTO_INDEXES(target_, slot_, estate_) \
	ExecInsertIndexTuples(target_, estate_, 0, slot_, NIL, NULL)
#elif PG_VERSION_NUM >= 160000
#define INSERT_INTO_INDEXES(target_, slot_, estate_) \
	ExecInsertIndexTuples(target_, slot_, estate_, false, false, NULL, NIL, false)
#else
#define INSERT_INTO_INDEXES(target_, slot_, estate_) \
	ExecInsertIndexTuples(target_, slot_, estate_, false, false, NULL, NIL)
#endif

#if PG_VERSION_NUM >= 190000
#define BEGIN_INDEX_SCAN(relation_, scan_, snapshot_) \
	index_beginscan(relation_, (scan_)->iss_RelationDesc, snapshot_, (scan_)->iss_Instrument, \
					(scan_)->iss_NumScanKeys, (scan_)->iss_NumOrderByKeys, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define BEGIN_INDEX_SCAN(relation_, scan_, snapshot_) \
	index_beginscan(relation_, (scan_)->iss_RelationDesc, snapshot_, &(scan_)->iss_Instrument, \
					(scan_)->iss_NumScanKeys, (scan_)->iss_NumOrderByKeys)
#else
#define BEGIN_INDEX_SCAN(relation_, scan_, snapshot_) \
	index_beginscan(relation_, (scan_)->iss_RelationDesc, snapshot_, \
					(scan_)->iss_NumScanKeys, (scan_)->iss_NumOrderByKeys)
#endif

/* The iterator of a bitmap that one process reads. */
#if PG_VERSION_NUM >= 180000
typedef TBMPrivateIterator BitmapIterator;

#define BEGIN_BITMAP_ITERATOR(bitmap_)	tbm_begin_private_iterate(bitmap_)
#define END_BITMAP_ITERATOR(iterator_)	tbm_end_private_iterate(iterator_)
#else
typedef TBMIterator BitmapIterator;

#define BEGIN_BITMAP_ITERATOR(bitmap_)	tbm_begin_iterate(bitmap_)
#define END_BITMAP_ITERATOR(iterator_)	tbm_end_iterate(iterator_)
#endif

/* The next page of a bitmap; InvalidBlockNumber: there is none.  Its rows go to lines; *line_count is -1 where it does not name them. */
extern BlockNumber server_next_bitmap_page(BitmapIterator *iterator, OffsetNumber *lines,
										   int lines_max, int *line_count);

#if PG_VERSION_NUM < 160000
extern void BufFileReadExact(BufFile *file, void *to, size_t bytes);
#endif

/* What the server's receiver of the rows of a new table has made, and hands to each insertion. */
typedef struct IntoTarget
{
	Relation	relation;
	CommandId	command;
	int			options;
	struct BulkInsertStateData *bulk;
} IntoTarget;

/* Ask a receiver of CREATE TABLE AS or of a materialized view, once it is started; false: it inserts no rows, or is of another form. */
extern bool server_into_target(const DestReceiver *receiver, IntoTarget *target);

#if PG_VERSION_NUM < 150000
/* Have a set-returning function return a tuplestore of its declared row type. */
extern void InitMaterializedSRF(FunctionCallInfo fcinfo, bits32 flags);
#endif

/* ---- heap tables and their buffers ---- */

/* May a scan mark pages of a table all-visible?  19 does, where its statement does not change or lock the table's rows. */
#if PG_VERSION_NUM >= 190000
#define SCAN_IS_READ_ONLY(estate_, relid_) \
	(!bms_is_member(relid_, (estate_)->es_plannedstmt->resultRelationRelids) && \
	 !bms_is_member(relid_, (estate_)->es_plannedstmt->rowMarkRelids))
#define PRUNE_PAGE(scan_, buffer_, is_read_only_) \
	heap_page_prune_opt((scan_)->rs_base.rs_rd, buffer_, &(scan_)->rs_vmbuffer, is_read_only_)
#else
#define SCAN_IS_READ_ONLY(estate_, relid_)	false
#define PRUNE_PAGE(scan_, buffer_, is_read_only_) \
	heap_page_prune_opt((scan_)->rs_base.rs_rd, buffer_)
#endif

#if PG_VERSION_NUM >= 190000
#define BEGIN_PARALLEL_SCAN(relation_, shared_)	table_beginscan_parallel(relation_, shared_, SO_NONE)
#define START_PARALLEL_SCAN(relation_, worker_, shared_) \
	table_block_parallelscan_startblock_init(relation_, worker_, shared_, InvalidBlockNumber, InvalidBlockNumber)
#define BEGIN_SCAN(relation_, snapshot_)	table_beginscan(relation_, snapshot_, 0, NULL, SO_NONE)
#else
#define BEGIN_PARALLEL_SCAN(relation_, shared_)	table_beginscan_parallel(relation_, shared_)
#define START_PARALLEL_SCAN(relation_, worker_, shared_) \
	table_block_parallelscan_startblock_init(relation_, worker_, shared_)
#define BEGIN_SCAN(relation_, snapshot_)	table_beginscan(relation_, snapshot_, 0, NULL)
#endif

/* Streams of a table's blocks, which read several that follow each other at once; from 17 on. */
#if PG_VERSION_NUM >= 180000
#define READ_STREAM_FLAGS	(READ_STREAM_SEQUENTIAL | READ_STREAM_USE_BATCHING)
#elif PG_VERSION_NUM >= 170000
#define READ_STREAM_FLAGS	READ_STREAM_SEQUENTIAL
#else
#define READ_STREAM_FLAGS	0

typedef struct ReadStream ReadStream;
typedef BlockNumber (*ReadStreamBlockNumberCB) (ReadStream *stream, void *private_data, void *buffer_data);

extern ReadStream *read_stream_begin_relation(int flags, BufferAccessStrategy strategy, Relation relation,
											  ForkNumber fork, ReadStreamBlockNumberCB next_block,
											  void *private_data, size_t buffer_data_bytes);
extern Buffer read_stream_next_buffer(ReadStream *stream, void **buffer_data);
extern void read_stream_end(ReadStream *stream);
#endif
#define READ_STREAMS_EXIST	(PG_VERSION_NUM >= 170000)

/* 17 has no old_snapshot_threshold any more. */
#if PG_VERSION_NUM >= 170000
#define TestForOldSnapshot(snapshot_, relation_, page_)	((void) 0)
#endif

#if PG_VERSION_NUM >= 190000
#define BUFFER_USAGE_COUNT(descriptor_)	BUF_STATE_GET_USAGECOUNT(pg_atomic_read_u64(&(descriptor_)->state))
#else
#define BUFFER_USAGE_COUNT(descriptor_)	BUF_STATE_GET_USAGECOUNT(pg_atomic_read_u32(&(descriptor_)->state))
#endif

#if PG_VERSION_NUM >= 160000
#define TAG_RELATION(tag_)		((tag_).relNumber)
#define RELATION_NUMBER(relation_)	((relation_)->rd_locator.relNumber)
#define COUNT_FETCHED(relation_, rows_)	((relation_)->pgstat_info->counts.tuples_fetched += (rows_))
#define COUNT_RETURNED(relation_, rows_)	((relation_)->pgstat_info->counts.tuples_returned += (rows_))
#else
#define rd_locator	rd_node
#define InitBufferTag(tag_, locator_, fork_, block_)	INIT_BUFFERTAG(*(tag_), *(locator_), fork_, block_)
#define TAG_RELATION(tag_)		((tag_).rnode.relNode)
#define RELATION_NUMBER(relation_)	((relation_)->rd_node.relNode)
#define COUNT_FETCHED(relation_, rows_)	((relation_)->pgstat_info->t_counts.t_tuples_fetched += (rows_))
#define COUNT_RETURNED(relation_, rows_)	((relation_)->pgstat_info->t_counts.t_tuples_returned += (rows_))
#endif

#if PG_VERSION_NUM < 150000
#define pgstat_should_count_relation(relation_) ((relation_)->pgstat_info != NULL)
#endif

/* ---- types, collations, rights ---- */

#if PG_VERSION_NUM < 170000
/* No interval is infinite. */
#define INTERVAL_NOT_FINITE(interval_)	false
#endif

/* How the serialised states of numeric aggregates hold the fields before a numeric's digits: in 16 bits up to 14, then in 32. */
#define NUMERIC_STATE_IS_AS_SENT	(PG_VERSION_NUM < 150000)

/* How those of integers hold their sums: as numerics up to 18, then as 128 bits. */
#define INTEGER_STATE_IS_NUMERIC	(PG_VERSION_NUM < 190000)

/* Does the state of a regression hold each variable's one value, as long as it has but one?  Then sums of differences stay zero. */
#define REGRESSION_KNOWS_CONSTANTS	(PG_VERSION_NUM >= 190000)

/* From 17 on the server brings a provider of collations whose locales all order strings by their bytes. */
#if PG_VERSION_NUM >= 170000
#define PROVIDER_ORDERS_BY_BYTES(provider_)	((provider_) == COLLPROVIDER_BUILTIN)
#else
#define PROVIDER_ORDERS_BY_BYTES(provider_)	false
#endif

#if PG_VERSION_NUM >= 150000
#define LOCALE_NAME(datum_) TextDatumGetCString(datum_)
#define DATABASE_PROVIDER(tuple_) (((Form_pg_database) GETSTRUCT(tuple_))->datlocprovider)
#else
#define LOCALE_NAME(datum_) NameStr(*DatumGetName(datum_))
#define DATABASE_PROVIDER(tuple_) COLLPROVIDER_LIBC
#endif

#if PG_VERSION_NUM >= 160000
#define CHECK_FUNCTION_RIGHT(function_, user_)	object_aclcheck(ProcedureRelationId, function_, user_, ACL_EXECUTE)
#define FOREIGN_SCAN_USER(plan_, estate_)	((plan_)->checkAsUser)
#else
#define CHECK_FUNCTION_RIGHT(function_, user_)	pg_proc_aclcheck(function_, user_, ACL_EXECUTE)
#define FOREIGN_SCAN_USER(plan_, estate_) \
	(rt_fetch((plan_)->scan.scanrelid, (estate_)->es_range_table)->checkAsUser)
#endif

#endif							/* BATCHEXEC_SERVER_H */
