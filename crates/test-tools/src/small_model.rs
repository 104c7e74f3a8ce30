//! A static embedding model of a few words, written as model2vec writes one.

use std::path::Path;

use serde_json::json;

/// Writes a model into `folder`: a row for each word, and one for whatever is unknown, which must not count.
pub fn write(folder: &Path, words: &[(&str, [f32; 2])]) {
    std::fs::create_dir_all(folder).expect("a folder");
    let vocabulary: serde_json::Map<String, serde_json::Value> = std::iter::once("[UNK]")
        .chain(words.iter().map(|(word, _)| *word))
        .enumerate()
        .map(|(id, word)| (word.to_owned(), json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).expect("writes");
    let rows: Vec<u8> = std::iter::once([-9.0, -9.0])
        .chain(words.iter().map(|(_, row)| *row))
        .flatten()
        .flat_map(f32::to_le_bytes)
        .collect();
    write_tensors(folder, &[("embeddings", "F32", &[words.len() + 1, 2], rows)]);
    std::fs::write(folder.join("config.json"), "{\"normalize\": true}").expect("writes");
}

/// Writes a BERT model of two layers with four dimensions into `folder`, of the words `bee`, `drum` and `loud`. The numbers of
/// its tensors follow a rule, so that another program can compute what comes out.
pub fn write_bert(folder: &Path) {
    write_layers(folder, &[]);
}

/// Writes a cross-encoder into `folder`: the model of [`write_bert`] with a head that has `outputs` numbers; 1 in one that ranks.
pub fn write_cross_encoder(folder: &Path, outputs: usize) {
    write_layers(folder, &[("pooler.dense", [4, 4]), ("classifier", [outputs, 4])]);
}

fn write_layers(folder: &Path, head: &[(&str, [usize; 2])]) {
    std::fs::create_dir_all(folder).expect("a folder");
    let vocabulary = json!({ "[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "bee": 3, "drum": 4, "loud": 5 });
    let special = |id: &str, number: u32| json!({ "id": id, "ids": [number], "tokens": [id] });
    let token = |id: &str, kind: u32| json!({ "SpecialToken": { "id": id, "type_id": kind } });
    let text = |id: &str, kind: u32| json!({ "Sequence": { "id": id, "type_id": kind } });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)],
            "pair": [token("[CLS]", 0), text("A", 0), token("[SEP]", 0), text("B", 1), token("[SEP]", 1)],
            "special_tokens": { "[CLS]": special("[CLS]", 1), "[SEP]": special("[SEP]", 2) },
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).expect("writes");
    let config = json!({
        "model_type": "bert", "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 8, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("writes");
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    for (part, rows) in [("word", 6), ("position", 8), ("token_type", 2)] {
        shapes.push((format!("embeddings.{part}_embeddings.weight"), vec![rows, 4]));
    }
    let mut parts = vec![("embeddings.LayerNorm".to_owned(), vec![4])];
    for layer in 0..2 {
        for (part, shape) in [
            ("attention.self.query", vec![4, 4]),
            ("attention.self.key", vec![4, 4]),
            ("attention.self.value", vec![4, 4]),
            ("attention.output.dense", vec![4, 4]),
            ("attention.output.LayerNorm", vec![4]),
            ("intermediate.dense", vec![8, 4]),
            ("output.dense", vec![4, 8]),
            ("output.LayerNorm", vec![4]),
        ] {
            parts.push((format!("encoder.layer.{layer}.{part}"), shape));
        }
    }
    parts.extend(
        head.iter()
            .map(|(part, shape)| ((*part).to_owned(), shape.to_vec())),
    );
    for (part, shape) in parts {
        shapes.push((format!("{part}.weight"), shape.clone()));
        shapes.push((format!("{part}.bias"), vec![shape[0]]));
    }
    let tensors: Vec<(&str, &str, &[usize], Vec<u8>)> = shapes
        .iter()
        .enumerate()
        .map(|(tensor, (name, shape))| {
            let numbers = (0..shape.iter().product::<usize>())
                .map(|number| ((number * 37 + tensor * 11) % 101) as f32 / 101.0 - 0.3);
            (
                name.as_str(),
                "F32",
                shape.as_slice(),
                numbers.flat_map(f32::to_le_bytes).collect(),
            )
        })
        .collect();
    write_tensors(folder, &tensors);
}

/// Writes `model.safetensors`: name, type, shape and bytes of each tensor.
pub fn write_tensors(folder: &Path, tensors: &[(&str, &str, &[usize], Vec<u8>)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(
            (*name).to_owned(),
            json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }),
        );
        data.extend_from_slice(bytes);
    }
    let header = serde_json::to_vec(&header).expect("JSON");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    std::fs::write(folder.join("model.safetensors"), file).expect("writes");
}
