//! Writes terms and their postings, all of a transaction in a few statements.

use std::collections::{BTreeMap, HashMap};

use deadpool_postgres::Transaction;

use super::connection::Result;
use super::{Digest, digest, without_nul};
use crate::limits::{POSTGRES_TERMS_AT_ONCE, SEGMENT_REFS_MAX, STEM_CHARACTERS_MAX};
use crate::property::Property;
use crate::store::posting::{NewPostings, NewRefs, Segment};
use crate::store::similar::stems;

/// Writes the new postings.
pub(super) async fn write(transaction: &Transaction<'_>, postings: &mut NewPostings) -> Result<()> {
    let mut by_text: BTreeMap<String, NewRefs> = BTreeMap::new();
    for (text, refs) in postings.take() {
        let known = by_text.entry(without_nul(text)).or_default();
        if known.is_empty() {
            *known = refs;
        } else {
            merge(known, refs);
        }
    }
    let postings: Vec<(String, NewRefs)> = by_text.into_iter().collect();
    for part in postings.chunks(POSTGRES_TERMS_AT_ONCE) {
        write_part(transaction, part).await?;
    }
    Ok(())
}

/// Merges the refs of two terms that became the same without NUL.
fn merge(known: &mut NewRefs, refs: NewRefs) {
    for (property, refs) in refs {
        match known.iter_mut().find(|(found, _)| *found == property) {
            Some((_, all)) => {
                all.extend(refs);
                all.sort_unstable();
            }
            None => known.push((property, refs)),
        }
    }
}

async fn write_part(transaction: &Transaction<'_>, postings: &[(String, NewRefs)]) -> Result<()> {
    let digests: Vec<Digest> = postings.iter().map(|(text, _)| digest(text)).collect();
    let texts: Vec<&str> = postings.iter().map(|(text, _)| text.as_str()).collect();
    let new = insert_terms(transaction, &digests, &texts).await?;
    let known = find_terms(
        transaction,
        digests.iter().filter(|digest| !new.contains_key(*digest)),
    )
    .await?;

    let mut stem_rows = StemRows::default();
    let mut adding = Vec::new();
    for ((text, refs), digest) in postings.iter().zip(&digests) {
        if let Some(&id) = new.get(digest) {
            stem_rows.add(text, id);
            adding.extend(
                refs.iter()
                    .map(|(property, refs)| (id, *property, &refs[..], None)),
            );
        } else if let Some(&id) = known.get(digest) {
            adding.extend(
                refs.iter()
                    .map(|(property, refs)| (id, *property, &refs[..], None)),
            );
        }
    }
    stem_rows.insert(transaction).await?;
    let mut last = last_segments(transaction, &known, &adding).await?;
    for (term, property, _, segment) in &mut adding {
        *segment = last.remove(&(*term, *property as i16));
    }
    write_segments(transaction, adding).await
}

