//! TTML and its profiles (DFXP, IMSC): paragraphs with the times of XML attributes.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Cue, messages, turns};

use super::milliseconds;

/// The frames and ticks of a second in a document that names none.
const FRAMES_DEFAULT: f64 = 30.0;

/// Whether a text is TTML: its root is `tt`.
pub fn is_ttml(beginning: &str) -> bool {
    let text = beginning.trim_start();
    text.starts_with('<')
        && (text.contains("<tt ") || text.contains("<tt>") || text.contains("<tt:tt"))
        && text.contains("/ns/ttml")
}

/// The units of times in a document.
struct Clock {
    frames: f64,
    ticks: f64,
}

/// Reads the messages of the subtitles.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not XML.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    let mut reader = Reader::from_str(text);
    let mut clock = Clock {
        frames: FRAMES_DEFAULT,
        ticks: 1.0,
    };
    let mut cues: Vec<Cue> = Vec::new();
    // The paragraph that is open.
    let mut open: Option<Cue> = None;
    loop {
        let event = reader.read_event().map_err(|error| {
            let before = text
                .get(..usize::try_from(reader.buffer_position()).unwrap_or(0))
                .unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            MemoryError::invalid(format!("{name}, line {line}"), format!("it is not XML: {error}"))
        })?;
        match event {
            Event::Eof => break,
            Event::Start(start) => match start.local_name().as_ref() {
                "tt" => clock = Clock::of(&start),
                "p" => open = Some(paragraph(&start, &clock)),
                _ => {}
            },
            Event::Empty(empty) => {
                if empty.local_name().as_ref() == "br"
                    && let Some(cue) = &mut open
                {
                    cue.lines.push(String::new());
                }
            }
            Event::Text(words) => {
                if let Some(cue) = &mut open {
                    push(cue, &words);
                }
            }
            Event::CData(words) => {
                if let Some(cue) = &mut open {
                    push(cue, &words);
                }
            }
            Event::GeneralRef(entity) => {
                let name = entity.to_string();
                if let (Some(cue), Some(letter)) = (&mut open, super::entity_text(&name)) {
                    push(cue, &letter);
                }
            }
            Event::End(end) if end.local_name().as_ref() == "p" => {
                if let Some(mut cue) = open.take() {
                    let lines = cue
                        .lines
                        .iter()
                        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
                    cue.lines = lines.filter(|line| !line.is_empty()).collect();
                    cues.push(cue);
                }
            }
            _ => {}
        }
    }
    cues.sort_by_key(|cue| cue.start_ms);
    Ok(messages(turns(cues), options))
}

fn push(cue: &mut Cue, words: &str) {
    match cue.lines.last_mut() {
        Some(line) => line.push_str(words),
        None => cue.lines.push(words.to_owned()),
    }
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = start.attributes().flatten();
    let found = attributes.find(|attribute| attribute.key.local_name().as_ref() == name)?;
    Some(found.value.into_owned())
}

fn paragraph(start: &BytesStart<'_>, clock: &Clock) -> Cue {
    let time = |name: &str| attribute(start, name).and_then(|text| clock.milliseconds(text.trim()));
    let start_ms = time("begin").unwrap_or(0);
    let end_ms = time("end")
        .or_else(|| Some(start_ms.saturating_add(time("dur")?)))
        .unwrap_or(start_ms);
    Cue {
        start_ms,
        end_ms,
        speaker: None,
        lines: Vec::new(),
    }
}

impl Clock {
    fn of(root: &BytesStart<'_>) -> Clock {
        let number = |name: &str| {
            attribute(root, name)?
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|rate| *rate >= 1.0)
        };
        let frames = number("frameRate").unwrap_or(FRAMES_DEFAULT);
        let multiplier = attribute(root, "frameRateMultiplier").and_then(|text| {
            let (over, under) = text.trim().split_once([' ', ':'])?;
            Some(over.parse::<f64>().ok()? / under.parse::<f64>().ok().filter(|under| *under > 0.0)?)
        });
        Clock {
            frames: frames * multiplier.unwrap_or(1.0),
            ticks: number("tickRate").unwrap_or(1.0),
        }
    }

    /// Parses `00:01:02.500`, `00:01:02:12` (with frames), `62.5s`, `62500ms`, `1500f` or `10000000t`.
    fn milliseconds(&self, text: &str) -> Option<i64> {
        let units = [
            ("ms", 1.0),
            ("h", 3_600_000.0),
            ("m", 60_000.0),
            ("s", 1_000.0),
            ("f", 1_000.0 / self.frames),
            ("t", 1_000.0 / self.ticks),
        ];
        for (unit, factor) in units {
            if let Some(number) = text.strip_suffix(unit) {
                let number: f64 = number.parse().ok()?;
                return number.is_finite().then_some((number * factor).round() as i64);
            }
        }
        match text
            .rsplit_once(':')
            .filter(|(clock, _)| clock.matches(':').count() == 2)
        {
            Some((clock, frames)) => {
                let frames: f64 = frames.parse().ok()?;
                let frames_ms = frames
                    .is_finite()
                    .then_some((frames / self.frames * 1_000.0).round() as i64)?;
                milliseconds(clock)?.checked_add(frames_ms)
            }
            None => milliseconds(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::Timestamp;

    use super::*;

    #[test]
    fn reads_paragraphs() {
        let text = "<?xml version=\"1.0\"?>\n<tt xml:lang=\"en\" xmlns=\"http://www.w3.org/ns/ttml\" \
            xmlns:ttp=\"http://www.w3.org/ns/ttml#parameter\" ttp:frameRate=\"25\"><body><div>\n\
            <p begin=\"00:00:01.000\" end=\"00:00:02.000\">Bees <span>hum</span> &amp;<br/>drum.</p>\n\
            <p begin=\"00:00:40:05\" dur=\"1.5s\">Later.</p></div></body></tt>";
        assert!(is_ttml(text));
        let options = ReadOptions {
            recorded_at: Some(Timestamp(0)),
            ..ReadOptions::default()
        };
        let found: Vec<(String, i64)> = read("x.ttml", text, &options)
            .expect("XML")
            .iter()
            .map(|message| (message.text(), message.moment.map_or(0, |moment| moment.at.0)))
            .collect();
        assert_eq!(
            found,
            [
                ("Bees hum & drum.".to_owned(), 1_000),
                ("Later.".to_owned(), 40_200)
            ]
        );
        let error = read("x.ttml", "<tt>\n<p></tt>", &options)
            .expect_err("no XML")
            .to_string();
        assert!(error.starts_with("x.ttml, line "), "{error}");
    }
}
