//! The layers of BERT (Devlin, Chang, Lee and Toutanova, 2018), for many texts at once and without padding. One matrix
//! has a row for each token of all texts. Only attention computes each text by itself.

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use safetensors::tensor::SafeTensors;

use super::Config;
use crate::embed::Vector;
use crate::embed::files::numbers;

/// The names of the embeddings' tensors begin with this prefix.
const EMBEDDINGS: &str = "embeddings";

/// The weights of a model.
pub(super) struct Bert {
    words: Array2<f32>,
    /// A row for each position.
    positions: Array2<f32>,
    /// A row for each kind of text: the first one of a pair, and the second one.
    kinds: Array2<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
}

/// The score of a pair of texts, from the model's output for its first token.
pub(super) struct Head {
    pooled: Linear,
    score: Linear,
}

/// The tokens of a text, or of a pair of texts, and the kind of each.
pub(super) struct Tokens {
    pub ids: Vec<u32>,
    pub kinds: Vec<u32>,
}

/// The outputs of the last layer: a row for each token of all texts.
pub(super) struct Outputs {
    state: Array2<f32>,
    texts: Vec<Range<usize>>,
}

struct Layer {
    /// Queries, keys and values, side by side.
    attention: Linear,
    mixed: Linear,
    mixed_norm: Norm,
    inner: Linear,
    outer: Linear,
    outer_norm: Norm,
}

struct Linear {
    /// A row for each output.
    weight: Array2<f32>,
    bias: Array1<f32>,
}

struct Norm {
    weight: Array1<f32>,
    bias: Array1<f32>,
    epsilon: f32,
}

/// The tensors of a file, with or without `bert.` before their names.
struct Tensors<'a>(&'a SafeTensors<'a>);

impl Tensors<'_> {
    fn matrix(&self, name: &str, columns: usize) -> Result<Array2<f32>, String> {
        let (shape, numbers) = self.read(name)?;
        match shape[..] {
            [rows, found] if found == columns => Array2::from_shape_vec((rows, columns), numbers)
                .map_err(|error| format!("its tensor `{name}` is damaged: {error}")),
            _ => Err(format!(
                "its tensor `{name}` has the shape {shape:?}; it must have {columns} columns"
            )),
        }
    }

    fn row(&self, name: &str, length: usize) -> Result<Array1<f32>, String> {
        let (shape, numbers) = self.read(name)?;
        match shape[..] {
            [found] if found == length => Ok(Array1::from_vec(numbers)),
            _ => Err(format!(
                "its tensor `{name}` has the shape {shape:?}; it must have {length} numbers"
            )),
        }
    }

    fn read(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), String> {
        let tensor = self
            .0
            .tensor(name)
            .or_else(|_| self.0.tensor(&format!("bert.{name}")));
        let tensor = tensor.map_err(|_| {
            format!(
                "it has no tensor `{name}`; it must be a BERT model: one of sentence-transformers to embed texts, a cross-encoder to \
                 rank them"
            )
        })?;
        Ok((tensor.shape().to_vec(), numbers(&tensor)?))
    }

    fn linear(&self, name: &str, inputs: usize) -> Result<Linear, String> {
        let weight = self.matrix(&format!("{name}.weight"), inputs)?;
        let bias = self.row(&format!("{name}.bias"), weight.nrows())?;
        Ok(Linear { weight, bias })
    }

    fn norm(&self, name: &str, config: &Config) -> Result<Norm, String> {
        Ok(Norm {
            weight: self.row(&format!("{name}.weight"), config.hidden_size)?,
            bias: self.row(&format!("{name}.bias"), config.hidden_size)?,
            epsilon: config.layer_norm_eps,
        })
    }

    fn layer(&self, number: usize, config: &Config) -> Result<Layer, String> {
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let size = config.hidden_size;
        let parts =
            ["query", "key", "value"].map(|part| self.linear(&name(&format!("attention.self.{part}")), size));
        let [query, key, value] = parts;
        let (query, key, value) = (query?, key?, value?);
        let beside = |error: ndarray::ShapeError| format!("its layer {number} is damaged: {error}");
        let attention = Linear {
            weight: concatenate(
                Axis(0),
                &[query.weight.view(), key.weight.view(), value.weight.view()],
            )
            .map_err(beside)?,
            bias: concatenate(Axis(0), &[query.bias.view(), key.bias.view(), value.bias.view()])
                .map_err(beside)?,
        };
        let inner = self.linear(&name("intermediate.dense"), size)?;
        let outer = self.linear(&name("output.dense"), inner.weight.nrows())?;
        let mixed = self.linear(&name("attention.output.dense"), size)?;
        let outputs = [
            attention.weight.nrows() / 3,
            mixed.weight.nrows(),
            outer.weight.nrows(),
        ];
        if outputs.iter().any(|&outputs| outputs != size) || attention.weight.nrows() != 3 * size {
            return Err(format!(
                "its layer {number} has {outputs:?} outputs; all must be {size}"
            ));
        }
        Ok(Layer {
            attention,
            mixed,
            mixed_norm: self.norm(&name("attention.output.LayerNorm"), config)?,
            inner,
            outer,
            outer_norm: self.norm(&name("output.LayerNorm"), config)?,
        })
    }
}

