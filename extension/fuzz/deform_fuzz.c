/*
 * deform_fuzz.c
 *	  Pages of a heap table to columns, for libFuzzer.
 *
 * The input describes a table and the tuples of one page.  The page is written
 * as core writes it, at the end of what this process may read; its visible
 * tuples are collected, and turned to columns.  Each value and each NULL must
 * come out as it went in.  A page that core did not write is not tried: core
 * trusts the pages of a table, and so does this extension.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/snapshot.h"

#include "expr.h"
#include "heap_page.h"

#include "backend.h"

/* Core's own needs its library. */
#undef fprintf

#define ATTRIBUTES_MAX	80

/* What one attribute of one row is. */
typedef struct Expected
{
	bool		is_null;
	int64		word;			/* of a fixed width */
	const char *pointer;		/* of a varlena */
} Expected;

typedef struct ColumnType
{
	Oid			type;
	int16		length;
	char		alignment;
	ValueKind	kind;
} ColumnType;

static const ColumnType types[] = {
	{BOOLOID, 1, TYPALIGN_CHAR, VALUE_INTEGER},
	{CHAROID, 1, TYPALIGN_CHAR, VALUE_INTEGER},
	{INT2OID, 2, TYPALIGN_SHORT, VALUE_INTEGER},
	{INT4OID, 4, TYPALIGN_INT, VALUE_INTEGER},
	{OIDOID, 4, TYPALIGN_INT, VALUE_INTEGER},
	{DATEOID, 4, TYPALIGN_INT, VALUE_INTEGER},
	{INT8OID, 8, TYPALIGN_DOUBLE, VALUE_INTEGER},
	{FLOAT4OID, 4, TYPALIGN_INT, VALUE_FLOAT},
	{FLOAT8OID, 8, TYPALIGN_DOUBLE, VALUE_FLOAT},
	{TEXTOID, -1, TYPALIGN_INT, VALUE_TEXT},
	{NUMERICOID, -1, TYPALIGN_INT, VALUE_NUMERIC},
	{PATHOID, -1, TYPALIGN_DOUBLE, VALUE_OPAQUE},
	{UUIDOID, 16, TYPALIGN_CHAR, VALUE_OPAQUE},
	{NAMEOID, NAMEDATALEN, TYPALIGN_CHAR, VALUE_OPAQUE},
	{TIDOID, 6, TYPALIGN_SHORT, VALUE_OPAQUE},
	{CSTRINGOID, -2, TYPALIGN_CHAR, VALUE_OPAQUE},
};

/* The input, and zeroes behind its end. */
typedef struct Input
{
	const uint8 *at;
	size_t		left;
} Input;

static uint8
next_byte(Input *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return *input->at++;
}

static int
next_below(Input *input, int bound)
{
	return next_byte(input) % bound;
}

static bool
next_bool(Input *input)
{
	return (next_byte(input) & 1) != 0;
}

static void
next_bytes(Input *input, void *to, int count)
{
	for (int i = 0; i < count; i++)
		((uint8 *) to)[i] = next_byte(input);
}

/* What a fixed-width value is in a vector. */
static int64
word_of(Oid type, const char *at)
{
	int64		wide = 0;
	int16		small;
	int32		middle;
	float4		single;
	float8		twice;

	switch (type)
	{
		case BOOLOID:
		case CHAROID:
			return *(const int8 *) at;
		case INT2OID:
			memcpy(&small, at, sizeof(small));
			return small;
		case INT4OID:
		case DATEOID:
			memcpy(&middle, at, sizeof(middle));
			return middle;
		case OIDOID:
			memcpy(&middle, at, sizeof(middle));
			return (uint32) middle;
		case FLOAT4OID:
			memcpy(&single, at, sizeof(single));
			twice = (float8) single;
			memcpy(&wide, &twice, sizeof(wide));
			return wide;
		default:
			memcpy(&wide, at, Min(sizeof(wide), 8));
			return wide;
	}
}

/* Attributes that tuples may lack, as after ADD COLUMN with a default. */
typedef struct Default
{
	Datum		value;
	bool		is_null;
} Default;

static Default defaults[ATTRIBUTES_MAX];

Datum
getmissingattr(TupleDesc descriptor, int attribute, bool *is_null)
{
	*is_null = defaults[attribute - 1].is_null;
	return defaults[attribute - 1].value;
}

/* As in expr.c. */
Datum
vector_word_from_datum(Oid type, Datum value)
{
	if (type == FLOAT4OID)
		return Float8GetDatum((float8) DatumGetFloat4(value));
	return value;
}

