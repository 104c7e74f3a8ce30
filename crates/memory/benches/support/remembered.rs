//! An embedder that computes the vector of a text once: the same questions are asked with many weights.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gristmill_memory::embed::{EmbedError, Embedder, Vector};

/// Vectors by their texts.
type Vectors = BTreeMap<String, Vec<f32>>;

/// An embedder with the vectors that it has made.
#[derive(Debug)]
pub struct Remembered {
    embedder: Arc<dyn Embedder>,
    vectors: Mutex<Vectors>,
    /// Where they are kept from run to run.
    file: Option<PathBuf>,
}

impl Remembered {
    /// With the vectors of a file, if one is named and was written for this model.
    pub fn new(embedder: Arc<dyn Embedder>, file: Option<PathBuf>) -> Remembered {
        let kept = file.as_ref().and_then(|file| std::fs::read(file).ok());
        let kept: Option<(String, Vectors)> =
            kept.map(|bytes| serde_json::from_slice(&bytes).expect("a file of vectors"));
        let vectors = match kept {
            Some((model, vectors)) if model == embedder.identity() => vectors,
            _ => Vectors::new(),
        };
        Remembered {
            embedder,
            vectors: Mutex::new(vectors),
            file,
        }
    }

    /// Writes the vectors to the file.
    pub fn keep(&self) {
        if let Some(file) = &self.file {
            let vectors = self.vectors.lock().expect("vectors");
            let bytes = serde_json::to_vec(&(self.identity(), &*vectors)).expect("JSON");
            std::fs::write(file, bytes).expect("writes");
        }
    }
}

#[async_trait::async_trait]
impl Embedder for Remembered {
    fn identity(&self) -> String {
        self.embedder.identity()
    }

    fn texts_max(&self) -> usize {
        self.embedder.texts_max()
    }

    fn bytes_max(&self) -> usize {
        self.embedder.bytes_max()
    }

    fn related_cosine_min(&self) -> f64 {
        self.embedder.related_cosine_min()
    }

    fn weight(&self) -> f64 {
        self.embedder.weight()
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vector>, EmbedError> {
        let unknown: Vec<String> = {
            let vectors = self.vectors.lock().expect("vectors");
            let unknown = texts.iter().filter(|text| !vectors.contains_key(*text));
            unknown.cloned().collect()
        };
        if !unknown.is_empty() {
            let made = self.embedder.embed(unknown.clone()).await?;
            let numbers = made.into_iter().map(|vector| vector.numbers().to_vec());
            self.vectors
                .lock()
                .expect("vectors")
                .extend(unknown.into_iter().zip(numbers));
        }
        let vectors = self.vectors.lock().expect("vectors");
        Ok(texts
            .iter()
            .map(|text| Vector::new(vectors[text].clone()))
            .collect())
    }
}
