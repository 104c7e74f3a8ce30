//! The encoding of a mail's texts: as its label says, or as the bytes themselves show.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Share of bytes beyond ASCII from which a text is taken for one of another script than Latin. German and French texts
/// have a few percent of them, and Cyrillic or Chinese ones far more than half.
const FOREIGN_SHARE_MIN: f64 = 0.3;

/// Decodes a text. `label` is the name that its mail gives to the encoding.
///
/// Valid UTF-8 is UTF-8, whatever the label says: texts in other encodings are not valid by chance. Where the label is
/// unknown, does not fit the bytes, or is the default of a program that knew no better, the bytes decide.
pub fn decode(bytes: &[u8], label: Option<&str>) -> String {
    let labelled = label.and_then(|label| Encoding::for_label(label.trim().as_bytes()));
    let is_stateful = labelled.is_some_and(|encoding| !encoding.is_ascii_compatible());
    if !is_stateful && let Ok(text) = std::str::from_utf8(bytes) {
        return text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
    }
    if let Some(encoding) = labelled.filter(|encoding| *encoding != UTF_8) {
        let (text, _, has_errors) = encoding.decode(bytes);
        let is_default = encoding == WINDOWS_1252;
        let is_wrong = has_errors || text.chars().any(is_control) || (is_default && is_foreign(bytes));
        if !is_wrong {
            return text.into_owned();
        }
    }
    if is_damaged_utf_8(bytes) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let (text, _, _) = guess(bytes).decode(bytes);
    text.into_owned()
}

/// Whether bytes are UTF-8 but for a few: the end of a text that was cut within a letter, or damage.
fn is_damaged_utf_8(bytes: &[u8]) -> bool {
    let (mut letters, mut wrong) = (0, 0);
    for piece in bytes.utf8_chunks() {
        letters += piece.valid().chars().filter(|letter| !letter.is_ascii()).count();
        wrong += usize::from(!piece.invalid().is_empty());
    }
    letters > wrong
}

/// Whether a text labelled as Western is in an encoding of another script.
fn is_foreign(bytes: &[u8]) -> bool {
    let letters = bytes
        .iter()
        .filter(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
    let foreign = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    foreign as f64 >= letters.count() as f64 * FOREIGN_SHARE_MIN && guess(bytes) != WINDOWS_1252
}

/// Whether a decoded letter shows that the encoding is another one.
fn is_control(letter: char) -> bool {
    ('\u{80}'..'\u{a0}').contains(&letter)
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use encoding_rs::{GBK, KOI8_R, WINDOWS_1251};

    use super::*;

    #[test]
    fn labels_and_bytes_decide() {
        let russian = "Пчёлы жужжат весь день, и никто не знает почему.";
        let chinese = "蜜蜂整天嗡嗡作响，没有人知道为什么。";
        let german = "Bienen summen für König Öttinger – „schön“.";
        for (text, encoding, label) in [
            (russian, WINDOWS_1251, Some("windows-1251")),
            (russian, WINDOWS_1251, Some("iso-8859-1")),
            (russian, WINDOWS_1251, Some("us-ascii")),
            (russian, WINDOWS_1251, None),
            (russian, KOI8_R, Some("koi8-r")),
            (russian, UTF_8, Some("iso-8859-1")),
            (russian, UTF_8, Some("x-unknown")),
            (chinese, GBK, Some("gb2312")),
            (chinese, GBK, Some("iso-8859-1")),
            (chinese, GBK, Some("utf-8")),
            (german, WINDOWS_1252, Some("iso-8859-1")),
            (german, WINDOWS_1252, Some("utf-8")),
            (german, WINDOWS_1252, None),
            (german, UTF_8, None),
        ] {
            let (bytes, _, _) = encoding.encode(text);
            assert_eq!(decode(&bytes, label), text, "{} as {label:?}", encoding.name());
        }
        let japanese = "蜂がぶんぶん";
        let (bytes, _, _) = encoding_rs::ISO_2022_JP.encode(japanese);
        assert_eq!(decode(&bytes, Some("iso-2022-jp")), japanese);
        assert_eq!(decode(&bytes, None), String::from_utf8_lossy(&bytes));
    }
}
