/*
 * row_file.c
 *	  Rows in a temporary file, each with the hash of its keys.
 */
#include "postgres.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "row_file.h"

/* Bytes of a row before what its values point to. */
static Size
head_bytes(const RowFormat *format)
{
	return MAXALIGN(offsetof(FileRow, values) +
					(sizeof(Datum) + sizeof(bool)) * format->attribute_count);
}

static bool *
null_flags(const RowFormat *format, const FileRow *row)
{
	return (bool *) (row->values + format->attribute_count);
}

/* Make a format of these attributes, numbered from 0; lives in the current memory context. */
RowFormat *
row_format_create(TupleDesc descriptor, const Bitmapset *attributes)
{
	RowFormat  *format = palloc0(sizeof(RowFormat));
	int			attribute = -1;

	format->descriptor = descriptor;
	format->attributes = palloc(sizeof(AttrNumber) * (bms_num_members(attributes) + 1));
	while ((attribute = bms_next_member(attributes, attribute)) >= 0)
	{
		format->attributes[format->attribute_count++] = (AttrNumber) attribute;
		format->holds_references |= !TupleDescAttr(descriptor, attribute)->attbyval;
	}
	format->row_bytes_allocated = Max(head_bytes(format), 1024);
	format->row = palloc(format->row_bytes_allocated);
	return format;
}

/* Have room for a row of so many bytes; what the room holds stays. */
static void
reserve(RowFormat *format, Size bytes)
{
	if (bytes <= format->row_bytes_allocated)
		return;
	format->row_bytes_allocated = Max(bytes, 2 * format->row_bytes_allocated);
	format->row = repalloc_huge(format->row, format->row_bytes_allocated);
}

/* The server deletes the file with the query, however that ends. */
RowFile *
row_file_create(void)
{
	RowFile    *file = palloc0(sizeof(RowFile));

	file->file = BufFileCreateTemp(false);
	return file;
}

/* Add a row that is in its form already. */
void
row_file_append(RowFile *file, const FileRow *row)
{
	BufFileWrite(file->file, unconstify(FileRow *, row), row->bytes);
	file->row_count++;
	file->bytes += row->bytes;
}

/* Add a row, of values and flags for each attribute of the format. */
void
row_file_write(RowFile *file, RowFormat *format, const Datum *values,
			   const bool *nulls, uint64 hash)
{
	Size		bytes = head_bytes(format);

	memcpy(null_flags(format, format->row), nulls, sizeof(bool) * format->attribute_count);
	if (!format->holds_references)
		memcpy(format->row->values, values, sizeof(Datum) * format->attribute_count);
	else
		for (int i = 0; i < format->attribute_count; i++)
		{
			const Form_pg_attribute form =
				TupleDescAttr(format->descriptor, format->attributes[i]);
			Size		length;

			format->row->values[i] = values[i];
			if (nulls[i] || form->attbyval)
				continue;
			length = datumGetSize(values[i], false, form->attlen);
			reserve(format, bytes + MAXALIGN(length));
			format->row->values[i] = (Datum) bytes;
			memcpy((char *) format->row + bytes, DatumGetPointer(values[i]), length);
			bytes += MAXALIGN(length);
		}
	format->row->bytes = bytes;
	format->row->hash = hash;
	row_file_append(file, format->row);
}

/* Go to the first row, to read it. */
void
row_file_rewind(RowFile *file)
{
	if (BufFileSeek(file->file, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not rewind a temporary file of a batched node")));
}

static void
read_exactly(RowFile *file, void *to, Size bytes)
{
#if PG_VERSION_NUM >= 160000
	BufFileReadExact(file->file, to, bytes);
#else
	if (BufFileRead(file->file, to, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file of a batched node")));
#endif
}

/* The next row, which is valid until another is read; its caller knows how many there are. */
FileRow *
row_file_read(RowFile *file, RowFormat *format)
{
	uint64		bytes;

	read_exactly(file, &bytes, sizeof(bytes));
	reserve(format, bytes);
	format->row->bytes = bytes;
	read_exactly(file, (char *) format->row + sizeof(bytes), bytes - sizeof(bytes));
	return format->row;
}

/* Delete the file. */
void
row_file_close(RowFile *file)
{
	BufFileClose(file->file);
	pfree(file);
}

/* Append a row to a batch, which points into the row. */
void
row_format_to_batch(const RowFormat *format, const FileRow *row, DatumBatch *rows)
{
	const bool *nulls = null_flags(format, row);
	const int	at = rows->row_count++;

	for (int i = 0; i < format->attribute_count; i++)
	{
		const AttrNumber number = format->attributes[i];
		Vector	   *attribute = &rows->attributes[number];
		const bool	is_place = !nulls[i] && !TupleDescAttr(format->descriptor, number)->attbyval;

		attribute->has_nulls = (at > 0 && attribute->has_nulls) || nulls[i];
		attribute->nulls[at] = nulls[i];
		attribute->values[at] = is_place ?
			PointerGetDatum((char *) row + row->values[i]) : row->values[i];
	}
}
