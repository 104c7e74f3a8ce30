/*
 * column_batch.h
 *	  Batches of the test sources: columns of Datums, copied from rows.  Columns of texts have a dictionary.
 *
 * Included once by each library, which sets services when it registers its source.
 */
#ifndef COLUMN_BATCH_H
#define COLUMN_BATCH_H

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "source.h"

/* Places in a dictionary's hash table: more than it may have entries. */
#define DICTIONARY_PLACES	(4 * BATCH_ROWS_MAX)
#define NO_CODE				(-1)

/* The texts that a column has had so far. */
typedef struct ColumnDictionary
{
	Dictionary	base;
	MemoryContext memory;		/* of the texts */
	bool		is_of_batch;	/* all rows of the current batch have codes */
	int			null_code;		/* NO_CODE: no row was NULL */
	uint16		places[DICTIONARY_PLACES];	/* codes, each and one more; 0: free */
	uint16		codes[BATCH_ROWS_MAX];
} ColumnDictionary;

/* The head of a source of such batches. */
typedef struct ColumnSource
{
	BatchSource base;			/* must be first */
	MemoryContext values;		/* of the current batch */
	Vector	   *attributes;
	ColumnDictionary **dictionaries;	/* of each attribute; NULL: it is not of texts */
} ColumnSource;

static const BatchServices *services;

/* The setting: are expressions told of the dictionaries? */
static bool shows_dictionaries = true;

/* The setting: how dictionaries break the contract of batch.h. */
typedef enum DictionaryFault
{
	FAULT_NONE,
	FAULT_ID,					/* it is 0 */
	FAULT_EMPTY,				/* they have no entry */
	FAULT_COUNT,				/* they have too many entries */
	FAULT_CODE,					/* codes are above the entries */
	FAULT_NULL					/* NULL's entry is not NULL */
} DictionaryFault;

static int	dictionary_fault = FAULT_NONE;

static const struct config_enum_entry dictionary_faults[] = {
	{"none", FAULT_NONE, false},
	{"id", FAULT_ID, false},
	{"empty", FAULT_EMPTY, false},
	{"count", FAULT_COUNT, false},
	{"code", FAULT_CODE, false},
	{"null", FAULT_NULL, false},
	{NULL, 0, false}
};

static void
define_dictionary_settings(const char *dictionaries, const char *fault)
{
	DefineCustomBoolVariable(dictionaries, "Tells expressions of the dictionaries of columns.", NULL, &shows_dictionaries, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable(fault, "How dictionaries break their contract.", NULL, &dictionary_fault, FAULT_NONE,
							 dictionary_faults, PGC_USERSET, 0, NULL, NULL, NULL);
}

static ColumnDictionary *
create_dictionary(void)
{
	ColumnDictionary *dictionary = palloc0(sizeof(ColumnDictionary));

	dictionary->memory = AllocSetContextCreate(CurrentMemoryContext, "ColumnDictionary", ALLOCSET_DEFAULT_SIZES);
	dictionary->null_code = NO_CODE;
	services->allocate_vector(&dictionary->base.entries);
	return dictionary;
}

/* Before the first row of a batch: a dictionary that is full is begun anew. */
static void
start_dictionary_batch(ColumnDictionary *dictionary)
{
	dictionary->is_of_batch = true;
	if (dictionary->base.count < BATCH_ROWS_MAX)
		return;
	MemoryContextReset(dictionary->memory);
	memset(dictionary->places, 0, sizeof(dictionary->places));
	dictionary->base.count = 0;
	dictionary->base.entries.has_nulls = false;
	dictionary->null_code = NO_CODE;
}

static int
add_entry(ColumnDictionary *dictionary, const struct varlena *text, bool is_null)
{
	static uint64 last_id = 0;
	Dictionary *base = &dictionary->base;
	MemoryContext caller;

	if (base->count == BATCH_ROWS_MAX)
		return NO_CODE;
	caller = MemoryContextSwitchTo(dictionary->memory);
	base->entries.values[base->count] = is_null ? PointerGetDatum(cstring_to_text("")) :
		datumCopy(PointerGetDatum(text), false, -1);
	MemoryContextSwitchTo(caller);
	base->entries.nulls[base->count] = is_null;
	base->entries.has_nulls |= is_null;
	base->id = ++last_id;
	return base->count++;
}

/* The code of a text, which is added where it is new; NO_CODE: there is no room for it, or it is not plain. */
static int
code_of_text(ColumnDictionary *dictionary, const struct varlena *text)
{
	const Datum *entries = dictionary->base.entries.values;
	uint32		place;

	if (VARATT_IS_EXTERNAL(text) || VARATT_IS_COMPRESSED(text))
		return NO_CODE;
	place = hash_bytes((const unsigned char *) VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text));
	for (;; place++)
	{
		uint16	   *entry = &dictionary->places[place % DICTIONARY_PLACES];
		const struct varlena *known;

		if (*entry == 0)
		{
			const int	code = add_entry(dictionary, text, false);

			*entry = code + 1;
			return code;
		}
		known = (const struct varlena *) DatumGetPointer(entries[*entry - 1]);
		if (VARSIZE_ANY_EXHDR(known) == VARSIZE_ANY_EXHDR(text) &&
			memcmp(VARDATA_ANY(known), VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text)) == 0)
			return *entry - 1;
	}
}