impl Bert {
    /// Reads a model's tensors.
    pub(super) fn read(tensors: &SafeTensors<'_>, config: &Config) -> Result<Bert, String> {
        let tensors = Tensors(tensors);
        let size = config.hidden_size;
        let embedding = |part: &str| tensors.matrix(&format!("{EMBEDDINGS}.{part}_embeddings.weight"), size);
        let positions = embedding("position")?;
        let kinds = embedding("token_type")?;
        if kinds.nrows() == 0 || positions.nrows() < config.max_position_embeddings {
            return Err(format!(
                "it has {} positions and {} kinds of text; config.json names {} positions",
                positions.nrows(),
                kinds.nrows(),
                config.max_position_embeddings
            ));
        }
        let layers = (0..config.num_hidden_layers).map(|number| tensors.layer(number, config));
        Ok(Bert {
            words: embedding("word")?,
            positions,
            kinds,
            norm: tensors.norm(&format!("{EMBEDDINGS}.LayerNorm"), config)?,
            layers: layers.collect::<Result<_, String>>()?,
            heads: config.num_attention_heads,
        })
    }

    /// Number of tokens that have a row.
    pub(super) fn tokens(&self) -> usize {
        self.words.nrows()
    }

    /// Number of tokens that a text may have.
    pub(super) fn positions(&self) -> usize {
        self.positions.nrows()
    }

    /// Number of kinds of text.
    pub(super) fn kinds(&self) -> usize {
        self.kinds.nrows()
    }

    /// Computes the outputs for texts. Every token is below [`Bert::tokens`], every kind below [`Bert::kinds`], and no text is longer
    /// than the positions.
    pub(super) fn outputs(&self, texts: &[Tokens]) -> Outputs {
        let mut ranges: Vec<Range<usize>> = Vec::with_capacity(texts.len());
        for text in texts {
            let begin = ranges.last().map_or(0, |range| range.end);
            ranges.push(begin..begin + text.ids.len());
        }
        let all = ranges.last().map_or(0, |range| range.end);
        debug_assert!(
            texts.iter().all(|text| text.ids.len() <= self.positions.nrows()),
            "the tokenizer cuts texts at the model's positions"
        );
        let mut state = Array2::zeros((all, self.words.ncols()));
        for (text, range) in texts.iter().zip(&ranges) {
            assert_eq!(text.ids.len(), text.kinds.len(), "each token has a kind");
            for (position, row) in range.clone().enumerate() {
                let mut sum = state.row_mut(row);
                sum += &self.positions.row(position);
                sum += &self.kinds.row(text.kinds[position] as usize);
                sum += &self.words.row(text.ids[position] as usize);
            }
        }
        self.norm.apply(&mut state);
        for layer in &self.layers {
            layer.apply(&mut state, &ranges, self.heads);
        }
        Outputs { state, texts: ranges }
    }
}

impl Outputs {
    /// The mean output of each text's tokens.
    pub(super) fn means(self) -> Vec<Vector> {
        let mean = |range: Range<usize>| {
            let outputs = self.state.slice(s![range, ..]);
            let mean = outputs.mean_axis(Axis(0));
            Vector::new(mean.map_or_else(Vec::new, |mean| mean.to_vec()))
        };
        self.texts.into_iter().map(mean).collect()
    }
}

