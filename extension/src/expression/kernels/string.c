/*
 * string.c
 *	  Functions that make texts: upper, lower, substring, left and ||.
 *
 * The texts of a batch are written one behind the other, into memory of the expression
 * that the next batch uses again.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/formatting.h"
#include "utils/memutils.h"

#include "../expr.h"
#include "bytes.h"

/* Bytes of the texts of one batch, at most: values that are not on the page take the row path. */
#define TEXTS_BYTES_MAX	(1024 * 1024)

/* Collations whose ASCII letters are known to map as in C, or not to. */
#define COLLATIONS_KNOWN	16
#define ASCII_END	128

/* Memory for the texts of a batch, or NULL where they take too much. */
static char *
reserve_texts(VectorExpr *expression, Size size)
{
	if (size > TEXTS_BYTES_MAX)
		return NULL;
	if (size > expression->texts_size || expression->texts == NULL)
	{
		if (expression->texts != NULL)
			pfree(expression->texts);
		expression->texts = NULL;
		expression->texts_size = Max(size, 2 * expression->texts_size);
		expression->texts = MemoryContextAlloc(GetMemoryChunkContext(expression),
											   expression->texts_size);
	}
	return expression->texts;
}

/* What a text of so many bytes takes. */
static inline Size
text_size(int length)
{
	return INTALIGN(VARHDRSZ + length);
}

/* Room for all texts of an operand, and for one of an extra length with each; 0: one is not on the page. */
static Size
size_of_texts(const Vector *operand, const Selection *present)
{
	Size		size = MAXIMUM_ALIGNOF;

	FOR_SELECTED(row, present,
				 if (is_toasted(operand->values[row]))
				 return 0;
				 size += text_size(VARSIZE_ANY_EXHDR(DatumGetPointer(operand->values[row]))));
	return size;
}

static inline char
change_byte(VectorOperation operation, char byte)
{
	if (operation == OPERATION_UPPER)
		return byte >= 'a' && byte <= 'z' ? byte - 'a' + 'A' : byte;
	return byte >= 'A' && byte <= 'Z' ? byte - 'A' + 'a' : byte;
}

static char *
change_by_locale(VectorOperation operation, const char *data, int length, Oid collation)
{
	return operation == OPERATION_UPPER ? str_toupper(data, length, collation) :
		str_tolower(data, length, collation);
}

/* Do all ASCII letters map under a collation as they do under C?  Not so in Turkish. */
bool
case_maps_ascii(VectorOperation operation, Oid collation)
{
	static struct
	{
		Oid			collation;
		VectorOperation operation;
		bool		maps;
	}			known[COLLATIONS_KNOWN];
	static int	used = 0;
	int			slot;

	for (int i = 0; i < Min(used, COLLATIONS_KNOWN); i++)
		if (known[i].collation == collation && known[i].operation == operation)
			return known[i].maps;
	slot = used++ % COLLATIONS_KNOWN;
	known[slot].collation = InvalidOid;
	known[slot].maps = true;
	for (int byte = 1; byte < ASCII_END; byte++)
	{
		char		one = (char) byte;
		char	   *changed = change_by_locale(operation, &one, 1, collation);

		known[slot].maps &= changed[0] == change_byte(operation, one) && changed[1] == '\0';
		pfree(changed);
	}
	known[slot].operation = operation;
	known[slot].collation = collation;
	return known[slot].maps;
}

/* Write a text in the other case; false where it gets longer. */
static bool
write_changed(const VectorExpr *expression, Bytes value, char *to)
{
	unsigned char high = 0;
	char	   *changed;
	int			length;

	for (int i = 0; i < value.length; i++)
	{
		high |= (unsigned char) value.data[i];
		VARDATA(to)[i] = change_byte(expression->operation, value.data[i]);
	}
	SET_VARSIZE(to, VARHDRSZ + value.length);
	if (high < ASCII_END)
		return true;
	changed = change_by_locale(expression->operation, value.data, value.length,
							   expression->collation);
	length = strlen(changed);
	if (length <= value.length)
	{
		memcpy(VARDATA(to), changed, length);
		SET_VARSIZE(to, VARHDRSZ + length);
	}
	pfree(changed);
	return length <= value.length;
}

