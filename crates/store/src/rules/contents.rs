//! A cache of batches, so that a batch that is claimed in parts is read once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use gristmill_model::{BatchId, JobLabels, PackedArray, PackedIndex, Positions};

/// Maximum bytes of payloads, keys and tags in the cache.
const CONTENT_BYTES_MAX: usize = 16 << 20;

/// Maximum batches in the cache.
const CONTENT_BATCHES_MAX: usize = 4_096;

/// A cached batch.
#[derive(Debug)]
pub struct Content<Head> {
    /// The data that all its jobs share.
    pub head: Arc<Head>,
    /// The payloads, once they have been read.
    pub payloads: Option<PackedArray>,
    /// The keys and tags of its jobs, once they have been read.
    pub labels: Option<Arc<JobLabels>>,
    /// The beginning of each payload, once some payloads have been selected.
    index: Arc<OnceLock<PackedIndex>>,
}

/// The batches that were submitted or claimed last. Batches never change and their ids are never reused, so that only a
/// rollback makes an entry stale.
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
    /// The batch, if it is cached.
    pub fn get(&self, batch: BatchId) -> Option<&Content<Head>> {
        self.by_batch.get(&batch)
    }

    /// Caches a batch.
    pub fn put(&mut self, batch: BatchId, content: Content<Head>) {
        self.bytes += content.bytes();
        match self.by_batch.insert(batch, content) {
            Some(previous) => self.bytes -= previous.bytes(),
            None => self.order.push_back(batch),
        }
        assert_eq!(
            self.by_batch.len(),
            self.order.len(),
            "each cached batch is in line once"
        );
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
    /// Makes a batch whose labels have not been read.
    pub fn new(head: Arc<Head>, payloads: Option<PackedArray>) -> Self {
        Content {
            head,
            payloads,
            labels: None,
            index: Arc::default(),
        }
    }

    /// Adds the keys and tags of its jobs.
    pub fn with_labels(self, labels: Arc<JobLabels>) -> Self {
        Content {
            labels: Some(labels),
            ..self
        }
    }

    /// The payloads of some of its jobs; `None` if they are not cached. A batch that is claimed in parts is searched
    /// once, and not for each part.
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
