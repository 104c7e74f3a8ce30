//! The texts of a mail, out of its MIME parts.

use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;
use mail_parser::{ContentType, Encoding, Message, MessagePart, MimeHeaders, PartType};

use super::{calendar, charset, flowed, html};

/// Depth of multiparts in multiparts at most. Deeper ones are not read.
const DEPTH_MAX: usize = 32;

/// The readable parts of a mail.
#[derive(Debug, Default)]
pub struct Parts {
    /// The texts, in order.
    pub texts: Vec<String>,
    /// The bytes of the attached mails.
    pub mails: Vec<Vec<u8>>,
    /// Whether a part is encrypted.
    pub is_encrypted: bool,
}

impl Parts {
    /// Finds the readable parts of a mail: all texts but those of attached files, invitations, and attached mails.
    pub fn of(mail: &Message<'_>) -> Parts {
        let mut parts = Parts::default();
        parts.add(mail, 0, 0);
        parts
    }

    /// The texts together.
    pub fn text(&self) -> String {
        self.texts.join("\n\n")
    }

    fn add(&mut self, mail: &Message<'_>, id: u32, depth: usize) {
        let Some(part) = mail.part(id).filter(|_| depth < DEPTH_MAX) else {
            return;
        };
        let kind = kind(part);
        match &part.body {
            PartType::Multipart(inner) if kind == "multipart/alternative" => {
                self.add_best(mail, inner, depth)
            }
            PartType::Multipart(inner) => {
                // A signature and the like stand behind the text that they are for.
                let inner = match kind.as_str() {
                    "multipart/signed" => inner.get(..1).unwrap_or_default(),
                    "multipart/encrypted" => {
                        self.is_encrypted = true;
                        &[]
                    }
                    _ => inner,
                };
                inner.iter().for_each(|&id| self.add(mail, id, depth + 1));
            }
            PartType::Message(_) => self.mails.extend(bytes(mail, part)),
            PartType::Text(_) | PartType::Html(_) if is_read(part, &kind) => {
                let text = text(mail, part, &kind);
                if !text.trim().is_empty() {
                    self.texts.push(text);
                }
            }
            PartType::Binary(_) | PartType::InlineBinary(_) | PartType::Text(_) | PartType::Html(_) => {}
        }
    }

    /// Adds one of several forms of the same text: the plain one, or else the last that has any, and invitations in any
    /// case.
    fn add_best(&mut self, mail: &Message<'_>, forms: &[u32], depth: usize) {
        let read = forms.iter().map(|&id| {
            let mut form = Parts::default();
            form.add(mail, id, depth + 1);
            let kind = mail.part(id).map(kind).unwrap_or_default();
            (kind, form)
        });
        let (invitations, mut forms): (Vec<_>, Vec<_>) = read.partition(|(kind, _)| kind == "text/calendar");
        let has_text = |form: &Parts| !form.texts.is_empty();
        let plain = forms
            .iter()
            .position(|(kind, form)| kind == "text/plain" && has_text(form));
        let best = plain.or_else(|| forms.iter().rposition(|(_, form)| has_text(form)));
        let best = best.map(|best| forms.swap_remove(best).1);
        for form in best
            .into_iter()
            .chain(invitations.into_iter().map(|(_, form)| form))
        {
            self.texts.extend(form.texts);
            self.mails.extend(form.mails);
        }
    }
}

/// The type of a part in lower case: `text/plain`.
fn kind(part: &MessagePart<'_>) -> String {
    let Some(kind) = part.content_type() else {
        return match &part.body {
            PartType::Html(_) => "text/html".to_owned(),
            _ => "text/plain".to_owned(),
        };
    };
    format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("plain")).to_lowercase()
}

/// Whether a text is one of the mail itself, and not a file that is attached.
fn is_read(part: &MessagePart<'_>, kind: &str) -> bool {
    let is_attached = part.content_disposition().is_some_and(ContentType::is_attachment);
    match kind {
        "text/plain" | "text/html" | "text/enriched" | "text/markdown" => !is_attached,
        "text/calendar" => true,
        // Reports about mails, cards of persons, patches and the like are no text that anyone said.
        _ => false,
    }
}

/// The content of a part, in its own encoding.
fn bytes(mail: &Message<'_>, part: &MessagePart<'_>) -> Option<Vec<u8>> {
    let range = part.raw_body_offset() as usize..part.raw_end_offset() as usize;
    let raw = mail.raw_message().get(range)?;
    match part.encoding {
        Encoding::None => Some(raw.to_vec()),
        Encoding::QuotedPrintable => quoted_printable_decode(raw),
        Encoding::Base64 => base64_decode(raw),
    }
}

fn text(mail: &Message<'_>, part: &MessagePart<'_>, kind: &str) -> String {
    let content_type = part.content_type();
    let attribute = |name| content_type.and_then(|kind| kind.attribute(name));
    let bytes = bytes(mail, part);
    let text = match bytes {
        Some(bytes) => charset::decode(&bytes, attribute("charset")),
        // What is broken is read as far as the parser can.
        None => part.text_contents().unwrap_or_default().to_owned(),
    };
    match kind {
        "text/html" => html::to_text(&text),
        "text/calendar" => calendar::to_text(&text),
        _ if attribute("format").is_some_and(|format| format.eq_ignore_ascii_case("flowed")) => {
            let deletes_space = attribute("delsp").is_some_and(|delsp| delsp.eq_ignore_ascii_case("yes"));
            flowed::unwrapped(&text, deletes_space)
        }
        _ => text,
    }
}
