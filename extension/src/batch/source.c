/*
 * source.c
 *	  The registered sources of batches.
 */
#include "postgres.h"

#include "utils/rel.h"

#include "batchexec.h"
#include "datum_vector.h"
#include "heap_source.h"
#include "batch_limits.h"
#include "source.h"

static const BatchSourceOps *sources[SOURCES_MAX] = {&heap_source_ops};
static int	source_count = 1;

static const BatchServices services = {
	.create_batch = batch_create,
	.start_batch = batch_start,
	.allocate_vector = vector_allocate,
	.fill_column = vector_from_datums,
	.batch_rows = &batchexec_batch_rows,
};

/* Add a source, for the rest of the session; of one that is added twice, nothing changes. */
const BatchServices *
batchexec_register_source(const BatchSourceOps *ops, int version)
{
	if (version != BATCHEXEC_SOURCE_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch source has version %d where pg_batchexec has %d",
						version, BATCHEXEC_SOURCE_VERSION),
				 errhint("Build the source's library with this pg_batchexec's headers.")));
	for (int i = 0; i < source_count; i++)
		if (sources[i] == ops)
			return &services;
	if (source_count == SOURCES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("batch source \"%s\" is one more than the %d that can be registered",
						ops->name, SOURCES_MAX)));
	sources[source_count++] = ops;
	return &services;
}

/* What reads a table in batches; NULL: nothing does. */
const BatchSourceOps *
source_of_relation(Relation relation)
{
	for (int i = 0; i < source_count; i++)
		if (sources[i]->reads(relation))
			return sources[i];
	return NULL;
}

/* The same of a table that was planned to be read so. */
const BatchSourceOps *
source_to_read(Relation relation)
{
	const BatchSourceOps *ops = source_of_relation(relation);

	if (ops == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no source of batches is registered for table \"%s\"",
						RelationGetRelationName(relation)),
				 errhint("Load the library of its access method or foreign data wrapper in all sessions, or turn batchexec.enabled off.")));
	return ops;
}