static void
make_default(Input *input, int attribute, const ColumnType *type)
{
	Default    *made = &defaults[attribute];

	made->is_null = next_bool(input);
	made->value = (Datum) 0;
	if (type->length == -1)
	{
		/* A short varlena: a numeric of no digits. */
		char	   *value = palloc0(8);

		SET_VARSIZE_SHORT(value, VARHDRSZ_SHORT + sizeof(uint16));
		value[VARHDRSZ_SHORT + 1] = (char) 0x80;
		made->value = PointerGetDatum(value);
	}
	else if (type->type == FLOAT4OID)
		made->value = Float4GetDatum(1.5f);
	else if (type->kind == VALUE_FLOAT)
		made->value = Float8GetDatum(1.5);
	else if (type->kind == VALUE_INTEGER)
		made->value = Int64GetDatum(1);
}

/* One numeric in the short form. */
static int
numeric_bytes(Input *input, char *to)
{
	uint16		header = 0x8000 | (next_byte(input) << 7 & 0x1F80) | (next_byte(input) & 0x7F);
	int			digits = next_below(input, 8);

	if (next_bool(input))
		header |= 0x2000;
	memcpy(to, &header, sizeof(header));
	for (int i = 0; i < digits; i++)
	{
		int16		digit = (next_byte(input) << 8 | next_byte(input)) % 10000;

		memcpy(to + sizeof(header) + i * sizeof(digit), &digit, sizeof(digit));
	}
	return sizeof(header) + digits * sizeof(int16);
}

/* Write a varlena at or behind this offset; returns the offset behind it. */
static int
write_varlena(Input *input, const ColumnType *type, char *data, int offset,
			  Expected *expected, uint16 *flags)
{
	char		value[256];
	int			length = type->type == NUMERICOID ? numeric_bytes(input, value) : next_byte(input);
	int			form = type->type == NUMERICOID ? next_below(input, 2) : next_below(input, 4);

	if (type->type != NUMERICOID)
		next_bytes(input, value, Min(length, 16));
	if (form == 0 && length + VARHDRSZ_SHORT <= VARATT_SHORT_MAX)
	{
		SET_VARSIZE_SHORT(data + offset, length + VARHDRSZ_SHORT);
		expected->pointer = data + offset;
		memcpy(data + offset + VARHDRSZ_SHORT, value, length);
		return offset + VARHDRSZ_SHORT + length;
	}
	if (form == 3)
	{
		SET_VARTAG_EXTERNAL(data + offset, VARTAG_ONDISK);
		*flags |= HEAP_HASEXTERNAL;
		expected->pointer = data + offset;
		memset(data + offset + VARHDRSZ_EXTERNAL, 0x5A, TOAST_POINTER_SIZE - VARHDRSZ_EXTERNAL);
		return offset + TOAST_POINTER_SIZE;
	}
	offset = TYPEALIGN(type->alignment == TYPALIGN_DOUBLE ? 8 : 4, offset);
	expected->pointer = data + offset;
	if (form == 2)
		SET_VARSIZE_COMPRESSED(data + offset, length + VARHDRSZ + sizeof(int32));
	else
		SET_VARSIZE(data + offset, length + VARHDRSZ);
	if (form == 2)
		memset(data + offset + VARHDRSZ, 0, sizeof(int32));
	memcpy(data + offset + VARSIZE(data + offset) - length, value, length);
	return offset + VARSIZE(data + offset);
}

static int
alignment_of(const ColumnType *type)
{
	switch (type->alignment)
	{
		case TYPALIGN_CHAR:
			return 1;
		case TYPALIGN_SHORT:
			return 2;
		case TYPALIGN_INT:
			return 4;
		default:
			return 8;
	}
}

/* Write one value; returns the offset behind it. */
static int
write_value(Input *input, const ColumnType *type, char *data, int offset,
			Expected *expected, uint16 *flags)
{
	if (type->length == -1)
		return write_varlena(input, type, data, offset, expected, flags);
	if (type->length == -2)
	{
		int			length = next_below(input, 20);

		memset(data + offset, 'c', length);
		data[offset + length] = '\0';
		return offset + length + 1;
	}
	offset = TYPEALIGN(alignment_of(type), offset);
	next_bytes(input, data + offset, type->length);
	if (type->type == BOOLOID)
		data[offset] &= 1;
	expected->word = word_of(type->type, data + offset);
	return offset + type->length;
}

typedef struct Table
{
	int			attributes;
	const ColumnType *types[ATTRIBUTES_MAX];
	TupleDesc	descriptor;
} Table;

