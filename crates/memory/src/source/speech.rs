//! The JSON of programs that recognise speech: Whisper and WhisperX, whisper.cpp, AssemblyAI, Deepgram, Amazon Transcribe.

use serde_json::Value;

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Cue, messages, turns, written_name};

/// Whether the first bytes of a JSON text are recognised speech.
pub fn is_speech(beginning: &str) -> bool {
    let has = |part: &str| beginning.contains(part);
    (has("\"segments\"") && has("\"start\"") && has("\"end\""))
        || (has("\"transcription\"") && has("\"offsets\""))
        || (has("\"utterances\"") && has("\"start\""))
        || (has("\"words\"") && has("\"start\"") && has("\"confidence\""))
        || (has("\"channels\"") && has("\"alternatives\"") && has("\"transcript\""))
        || (has("\"transcripts\"") && has("\"items\""))
}

/// Reads the messages of recognised speech. Words and their confidence are left out where there are sentences.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not JSON, or none that these programs write.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let document: Value = serde_json::from_str(text).map_err(|error| {
        MemoryError::invalid(
            format!("{name}, line {}", error.line().max(1)),
            format!("it is not JSON: {error}"),
        )
    })?;
    let cues = cues(&document).ok_or_else(|| {
        MemoryError::invalid(
            name,
            "it has no segments, utterances or words with times, as programs that recognise speech write them",
        )
    })?;
    Ok(messages(turns(cues), options))
}

fn cues(document: &Value) -> Option<Vec<Cue>> {
    let list = |value: &Value| value.as_array().filter(|list| !list.is_empty()).cloned();
    let results = &document["results"];
    // AssemblyAI counts milliseconds, and so does whisper.cpp; the others count seconds.
    if let Some(utterances) = list(&document["utterances"]) {
        return Some(utterances.iter().filter_map(|part| cue(part, 1.0)).collect());
    }
    if let Some(segments) = list(&document["segments"]) {
        return Some(segments.iter().filter_map(|part| cue(part, 1_000.0)).collect());
    }
    if let Some(parts) = list(&document["transcription"]) {
        let parts = parts.iter().filter_map(|part| {
            let times = (part["offsets"]["from"].as_f64()?, part["offsets"]["to"].as_f64()?);
            Some(timed(times.0, times.1, None, part["text"].as_str()?))
        });
        return Some(parts.collect());
    }
    if let Some(utterances) = list(&results["utterances"]) {
        return Some(utterances.iter().filter_map(|part| cue(part, 1_000.0)).collect());
    }
    if let Some(channels) = list(&results["channels"]) {
        let mut found = Vec::new();
        for (number, channel) in channels.iter().enumerate() {
            let speaker = (channels.len() > 1).then(|| format!("Channel {}", number + 1));
            found.extend(words(
                &channel["alternatives"][0]["words"],
                1_000.0,
                speaker.as_deref(),
            ));
        }
        found.sort_by_key(|cue| cue.start_ms);
        return Some(found);
    }
    if let Some(items) = list(&results["items"]) {
        return Some(spoken_items(&items));
    }
    list(&document["words"]).map(|list| words(&Value::Array(list), 1.0, None))
}

/// The words of a sentence with its times, in units of so many milliseconds.
fn cue(part: &Value, unit_ms: f64) -> Option<Cue> {
    let text = part["text"].as_str().or_else(|| part["transcript"].as_str())?;
    let start = part["start"].as_f64()? * unit_ms;
    let end = part["end"].as_f64().map_or(start, |end| end * unit_ms);
    Some(timed(start, end, speaker(&part["speaker"]), text))
}