bool
kernel_change_case(VectorExpr *expression, VectorContext *context,
				   const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];
	Size		size;
	char	   *to;

	if (operand == NULL)
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	present = selection_without_nulls(selection, operand, rows);
	size = size_of_texts(operand, &present);
	to = size > 0 ? reserve_texts(expression, size) : NULL;
	if (to == NULL)
		return false;
	FOR_SELECTED(row, &present,
				 Bytes value = bytes_of(operand->values[row], false);
				 if (!write_changed(expression, value, to))
				 return false;
				 result->values[row] = PointerGetDatum(to);
				 to += text_size(value.length));
	return true;
}

/* Behind so many characters of a value. */
static inline const char *
skip_characters(const char *at, const char *end, int64 count, bool is_multibyte)
{
	if (!is_multibyte)
		return at + Min(count, end - at);
	for (; count > 0 && at < end; count--)
	{
		at++;
		/* In UTF-8, bytes that go on with a character. */
		while (at < end && ((unsigned char) *at & 0xC0) == 0x80)
			at++;
	}
	return at;
}

/* The characters from the first one on, counted from 1; those before 1 count, too, but there are none. */
static inline Bytes
part_of(Bytes value, int64 first, int64 length, bool is_multibyte)
{
	const char *end = value.data + value.length;
	const int64 behind = first + length;
	const char *start = skip_characters(value.data, end, Max(first, 1) - 1, is_multibyte);

	end = skip_characters(start, end, Max(behind - Max(first, 1), 0), is_multibyte);
	return (Bytes) {start, end - start};
}

static const Vector *
evaluate_optional(VectorExpr *operand, VectorContext *context, const Selection *selection,
				  bool *fails)
{
	const Vector *vector = operand != NULL ? vector_evaluate(operand, context, selection) : NULL;

	*fails |= operand != NULL && vector == NULL;
	return vector;
}

/* substring(text, first [, length]) and left(text, length). */
bool
kernel_substring(VectorExpr *expression, VectorContext *context,
				 const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	bool		fails = operand == NULL;
	const Vector *first = evaluate_optional(expression->right, context, selection, &fails);
	const Vector *length = evaluate_optional(expression->condition, context, selection, &fails);
	const bool	is_multibyte = pg_database_encoding_max_length() > 1;
	Vector	   *result = &expression->result;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];
	Size		size;
	char	   *to;

	if (fails)
		return false;
	vector_merge_nulls(result, operand, first, selection);
	if (length != NULL)
		vector_merge_nulls(result, result, length, selection);
	present = selection_without_nulls(selection, result, rows);
	size = size_of_texts(operand, &present);
	to = size > 0 ? reserve_texts(expression, size) : NULL;
	if (to == NULL)
		return false;
	FOR_SELECTED(row, &present,
				 int64 from = first != NULL ? DatumGetInt64(first->values[row]) : 1;
				 int64 count = length != NULL ? DatumGetInt64(length->values[row]) : PG_INT32_MAX;
				 Bytes part;
				 /* An error, or for left() something else. */
				 if (count < 0)
				 return false;
				 part = part_of(bytes_of(operand->values[row], false), from,
								length != NULL ? count : (int64) PG_INT32_MAX * 2, is_multibyte);
				 memcpy(VARDATA(to), part.data, part.length);
				 SET_VARSIZE(to, VARHDRSZ + part.length);
				 result->values[row] = PointerGetDatum(to);
				 to += text_size(part.length));
	return true;
}

bool
kernel_concatenate(VectorExpr *expression, VectorContext *context,
				   const Selection *selection)
{
	const Vector *left = vector_evaluate(expression->left, context, selection);
	const Vector *right = vector_evaluate(expression->right, context, selection);
	Vector	   *result = &expression->result;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];
	Size		left_size;
	Size		right_size;
	char	   *to;

	if (left == NULL || right == NULL)
		return false;
	vector_merge_nulls(result, left, right, selection);
	present = selection_without_nulls(selection, result, rows);
	left_size = size_of_texts(left, &present);
	right_size = size_of_texts(right, &present);
	to = left_size > 0 && right_size > 0 ?
		reserve_texts(expression, left_size + right_size) : NULL;
	if (to == NULL)
		return false;
	FOR_SELECTED(row, &present,
				 Bytes a = bytes_of(left->values[row], false);
				 Bytes b = bytes_of(right->values[row], false);
				 memcpy(VARDATA(to), a.data, a.length);
				 memcpy(VARDATA(to) + a.length, b.data, b.length);
				 SET_VARSIZE(to, VARHDRSZ + a.length + b.length);
				 result->values[row] = PointerGetDatum(to);
				 to += text_size(a.length + b.length));
	return true;
}