static void
make_table(Input *input, Table *table)
{
	table->attributes = 1 + next_below(input, ATTRIBUTES_MAX);
	if (next_bool(input))
		table->attributes = 1 + table->attributes % 9;
	table->descriptor = palloc0(offsetof(struct TupleDescData, attrs) +
								table->attributes * sizeof(FormData_pg_attribute));
	table->descriptor->natts = table->attributes;
	for (int i = 0; i < table->attributes; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(table->descriptor, i);

		table->types[i] = &types[next_below(input, lengthof(types))];
		attribute->atttypid = table->types[i]->type;
		attribute->attlen = table->types[i]->length;
		attribute->attalign = table->types[i]->alignment;
		attribute->attnum = i + 1;
		make_default(input, i, table->types[i]);
	}
}

/* Make a tuple in this memory; returns its length. */
static int
make_tuple(Input *input, const Table *table, int *held, char *memory, Expected *expected)
{
	HeapTupleHeader tuple = (HeapTupleHeader) memory;
	bool		has_nulls = false;
	uint16		flags = HEAP_XMIN_COMMITTED | HEAP_XMAX_INVALID;
	int			offset;

	if (next_below(input, 8) == 7)
		*held = 1 + next_below(input, table->attributes);
	for (int i = 0; i < *held; i++)
	{
		expected[i].is_null = next_below(input, 6) == 5;
		has_nulls |= expected[i].is_null;
	}
	memset(memory, 0, BLCKSZ);
	offset = MAXALIGN(SizeofHeapTupleHeader + (has_nulls ? BITMAPLEN(*held) : 0));
	tuple->t_hoff = offset;
	for (int i = 0; i < *held; i++)
	{
		if (expected[i].is_null)
			continue;
		if (has_nulls)
			tuple->t_bits[i >> 3] |= 1 << (i & 7);
		if (offset + 512 > BLCKSZ)
			return 0;
		offset = write_value(input, table->types[i], memory, offset, &expected[i], &flags);
	}
	for (int i = *held; i < table->attributes; i++)
		expected[i] = (Expected) {
			.is_null = defaults[i].is_null,
			.word = table->types[i]->type == FLOAT4OID ?
			(int64) Float8GetDatum(1.5) : (int64) defaults[i].value,
			.pointer = DatumGetPointer(defaults[i].value),
		};
	if (has_nulls)
		flags |= HEAP_HASNULL;
	if (next_below(input, 16) == 15)
		flags &= ~HEAP_XMIN_COMMITTED;	/* core is asked */
	tuple->t_infomask = flags;
	HeapTupleHeaderSetNatts(tuple, *held);
	HeapTupleHeaderSetXmin(tuple, next_bool(input) ? VISIBLE_XID : INVISIBLE_XID);
	return offset;
}

/* Where a varlena of a tuple that was made elsewhere is on the page. */
static void
move_pointers(const Table *table, int held, Expected *expected, const char *from, const char *to)
{
	for (int i = 0; i < held; i++)
		if (table->types[i]->length == -1 && !expected[i].is_null)
			expected[i].pointer = to + (expected[i].pointer - from);
}

/* Fill the page with tuples; returns how many of them can be seen. */
static int
make_page(Input *input, const Table *table, Page page, bool is_all_visible,
		  Expected (*rows)[ATTRIBUTES_MAX])
{
	static char memory[BLCKSZ] pg_attribute_aligned(MAXIMUM_ALIGNOF);
	PageHeader	header = (PageHeader) page;
	int			visible = 0;
	int			held = table->attributes;

	memset(page, 0, BLCKSZ);
	header->pd_lower = SizeOfPageHeaderData;
	header->pd_upper = header->pd_special = BLCKSZ;
	header->pd_pagesize_version = BLCKSZ | PG_PAGE_LAYOUT_VERSION;
	if (is_all_visible)
		PageSetAllVisible(page);
	while (input->left > 0 && visible < MaxHeapTuplesPerPage)
	{
		ItemId		item = &header->pd_linp[(header->pd_lower - SizeOfPageHeaderData) / sizeof(ItemIdData)];
		Expected   *row = rows[visible];
		int			length;

		if (header->pd_lower + sizeof(ItemIdData) > header->pd_upper)
			break;
		if (next_below(input, 32) == 31)
		{
			header->pd_lower += sizeof(ItemIdData);
			ItemIdSetUnused(item);
			if (next_bool(input))
				ItemIdSetDead(item);
			continue;
		}
		length = make_tuple(input, table, &held, memory, row);
		if (length == 0 || header->pd_lower + sizeof(ItemIdData) + MAXALIGN(length) > header->pd_upper)
			break;
		header->pd_lower += sizeof(ItemIdData);
		header->pd_upper -= MAXALIGN(length);
		memcpy((char *) page + header->pd_upper, memory, length);
		move_pointers(table, held, row, memory, (char *) page + header->pd_upper);
		ItemIdSetNormal(item, header->pd_upper, length);
		if (is_all_visible ||
			HeapTupleHeaderGetRawXmin((HeapTupleHeader) memory) == VISIBLE_XID)
			visible++;
	}
	return visible;
}