impl Head {
    /// Reads the tensors of the head of a cross-encoder.
    pub(super) fn read(tensors: &SafeTensors<'_>, config: &Config) -> Result<Head, String> {
        let tensors = Tensors(tensors);
        let size = config.hidden_size;
        let head = Head {
            pooled: tensors.linear("pooler.dense", size)?,
            score: tensors.linear("classifier", size)?,
        };
        let (pooled, scores) = (head.pooled.weight.nrows(), head.score.weight.nrows());
        if (pooled, scores) != (size, 1) {
            return Err(format!(
                "its head has {pooled} and {scores} outputs; that of a model that ranks has {size} and 1"
            ));
        }
        Ok(head)
    }

    /// Computes the score of each text. A higher one is better.
    pub(super) fn scores(&self, outputs: &Outputs) -> Vec<f64> {
        let firsts: Vec<usize> = outputs.texts.iter().map(|text| text.start).collect();
        let mut pooled = self.pooled.apply(&outputs.state.select(Axis(0), &firsts));
        pooled.mapv_inplace(f32::tanh);
        self.score
            .apply(&pooled)
            .iter()
            .map(|&score| f64::from(score))
            .collect()
    }
}

impl Layer {
    fn apply(&self, state: &mut Array2<f32>, texts: &[Range<usize>], heads: usize) {
        let parts = self.attention.apply(state);
        let mut mixed = self.mixed.apply(&attend(parts.view(), texts, heads));
        mixed += &*state;
        self.mixed_norm.apply(&mut mixed);
        let mut inner = self.inner.apply(&mixed);
        inner.mapv_inplace(gelu);
        *state = self.outer.apply(&inner);
        *state += &mixed;
        self.outer_norm.apply(state);
    }
}

/// Mixes the values of each text's tokens by how well their keys answer the queries, head by head.
fn attend(parts: ArrayView2<'_, f32>, texts: &[Range<usize>], heads: usize) -> Array2<f32> {
    let size = parts.ncols() / 3;
    let width = size / heads;
    assert_eq!(
        3 * heads * width,
        parts.ncols(),
        "queries, keys and values of all heads fill the columns"
    );
    assert_eq!(
        texts.last().map_or(0, |text| text.end),
        parts.nrows(),
        "the texts cover all rows of tokens"
    );
    let scale = 1.0 / (width as f32).sqrt();
    let mut mixed = Array2::zeros((parts.nrows(), size));
    for text in texts {
        for head in 0..heads {
            let part = |number: usize| {
                let first = number * size + head * width;
                parts.slice(s![text.clone(), first..first + width])
            };
            let mut scores = part(0).dot(&part(1).t());
            scores *= scale;
            for mut row in scores.rows_mut() {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row.mapv_inplace(|score| (score - most).exp());
                let sum = row.sum();
                row /= sum;
            }
            let head_of_text = s![text.clone(), head * width..(head + 1) * width];
            mixed.slice_mut(head_of_text).assign(&scores.dot(&part(2)));
        }
    }
    mixed
}

impl Linear {
    fn apply(&self, state: &Array2<f32>) -> Array2<f32> {
        let mut outputs = state.dot(&self.weight.t());
        outputs += &self.bias;
        outputs
    }
}

impl Norm {
    fn apply(&self, state: &mut Array2<f32>) {
        for mut row in state.rows_mut() {
            let mean = row.sum() / row.len() as f32;
            row -= mean;
            let variance = row.iter().map(|number| number * number).sum::<f32>() / row.len() as f32;
            row /= (variance + self.epsilon).sqrt();
            row *= &self.weight;
            row += &self.bias;
        }
    }
}

/// x times the share of the normal distribution below x.
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function, to 1.5e-7: formula 7.1.26 of Abramowitz and Stegun, "Handbook of Mathematical Functions".
fn erf(x: f32) -> f32 {
    const FACTORS: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let polynomial = FACTORS.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    x.signum() * (1.0 - polynomial * (-x * x).exp())
}
