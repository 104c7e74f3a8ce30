//! Erases sources from the jobs of ingestions, whose payloads are texts and whose values are extractions.
//!
//! Batches never change. So the extractions of the remaining sources are stored once more, as jobs of a new run with
//! known outcomes, and the runs that held all extractions are deleted. No model is called. The same call completes an
//! erasure that ended halfway.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use gristmill_engine::{Engine, Job, JobError};
use gristmill_model::PackedBuilder;
use gristmill_store::{NewRun, Run, RunAdvance, RunState, StoreError};

use crate::extract::ChunkText;
use crate::limits::{BATCH_CHUNKS_MAX, SURVEY_MESSAGES_MAX};
use crate::message::Message;
use crate::pipeline::IngestError;
use crate::pipeline::job::{Extract, Outcome, failure_message};
use crate::pipeline::outcomes::{Extractions, batch, run_name};
use crate::pipeline::plan::identity_of;
use crate::store::KnowledgeStore;

/// The end of the names of runs with kept extractions, before their number.
const KEPT: &str = ": kept ";

/// The queue of kept extractions. No other worker serves it.
const KEPT_QUEUE: &str = "extract: kept";

/// Deletes the extractions of these sources from the store of jobs, and keeps the extractions of all other sources.
/// `name` is the name of the [ingestions](crate::pipeline::Ingestion::with_name), none of which may run. Call it before
/// the sources are deleted from the knowledge base.
///
/// # Errors
///
/// Errors of the stores and of the worker that stores kept extractions.
pub async fn forget_extractions(
    knowledge: &dyn KnowledgeStore,
    engine: &Engine,
    name: Option<&str>,
    sources: &BTreeSet<String>,
) -> Result<(), IngestError> {
    let own = run_name(name);
    if own_runs(engine, &own).await?.is_empty() {
        return Ok(());
    }
    let extractions = Extractions::open(engine.clone(), name).await?;
    let old = own_runs(engine, &own).await?;
    let number = old.iter().filter_map(|run| kept_number(&own, &run.name)).max();
    let new = NewRun {
        name: format!("{own}{KEPT}{}", number.map_or(1, |number| number + 1)),
        description: "{}".to_owned(),
    };
    let mut keeping = Keeping {
        engine,
        run: engine.store().create_run(new).await?,
        extractions,
        seen: HashSet::new(),
        kept: Vec::new(),
    };
    for source in knowledge.sources().await? {
        // Extractions without an identity, such as imported ones, cannot be found by their texts.
        let Some(identity) = identity_of(&source.settings).filter(|_| !sources.contains(&source.name)) else {
            continue;
        };
        let mut position = 0;
        loop {
            let page = knowledge
                .source_messages(&source.name, position, SURVEY_MESSAGES_MAX as u32)
                .await?;
            let Some(last) = page.last() else { break };
            assert!(last.position >= position, "pages of messages ascend");
            position = last.position + 1;
            for stored in &page {
                keeping.keep(&stored.message, identity).await?;
            }
        }
    }
    keeping.store().await?;
    for run in old {
        engine.store().delete_run(run.id).await?;
    }
    Ok(())
}

/// Lists the runs of ingestions with one name.
async fn own_runs(engine: &Engine, own: &str) -> Result<Vec<Run>, StoreError> {
    let mut runs = engine.store().runs().await?;
    runs.retain(|run| run.name == own || kept_number(own, &run.name).is_some());
    Ok(runs)
}

fn kept_number(own: &str, name: &str) -> Option<u64> {
    name.strip_prefix(own)?.strip_prefix(KEPT)?.parse().ok()
}

/// The extractions that are kept, on their way into their new run.
struct Keeping<'a> {
    engine: &'a Engine,
    run: Run,
    extractions: Extractions,
    /// The keys that were looked up.
    seen: HashSet<String>,
    /// The kept extractions that are not stored yet.
    kept: Vec<(ChunkText, Outcome)>,
}

impl Keeping<'_> {
    /// Keeps the extractions of a message by an extractor with this identity.
    async fn keep(&mut self, message: &Message, identity: &str) -> Result<(), IngestError> {
        for text in &message.text_chunks {
            // Some extractors read the speaker, and some do not.
            for speaker in [None, message.speaker.as_deref()] {
                let chunk = ChunkText::new(text, speaker, identity);
                if self.seen.insert(chunk.key.clone())
                    && let Some(outcome) = self.extractions.get(&chunk.key).await?
                {
                    self.kept.push((chunk, outcome));
                }
            }
            if self.kept.len() >= BATCH_CHUNKS_MAX {
                self.store().await?;
            }
        }
        Ok(())
    }

    /// Stores the kept extractions as jobs with the same outcomes as before.
    async fn store(&mut self) -> Result<(), IngestError> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let (mut payloads, mut outcomes) = (PackedBuilder::new(), HashMap::new());
        for (chunk, outcome) in self.kept.drain(..) {
            payloads.push_value(&chunk).map_err(StoreError::from)?;
            outcomes.insert(chunk.key, outcome);
        }
        self.run.progress.jobs += u64::from(payloads.count());
        let advance = RunAdvance {
            run: self.run.id,
            progress: self.run.progress,
            state: RunState::Submitting,
        };
        let mut jobs = batch(payloads);
        jobs.queue = KEPT_QUEUE.to_owned();
        self.engine.store().submit(vec![jobs], Some(advance)).await?;
        let outcomes = Arc::new(outcomes);
        let answer = move |job: Job<ChunkText>| {
            let outcome = outcomes.get(&job.payload.key).cloned();
            async move {
                let Some(outcome) = outcome else {
                    return Err(JobError::new("unknown", "another ingestion has submitted it").permanent());
                };
                match outcome.result {
                    Ok(extracted) => Ok((*extracted).clone()),
                    Err(reason) => {
                        let message = failure_message(&outcome.key, &outcome.usage, &reason);
                        Err(JobError::new("extraction", message).permanent())
                    }
                }
            }
        };
        let mut worker = self.engine.worker();
        worker
            .name("keep extractions")
            .queues([KEPT_QUEUE])
            .handle::<Extract, _, _>(answer)
            .until_empty();
        let ended = worker.run().await;
        ended.map_err(|error| IngestError::Worker(error.to_string()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_with_kept_extractions_belong_to_one_name() {
        let own = run_name(None);
        assert_eq!(kept_number(&own, &format!("{own}{KEPT}7")), Some(7));
        let named = run_name(Some("a"));
        assert_eq!(kept_number(&own, &format!("{named}{KEPT}7")), None);
        assert_eq!(kept_number(&named, &format!("{named}{KEPT}12")), Some(12));
        assert_eq!(kept_number(&own, &own), None);
    }
}