fn timed(start_ms: f64, end_ms: f64, speaker: Option<String>, text: &str) -> Cue {
    Cue {
        start_ms: start_ms.round() as i64,
        end_ms: end_ms.round() as i64,
        speaker,
        lines: Some(text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .into_iter()
            .collect(),
    }
}

/// A speaker is a name, a letter (`A`), or a number.
fn speaker(value: &Value) -> Option<String> {
    match value {
        Value::String(name) if name.chars().count() <= 2 => Some(format!("Speaker {name}")),
        Value::String(name) => Some(written_name(name)).filter(|name| !name.is_empty()),
        Value::Number(number) => Some(format!("Speaker {number}")),
        _ => None,
    }
}

/// Single words of a list.
fn words(list: &Value, unit_ms: f64, channel: Option<&str>) -> Vec<Cue> {
    let words = list.as_array().into_iter().flatten().filter_map(|word| {
        let text = ["punctuated_word", "text", "word"]
            .iter()
            .find_map(|field| word[*field].as_str())?;
        let (start, end) = (word["start"].as_f64()?, word["end"].as_f64()?);
        let speaker = speaker(&word["speaker"]).or_else(|| channel.map(str::to_owned));
        Some(timed(start * unit_ms, end * unit_ms, speaker, text))
    });
    words.collect()
}

/// The items of Amazon Transcribe: words with times as texts, and punctuation without times.
fn spoken_items(items: &[Value]) -> Vec<Cue> {
    let mut cues: Vec<Cue> = Vec::new();
    for item in items {
        let Some(text) = item["alternatives"][0]["content"].as_str() else {
            continue;
        };
        let time = |field: &str| Some(item[field].as_str()?.parse::<f64>().ok()? * 1_000.0);
        match (
            time("start_time"),
            cues.last_mut().and_then(|cue| cue.lines.last_mut()),
        ) {
            (Some(start_ms), _) => {
                let end_ms = time("end_time").unwrap_or(start_ms);
                cues.push(timed(start_ms, end_ms, speaker(&item["speaker_label"]), text));
            }
            (None, Some(word)) => word.push_str(text),
            (None, None) => {}
        }
    }
    cues
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<(Option<String>, String)> {
        assert!(is_speech(text), "{text}");
        let messages = read("talk.json", text, &ReadOptions::default()).expect("speech");
        messages
            .into_iter()
            .map(|message| (message.speaker.clone(), message.text()))
            .collect()
    }

    #[test]
    fn reads_the_shapes_of_programs() {
        let both = [
            (Some("Speaker A".to_owned()), "Do they hum?".to_owned()),
            (Some("Speaker B".to_owned()), "All day.".to_owned()),
        ];
        let whisper = r#"{"text": " Bees hum. They drum.", "segments": [{"id": 0, "start": 0.0, "end": 2.5, "text": " Bees hum."},
            {"id": 1, "start": 2.5, "end": 4.0, "text": " They drum."}], "language": "en"}"#;
        assert_eq!(said(whisper), [(None, "Bees hum. They drum.".to_owned())]);
        let whisperx = r#"{"segments": [{"start": 0.0, "end": 2.5, "text": " Do they hum?", "speaker": "A", "words": []},
            {"start": 2.5, "end": 4.0, "text": " All day.", "speaker": "B"}]}"#;
        assert_eq!(said(whisperx), both);
        let cpp = r#"{"systeminfo": "x", "transcription": [{"timestamps": {"from": "00:00:00,000", "to": "00:00:02,000"},
            "offsets": {"from": 0, "to": 2000}, "text": " Bees hum."}]}"#;
        assert_eq!(said(cpp), [(None, "Bees hum.".to_owned())]);
        let assembly = r#"{"id": "1", "text": "x", "utterances": [{"speaker": "A", "start": 250, "end": 2500, "text": "Do they hum?",
            "confidence": 0.9}, {"speaker": "B", "start": 2600, "end": 4000, "text": "All day."}]}"#;
        assert_eq!(said(assembly), both);
        let deepgram = r#"{"results": {"channels": [{"alternatives": [{"transcript": "x", "confidence": 0.9, "words": [
            {"word": "do", "punctuated_word": "Do", "start": 0.1, "end": 0.2, "speaker": 0}, {"word": "they",
                "punctuated_word": "they?", "start": 0.2, "end": 0.4, "speaker": 0}, {"word": "yes", "punctuated_word": "Yes.",
                    "start": 0.5, "end": 0.6, "speaker": 1}]}]}]}}"#;
        assert_eq!(
            said(deepgram),
            [
                (Some("Speaker 0".to_owned()), "Do they?".to_owned()),
                (Some("Speaker 1".to_owned()), "Yes.".to_owned())
            ]
        );
        let amazon = r#"{"jobName": "x", "results": {"transcripts": [{"transcript": "Bees."}], "items": [
            {"type": "pronunciation", "start_time": "0.1", "end_time": "0.5", "speaker_label": "spk_0",
                "alternatives": [{"content": "Bees", "confidence": "0.9"}]}, {"type": "punctuation",
                    "alternatives": [{"content": "."}]}]}}"#;
        assert_eq!(said(amazon), [(Some("spk_0".to_owned()), "Bees.".to_owned())]);
        let error = read("talk.json", "{}", &ReadOptions::default())
            .expect_err("no speech")
            .to_string();
        assert!(error.starts_with("talk.json: it has no segments"), "{error}");
    }
}