/* Note and return the code of a row; NO_CODE: its batch has none. */
static int
encode(ColumnDictionary *dictionary, Datum value, bool is_null, int row)
{
	int			code;

	if (row == 0)
		start_dictionary_batch(dictionary);
	if (!dictionary->is_of_batch)
		return NO_CODE;
	if (is_null && dictionary->null_code == NO_CODE)
		dictionary->null_code = add_entry(dictionary, NULL, true);
	code = is_null ? dictionary->null_code :
		code_of_text(dictionary, (const struct varlena *) DatumGetPointer(value));
	dictionary->is_of_batch = code != NO_CODE;
	dictionary->codes[row] = (uint16) Max(code, 0);
	return code;
}

/* What the source says of a dictionary; broken, where the setting says so. */
static const Dictionary *
shown_dictionary(const ColumnDictionary *dictionary)
{
	static Dictionary broken;

	if (dictionary == NULL || !dictionary->is_of_batch || !shows_dictionaries)
		return NULL;
	if (dictionary_fault == FAULT_NONE)
		return &dictionary->base;
	broken = dictionary->base;
	if (dictionary_fault == FAULT_ID)
		broken.id = 0;
	else if (dictionary_fault == FAULT_NULL)
		broken.entries.has_nulls = false;
	else
		broken.count = dictionary_fault == FAULT_EMPTY ? 0 : dictionary_fault == FAULT_COUNT ? BATCH_ROWS_MAX + 1 : 1;
	return &broken;
}

static void
fill_column(TupleBatch *batch, BatchColumn *column, const Selection *selection)
{
	const ColumnSource *source = batch->source;
	const ColumnDictionary *dictionary = source->dictionaries[column->attno - 1];
	Vector	   *attribute = &source->attributes[column->attno - 1];

	attribute->dictionary = shown_dictionary(dictionary);
	attribute->codes = dictionary != NULL ? dictionary->codes : NULL;
	column->vector.generation = batch->generation;
	services->fill_column(column, attribute, selection);
}

static TupleTableSlot *
materialise_row(TupleBatch *batch, int row)
{
	const ColumnSource *source = batch->source;
	TupleTableSlot *slot = batch->slot;

	ExecClearTuple(slot);
	for (int i = 0; i < batch->descriptor->natts; i++)
	{
		slot->tts_values[i] = source->attributes[i].values[row];
		slot->tts_isnull[i] = source->attributes[i].nulls[row];
	}
	return ExecStoreVirtualTuple(slot);
}

static void
release(TupleBatch *batch)
{
	ExecClearTuple(batch->slot);
}

static const TupleBatchOps column_batch_ops = {
	.fill_column = fill_column,
	.materialise_row = materialise_row,
	.release = release,
};

/* Make a source of this size, with a batch that has this slot. */
static ColumnSource *
create_column_source(const BatchSourceOps *ops, Size bytes, Relation relation, TupleTableSlot *slot)
{
	ColumnSource *source = palloc0(bytes);
	TupleDesc	descriptor = RelationGetDescr(relation);

	source->base.ops = ops;
	source->base.relation = relation;
	source->base.batch = services->create_batch(&column_batch_ops, descriptor, slot);
	source->base.batch->source = source;
	source->values = AllocSetContextCreate(CurrentMemoryContext, "ColumnSource",
										   ALLOCSET_DEFAULT_SIZES);
	source->attributes = palloc0(sizeof(Vector) * (descriptor->natts + 1));
	source->dictionaries = palloc0(sizeof(ColumnDictionary *) * (descriptor->natts + 1));
	for (int i = 0; i < descriptor->natts; i++)
	{
		const Oid	type = TupleDescAttr(descriptor, i)->atttypid;

		services->allocate_vector(&source->attributes[i]);
		if (type == TEXTOID || type == VARCHAROID || type == BPCHAROID)
			source->dictionaries[i] = create_dictionary();
	}
	return source;
}

/* Append a row to the columns. */
static void
add_row(ColumnSource *source, TupleTableSlot *slot, int row)
{
	TupleDesc	descriptor = RelationGetDescr(source->base.relation);
	MemoryContext caller = MemoryContextSwitchTo(source->values);

	slot_getallattrs(slot);
	for (int i = 0; i < descriptor->natts; i++)
	{
		const Form_pg_attribute form = TupleDescAttr(descriptor, i);
		Vector	   *attribute = &source->attributes[i];
		const bool	is_null = slot->tts_isnull[i];
		ColumnDictionary *dictionary = source->dictionaries[i];
		const int	code = dictionary != NULL ? encode(dictionary, slot->tts_values[i], is_null, row) : NO_CODE;

		attribute->has_nulls = is_null || (row > 0 && attribute->has_nulls);
		attribute->nulls[row] = is_null;
		attribute->values[row] = is_null ? (Datum) 0 : code != NO_CODE ? dictionary->base.entries.values[code] :
			datumCopy(slot->tts_values[i], form->attbyval, form->attlen);
	}
	MemoryContextSwitchTo(caller);
}

#endif
