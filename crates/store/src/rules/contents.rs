//! Batches at hand, so that one that is claimed in parts is not read again for each.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use gristmill_model::{BatchId, JobLabels, PackedArray, PackedIndex, Positions};

/// Bytes of payloads, keys and tags that a store keeps at hand.
const CONTENT_BYTES_MAX: usize = 16 << 20;

/// Batches that a store keeps at hand.
const CONTENT_BATCHES_MAX: usize = 4_096;

/// A batch as it is kept at hand.
#[derive(Debug)]
pub struct Content<Head> {
    /// What holds for all of its jobs.
    pub head: Arc<Head>,
    /// The payloads, once they were read.
    pub payloads: Option<PackedArray>,
    /// The keys and tags of its jobs, once they were looked at.
    pub labels: Option<Arc<JobLabels>>,
    /// Where each payload begins, once some of them were selected.
    index: Arc<OnceLock<PackedIndex>>,
}

/// The batches that were submitted or claimed last. Batches never change and their ids are never
/// given again, so nothing here goes stale but by a rollback.
#[derive(Debug)]
pub struct Contents<Head> {
    by_batch: HashMap<BatchId, Content<Head>>,
    order: VecDeque<BatchId>,
    bytes: usize,
}

impl<Head> Default for Contents<Head> {
    fn default() -> Self {
        Contents {
            by_batch: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<Head> Contents<Head> {
    /// The batch, if it is at hand.
    pub fn get(&self, batch: BatchId) -> Option<&Content<Head>> {
        self.by_batch.get(&batch)
    }

    /// Keeps a batch.
    pub fn put(&mut self, batch: BatchId, content: Content<Head>) {
        self.bytes += content.bytes();
        match self.by_batch.insert(batch, content) {
            Some(previous) => self.bytes -= previous.bytes(),
            None => self.order.push_back(batch),
        }
        while self.bytes > CONTENT_BYTES_MAX || self.order.len() > CONTENT_BATCHES_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(content) = self.by_batch.remove(&oldest) {
                self.bytes -= content.bytes();
            }
        }
    }
}

impl<Head> Clone for Content<Head> {
    fn clone(&self) -> Self {
        Content {
            head: self.head.clone(),
            payloads: self.payloads.clone(),
            labels: self.labels.clone(),
            index: self.index.clone(),
        }
    }
}

impl<Head> Content<Head> {
    /// A batch whose labels were not read.
    pub fn new(head: Arc<Head>, payloads: Option<PackedArray>) -> Self {
        Content {
            head,
            payloads,
            labels: None,
            index: Arc::default(),
        }
    }

    /// The same, with the keys and tags of its jobs.
    pub fn with_labels(self, labels: Arc<JobLabels>) -> Self {
        Content {
            labels: Some(labels),
            ..self
        }
    }

    /// The payloads of some of its jobs; `None` where they are not at hand. A batch that is claimed in parts is searched
    /// through once, and not for each part.
    pub fn select(&self, positions: &Positions) -> Option<PackedArray> {
        let payloads = self.payloads.as_ref()?;
        if positions.len() >= payloads.count() {
            return Some(payloads.clone());
        }
        let index = self.index.get_or_init(|| payloads.index());
        Some(payloads.select_indexed(positions, index))
    }

    fn bytes(&self) -> usize {
        let payloads = self.payloads.as_ref();
        payloads.map_or(0, |payloads| payloads.as_str().len())
            + self.labels.as_ref().map_or(0, |labels| labels.weight_bytes())
    }
}