async fn insert_terms(
    transaction: &Transaction<'_>,
    digests: &[Digest],
    texts: &[&str],
) -> Result<HashMap<Digest, i64>> {
    let statement = transaction
        .prepare_cached(
            "INSERT INTO term (digest, text) SELECT * FROM unnest($1::bytea[], $2::text[])
             ON CONFLICT (digest) DO NOTHING RETURNING digest, id",
        )
        .await?;
    let rows = transaction.query(&statement, &[&digests, &texts]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

async fn find_terms(
    transaction: &Transaction<'_>,
    digests: impl Iterator<Item = &Digest>,
) -> Result<HashMap<Digest, i64>> {
    let digests: Vec<&Digest> = digests.collect();
    let statement = transaction
        .prepare_cached("SELECT digest, id FROM term WHERE digest = ANY ($1)")
        .await?;
    let rows = transaction.query(&statement, &[&digests]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Stems to write, column by column.
#[derive(Default)]
struct StemRows {
    stems: Vec<String>,
    words: Vec<i32>,
    terms: Vec<i64>,
}

impl StemRows {
    fn add(&mut self, text: &str, term: i64) {
        let stems = stored_stems(text);
        self.words.extend(vec![stems.len() as i32; stems.len()]);
        self.terms.extend(vec![term; stems.len()]);
        self.stems.extend(stems);
    }

    async fn insert(&self, transaction: &Transaction<'_>) -> Result<()> {
        assert_eq!(self.stems.len(), self.terms.len(), "each stem has its term");
        assert_eq!(
            self.stems.len(),
            self.words.len(),
            "each stem has its term's number of words"
        );
        let statement = transaction
            .prepare_cached(
                "INSERT INTO stem (stem, words, term) SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[])
                 ON CONFLICT DO NOTHING",
            )
            .await?;
        transaction
            .execute(&statement, &[&self.stems, &self.words, &self.terms])
            .await?;
        Ok(())
    }
}

/// The stems of a term in their stored form. The beginning of a very long stem is enough.
pub(super) fn stored_stems(text: &str) -> Vec<String> {
    let stems = stems(text).into_iter();
    stems
        .map(|stem| stem.chars().take(STEM_CHARACTERS_MAX).collect())
        .collect()
}

/// The refs to add to one term in one role, and the last segment of the term if it has room.
type Adding<'a> = (i64, Property, &'a [u32], Option<Segment>);

async fn last_segments(
    transaction: &Transaction<'_>,
    known: &HashMap<Digest, i64>,
    adding: &[Adding<'_>],
) -> Result<HashMap<(i64, i16), Segment>> {
    let known: std::collections::HashSet<i64> = known.values().copied().collect();
    let old = adding.iter().filter(|(term, ..)| known.contains(term));
    let (terms, properties): (Vec<i64>, Vec<i16>) =
        old.map(|(term, property, ..)| (*term, *property as i16)).unzip();
    let statement = transaction
        .prepare_cached(
            "SELECT wanted.term, wanted.property, last.first_ref, last.last_ref, last.count, last.refs
             FROM unnest($1::bigint[], $2::smallint[]) AS wanted (term, property)
             CROSS JOIN LATERAL (
                 SELECT * FROM posting WHERE posting.term = wanted.term AND posting.property = wanted.property
                 ORDER BY first_ref DESC LIMIT 1
             ) AS last WHERE last.count < $3",
        )
        .await?;
    let rows = transaction
        .query(&statement, &[&terms, &properties, &(SEGMENT_REFS_MAX as i32)])
        .await?;
    rows.iter()
        .map(|row| {
            let segment = Segment {
                first: row.try_get::<_, i64>(2)? as u32,
                last: row.try_get::<_, i64>(3)? as u32,
                count: row.try_get::<_, i32>(4)? as u32,
                bytes: row.try_get(5)?,
            };
            Ok(((row.try_get(0)?, row.try_get(1)?), segment))
        })
        .collect()
}

async fn write_segments(transaction: &Transaction<'_>, adding: Vec<Adding<'_>>) -> Result<()> {
    let (mut extended, mut new) = (SegmentRows::default(), SegmentRows::default());
    for (term, property, refs, last) in adding {
        let mut rest = refs;
        if let Some(mut segment) = last {
            rest = segment.extend(refs);
            extended.add(term, property, segment);
        }
        for segment in Segment::cut(rest) {
            new.add(term, property, segment);
        }
    }
    extended.update(transaction).await?;
    new.insert(transaction).await
}

/// Segments to write, column by column.
#[derive(Default)]
pub(super) struct SegmentRows {
    terms: Vec<i64>,
    properties: Vec<i16>,
    firsts: Vec<i64>,
    lasts: Vec<i64>,
    counts: Vec<i32>,
    bytes: Vec<Vec<u8>>,
}

impl SegmentRows {
    pub(super) fn add(&mut self, term: i64, property: Property, segment: Segment) {
        self.terms.push(term);
        self.properties.push(property as i16);
        self.firsts.push(i64::from(segment.first));
        self.lasts.push(i64::from(segment.last));
        self.counts.push(segment.count as i32);
        self.bytes.push(segment.bytes);
    }

    pub(super) async fn insert(&self, transaction: &Transaction<'_>) -> Result<()> {
        self.run(
            transaction,
            "INSERT INTO posting (term, property, first_ref, last_ref, count, refs)
             SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::int[], $6::bytea[])",
        )
        .await
    }

    async fn update(&self, transaction: &Transaction<'_>) -> Result<()> {
        self.run(
            transaction,
            "UPDATE posting SET last_ref = new.last_ref, count = new.count, refs = new.refs
             FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::int[], $6::bytea[])
                 AS new (term, property, first_ref, last_ref, count, refs)
             WHERE posting.term = new.term AND posting.property = new.property
               AND posting.first_ref = new.first_ref",
        )
        .await
    }

    async fn run(&self, transaction: &Transaction<'_>, sql: &str) -> Result<()> {
        if self.terms.is_empty() {
            return Ok(());
        }
        let statement = transaction.prepare_cached(sql).await?;
        transaction
            .execute(
                &statement,
                &[
                    &self.terms,
                    &self.properties,
                    &self.firsts,
                    &self.lasts,
                    &self.counts,
                    &self.bytes,
                ],
            )
            .await?;
        Ok(())
    }
}