#define REQUIRE(condition_) \
	do { \
		if (!(condition_)) \
		{ \
			fprintf(stderr, "%s, attribute %d of type %u, row %d\n", #condition_, column->attno, type->type, row); \
			fprintf(stderr, "word %llx, expected %llx\n", (unsigned long long) vector->values[row], \
					(unsigned long long) expected->word); \
			abort(); \
		} \
	} while (0)

static void
compare(const Table *table, const BatchColumn *column, const Selection *selection,
		Expected (*rows)[ATTRIBUTES_MAX])
{
	const Vector *vector = &column->vector;
	const ColumnType *type = table->types[column->attno - 1];

	if (!vector->usable)
		return;
	FOR_SELECTED(row, selection,
				 const Expected *expected = &rows[row][column->attno - 1];
				 const bool is_null = vector->has_nulls && vector->nulls[row];
				 REQUIRE(is_null == expected->is_null);
				 if (!is_null && column->kind == VALUE_TEXT)
				 REQUIRE(DatumGetPointer(vector->values[row]) == expected->pointer);
				 if (type->length > 0 && column->kind != VALUE_OPAQUE)
				 {
					 if (!is_null)
						 REQUIRE((int64) vector->values[row] == expected->word);
					 else if (vector->nulls_are_zero)
						 REQUIRE(vector->values[row] == 0);
				 });
}

/* Some of the selected rows: as those that pass a filter. */
static Selection
narrowed(Input *input, const Selection *selection, uint16 *rows)
{
	Selection	result = {0, rows};

	FOR_SELECTED(row, selection,
				 if (next_below(input, 4) != 0)
				 rows[result.count++] = row);
	return result;
}

static void
add_columns(Input *input, const Table *table, HeapBatch *batch)
{
	for (int i = 0; i < table->attributes; i++)
	{
		const ColumnType *type = table->types[i];

		if (next_bool(input))
			batch_add_column(&batch->base, i + 1, type->type, type->kind);
		if (next_below(input, 8) == 7)
			batch_add_column(&batch->base, i + 1, type->type, VALUE_OPAQUE);
	}
	if (batch->base.column_count == 0)
		batch_add_column(&batch->base, table->attributes,
						 table->types[table->attributes - 1]->type, VALUE_OPAQUE);
}

extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	static Expected rows[MaxHeapTuplesPerPage + 1][ATTRIBUTES_MAX];
	static RelationData relation;
	static uint16 selected[2][BATCH_ROWS_MAX];
	Input		input = {data, size};
	SnapshotData snapshot = {.xmin = VISIBLE_XID + 1};
	Table		table = {0};
	HeapSource *source = palloc0(sizeof(HeapSource));
	HeapBatch  *batch = &source->batch;
	HeapPage   *page = &source->pages[0];
	Selection	selection;
	int			first;

	make_table(&input, &table);
	batch_begin(&batch->base, NULL, table.descriptor, NULL);
	add_columns(&input, &table, batch);
	deform_plan(batch);
	batch->prefetch_bytes = deform_prefetch_bytes(batch);
	source->base.relation = &relation;
	source->snapshot = &snapshot;
	page->buffer = 1;
	page->row_count = make_page(&input, &table, BufferBlocks, next_bool(&input), rows);
	first = page->row_count;
	heap_page_load(source, page);
	if (page->row_count != first)
		abort();
	if (first > 0)
	{
		batch->tuples = page->tuples;
		batch->line_pointers = page->line_pointers;
		batch_start(&batch->base, page->row_count);
		deform_offer_prefetch(batch, page->tuples, page->row_count, page->data, page->data_bytes);
		selection = batch->base.selection;
		for (int i = 0; i < batch->base.column_count; i++)
		{
			BatchColumn *column = &batch->base.columns[i];

			if (next_below(&input, 4) == 3)
				selection = narrowed(&input, &selection, selected[i & 1]);
			/* Stepping over an attribute fills its other columns, too. */
			if (column->vector.generation != batch->base.generation)
				deform_column(&batch->base, column, &selection);
			compare(&table, column, &selection, rows);
		}
		deform_prefetch_rest(batch);
	}
	free_all();
	return 0;
}
