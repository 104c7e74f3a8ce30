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
