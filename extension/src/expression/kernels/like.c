/*
 * like.c
 *	  LIKE, byte by byte.
 *
 * A pattern is taken apart at its %: the first piece stands at the start of a value, the
 * last one at its end, and the others in their order between these, each as early as it
 * can.  A piece is made of bytes and of _, each of which takes one character.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "../expr.h"
#include "bytes.h"

/* Pieces of a pattern, and bytes of one, at most; the row path matches longer ones. */
#define LIKE_PIECES_MAX	16
#define LIKE_BYTES_MAX	1024

typedef struct LikePiece
{
	const char *bytes;			/* one for each _, too */
	const bool *is_any;			/* of each byte: it stands for a _ */
	int			length;
	bool		has_any;
} LikePiece;

typedef struct LikePattern
{
	int			count;			/* 1: no % at all */
	LikePiece	pieces[LIKE_PIECES_MAX];
	char		bytes[LIKE_BYTES_MAX];
	bool		is_any[LIKE_BYTES_MAX];
	bool		is_multibyte;
} LikePattern;

static LikePiece *
add_piece(LikePattern *result, int at)
{
	LikePiece  *piece = &result->pieces[result->count++];

	*piece = (LikePiece) {.bytes = result->bytes + at,.is_any = result->is_any + at};
	return piece;
}

/* Take a pattern apart; false where it is too long, or ends within an escape. */
static bool
read_pattern(Bytes pattern, LikePattern *result)
{
	LikePiece  *piece;
	int			used = 0;

	if (pattern.length > LIKE_BYTES_MAX)
		return false;
	result->is_multibyte = pg_database_encoding_max_length() > 1;
	result->count = 0;
	piece = add_piece(result, used);
	for (int i = 0; i < pattern.length; i++)
	{
		char		byte = pattern.data[i];

		if (byte == '%')
		{
			if (result->count == LIKE_PIECES_MAX)
				return false;
			piece = add_piece(result, used);
			continue;
		}
		result->is_any[used] = byte == '_';
		piece->has_any |= byte == '_';
		if (byte == '\\' && ++i == pattern.length)
			return false;
		result->bytes[used++] = pattern.data[i];
		piece->length++;
	}
	return true;
}

/*
 * Can a pattern be matched byte by byte?  Not where a piece is looked for inside of a
 * value, or takes a character, and a byte may be a part of two characters.
 */
bool
like_pattern_is_simple(const char *pattern, int bytes)
{
	LikePattern split;

	if (!read_pattern((Bytes) {pattern, bytes}, &split))
		return false;
	return (split.count == 1 && !split.pieces[0].has_any) ||
		(split.count == 2 && !split.pieces[0].has_any && split.pieces[1].length == 0) ||
		!split.is_multibyte || GetDatabaseEncoding() == PG_UTF8;
}

/* In UTF-8, does a byte go on with a character? */
static inline bool
continues_character(char byte)
{
	return ((unsigned char) byte & 0xC0) == 0x80;
}

static inline const char *
next_character(const LikePattern *pattern, const char *at, const char *end)
{
	at++;
	if (pattern->is_multibyte)
		while (at < end && continues_character(*at))
			at++;
	return at;
}

/* Behind what a piece takes from here on, or NULL. */
static inline const char *
match_piece(const LikePattern *pattern, const LikePiece *piece, const char *at, const char *end)
{
	if (end - at < piece->length)
		return NULL;
	if (!piece->has_any)
		return memcmp(at, piece->bytes, piece->length) == 0 ? at + piece->length : NULL;
	for (int i = 0; i < piece->length; i++)
	{
		if (at == end || (!piece->is_any[i] && *at != piece->bytes[i]))
			return NULL;
		at = piece->is_any[i] ? next_character(pattern, at, end) : at + 1;
	}
	return at;
}

/* Behind the first place of a piece, or NULL. */
static const char *
find_piece(const LikePattern *pattern, const LikePiece *piece, const char *at, const char *end)
{
	if (!piece->has_any)
	{
		at = memmem(at, end - at, piece->bytes, piece->length);
		return at != NULL ? at + piece->length : NULL;
	}
	while (at < end)
	{
		const char *behind;

		/* The first byte of a character is none of another's. */
		if (!piece->is_any[0])
			at = memchr(at, piece->bytes[0], end - at);
		if (at == NULL)
			return NULL;
		behind = match_piece(pattern, piece, at, end);
		if (behind != NULL)
			return behind;
		at = next_character(pattern, at, end);
	}
	return NULL;
}

/* Where the last piece begins, if it takes the end of a value; or NULL. */
static inline const char *
start_of_last(const LikePattern *pattern, const LikePiece *piece, const char *from,
			  const char *end)
{
	const char *start = end;

	if (!piece->has_any || !pattern->is_multibyte)
		start -= Min(piece->length, end - from + 1);
	else
		for (int i = piece->length - 1; i >= 0; i--)
		{
			do
				start--;
			while (piece->is_any[i] && start > from && continues_character(*start));
			if (start < from)
				return NULL;
		}
	return start >= from && match_piece(pattern, piece, start, end) == end ? start : NULL;
}

static inline bool
pattern_matches(const LikePattern *pattern, Bytes value)
{
	const char *end = value.data + value.length;
	const char *from = match_piece(pattern, &pattern->pieces[0], value.data, end);

	if (pattern->count == 1)
		return from == end;
	if (from == NULL)
		return false;
	end = start_of_last(pattern, &pattern->pieces[pattern->count - 1], from, end);
	if (end == NULL)
		return false;
	for (int i = 1; i < pattern->count - 1; i++)
	{
		if (pattern->pieces[i].length == 0)
			continue;
		from = find_piece(pattern, &pattern->pieces[i], from, end);
		if (from == NULL)
			return false;
	}
	return true;
}

/* LIKE and its negation. */
bool
kernel_like(VectorExpr *expression, VectorContext *context,
			const Selection *selection)
{
	const Vector *operand = vector_evaluate(expression->left, context, selection);
	Vector	   *result = &expression->result;
	const bool	is_negated = (expression->operation == OPERATION_NOT_LIKE);
	LikePattern pattern;
	Selection	present;
	uint16		rows[BATCH_ROWS_MAX];

	if (operand == NULL ||
		!read_pattern(bytes_of(expression->right->result.values[0], false), &pattern))
		return false;
	vector_merge_nulls(result, operand, NULL, selection);
	present = selection_without_nulls(selection, operand, rows);
	FOR_SELECTED(row, &present,
				 bool matches;
				 if (is_toasted(operand->values[row]))
				 return false;
				 matches = pattern_matches(&pattern, bytes_of(operand->values[row], false));
				 result->values[row] = Int64GetDatum(matches != is_negated));
	return true;
}
