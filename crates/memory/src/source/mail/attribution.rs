//! The lines that tell whose words follow: `On Monday, Ada wrote:`, and the headers that Outlook and forwards write.

/// Letters of such a line at most.
const LETTERS_MAX: usize = 300;

/// Lines over which one may be broken.
pub const INTRODUCTION_LINES_MAX: usize = 4;

/// Words of a name at most.
const NAME_WORDS_MAX: usize = 6;

/// Lines of the headers above a quotation at most.
const HEADER_LINES_MAX: usize = 24;

/// `wrote`, in English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Chinese, Japanese, Swedish,
/// Danish and Turkish. Longer forms come first.
const VERBS: [&str; 28] = [
    "wrote",
    "writes",
    "said",
    "schrieb",
    "a écrit",
    "escribió",
    "ha scritto",
    "scrisse",
    "escreveu",
    "schreef",
    "het volgende geschreven",
    "napisał(a)",
    "napisała",
    "napisał",
    "pisze",
    "написал(а)",
    "написала",
    "написал",
    "пишет",
    "写道",
    "寫道",
    "skrev",
    "skriver",
    "şunu yazdı",
    "yazdı",
    "さんは書きました",
    "のメール",
    "a ecrit",
];

/// The first words of such lines.
const BEGINNINGS: [&str; 28] = [
    "on",
    "am",
    "le",
    "el",
    "il",
    "em",
    "op",
    "w",
    "dnia",
    "den",
    "in",
    "at",
    "quoting",
    "zitat",
    "citando",
    "citeren",
    "在",
    "于",
    "tarihinde",
    "giorno",
    "dniu",
    "message",
    "article",
    "von",
    "nachricht",
    "um",
    "kl",
    "vào",
];

/// Words of a date that have no digit.
const DATE_WORDS: [&str; 40] = [
    "am",
    "pm",
    "uhr",
    "um",
    "at",
    "à",
    "às",
    "las",
    "alle",
    "ore",
    "om",
    "o",
    "в",
    "г",
    "de",
    "utc",
    "gmt",
    "cet",
    "cest",
    "pst",
    "pdt",
    "est",
    "edt",
    "bst",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
    "kl",
    "time",
];

/// Words that stand for a person whom they do not name.
const PRONOUNS: [&str; 12] = [
    "you", "he", "she", "they", "i", "du", "sie", "er", "vous", "tu", "usted", "someone",
];

/// Whose words follow, as far as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribution {
    /// `Ada King <ada@bees.example>`, or a part of it.
    pub author: Option<String>,
    /// The time of the words, as it is written.
    pub date: Option<String>,
    /// The subject of the quoted mail.
    pub subject: Option<String>,
    /// Whether it tells a time or an address: a sentence of a text seldom does.
    pub is_certain: bool,
    /// Number of lines that it takes.
    pub lines: usize,
}

/// Finds a line such as `On Monday, Ada King wrote:` at the beginning of `lines`. It may be broken over several.
pub fn introduction(lines: &[&str]) -> Option<Attribution> {
    let first = lines.first()?.trim();
    let begins = |word: &str| {
        let word = word
            .trim_matches(|letter: char| !letter.is_alphanumeric())
            .to_lowercase();
        BEGINNINGS.contains(&word.as_str())
            || DATE_WORDS.contains(&word.as_str())
            || word.starts_with(|letter: char| letter.is_ascii_digit())
    };
    let may_go_on = first.split_whitespace().take(2).any(begins) || first.starts_with(['在', '"', '<']);
    let mut joined = String::new();
    for (at, line) in lines.iter().take(INTRODUCTION_LINES_MAX).enumerate() {
        let line = line.trim();
        if line.is_empty() || joined.len() + line.len() > LETTERS_MAX * 4 {
            return None;
        }
        joined.push_str(line);
        if let Some(found) = of_line(&joined) {
            return Some(Attribution {
                lines: at + 1,
                ..found
            });
        }
        if !may_go_on {
            return None;
        }
        joined.push(' ');
    }
    None
}

fn of_line(line: &str) -> Option<Attribution> {
    let body = line.strip_suffix([':', '：'])?.trim_end();
    if body.chars().count() > LETTERS_MAX {
        return None;
    }
    let address = address(body);
    let has_digit = body.chars().any(|letter| letter.is_ascii_digit());
    let verb = VERBS.iter().find_map(|verb| {
        let at = body.rfind(verb)?;
        let is_word =
            |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphabetic() || !verb.is_ascii());
        let end = at + verb.len();
        (is_word(body[..at].chars().next_back()) && is_word(body[end..].chars().next())).then_some((at, end))
    });
    let is_quoting = ["quoting ", "zitat von ", "citando ", "citeren "]
        .iter()
        .any(|word| body.to_lowercase().starts_with(word));
    let is_dated_address = address.is_some() && has_digit && body.ends_with(['>', ']', ')']);
    if verb.is_none() && !is_quoting && !is_dated_address {
        return None;
    }
    let before_address = address.and_then(|(at, _)| {
        let before = body[..at].trim_end_matches(['<', '(', '[', ' ']);
        named(before)
    });
    let name = before_address.or_else(|| {
        let (at, end) = verb.unwrap_or((body.len(), body.len()));
        named(&body[end..]).or_else(|| named(&body[..at]))
    });
    let name = name.filter(|name| !PRONOUNS.contains(&name.to_lowercase().as_str()));
    let author = written(name, address.map(|(_, address)| address.to_owned()));
    // A sentence that ends so has many more words than a name.
    if author.is_none() && !has_digit && body.split_whitespace().count() > NAME_WORDS_MAX {
        return None;
    }
    Some(Attribution {
        author,
        is_certain: address.is_some() || has_digit,
        lines: 1,
        ..Attribution::default()
    })
}

/// The name in a piece of text beside a date: the words behind the date, or before it.
fn named(text: &str) -> Option<String> {
    let text = text.replace(['，', ','], " , ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let has_digit = |word: &&str| word.chars().any(|letter| letter.is_ascii_digit());
    let last = words.iter().rposition(&has_digit);
    let first = words.iter().position(has_digit);
    let behind = last.map_or(&words[..], |last| &words[last + 1..]);
    let before = first.map_or(&words[..0], |first| &words[..first]);
    [behind, before].into_iter().find_map(cleaned)
}

/// A name without the words of a date and of the sentence around it.
fn cleaned(words: &[&str]) -> Option<String> {
    let plain = |word: &str| {
        word.trim_matches(|letter: char| !letter.is_alphanumeric())
            .to_lowercase()
    };
    let is_noise = |word: &&&str| {
        let plain = plain(word);
        plain.is_empty()
            || DATE_WORDS.contains(&plain.as_str())
            || BEGINNINGS.contains(&plain.as_str())
            || VERBS.contains(&plain.as_str())
            || **word == "*"
    };
    let end = words.len() - words.iter().rev().take_while(is_noise).count();
    let begin = words[..end].iter().take_while(is_noise).count();
    let mut words = &words[begin..end];
    // A comma within the rest divides a date from a name.
    if let Some(comma) = words.iter().rposition(|word| *word == ",") {
        words = &words[comma + 1..];
    }
    let name = words.join(" ");
    let name = name.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '.' && letter != ')');
    let name = name.trim_end_matches(['(', '<', '[', '"', ' ']);
    let is_name = !name.is_empty() && words.len() <= NAME_WORDS_MAX && name.chars().any(char::is_alphabetic);
    is_name.then(|| name.to_owned())
}

/// The last address in a text, and the place at which it begins.
fn address(text: &str) -> Option<(usize, &str)> {
    let at = text.rfind('@')?;
    let is_letter = |letter: char| letter.is_alphanumeric() || "._-+=/'".contains(letter);
    let begin = text[..at]
        .char_indices()
        .rev()
        .take_while(|(_, letter)| is_letter(*letter))
        .last()?
        .0;
    let domain: usize = text[at + 1..]
        .chars()
        .take_while(|letter| is_letter(*letter))
        .map(char::len_utf8)
        .sum();
    (domain > 0).then(|| (begin, text[begin..at + 1 + domain].trim_end_matches('.')))
}

/// Writes a name and an address as the readers of mail do.
pub fn written(name: Option<String>, address: Option<String>) -> Option<String> {
    match (name, address) {
        (Some(name), Some(address)) if name != address => Some(format!("{name} <{address}>")),
        (_, Some(address)) => Some(address),
        (name, None) => name,
    }
}

/// The names of a header, in the languages of [`VERBS`].
struct Labels {
    from: &'static [&'static str],
    date: &'static [&'static str],
    subject: &'static [&'static str],
    other: &'static [&'static str],
}

const LABELS: Labels = Labels {
    from: &[
        "from",
        "von",
        "de",
        "da",
        "van",
        "od",
        "от",
        "от кого",
        "发件人",
        "寄件者",
        "差出人",
        "från",
        "fra",
        "kimden",
        "보낸 사람",
        "expéditeur",
        "remitente",
        "mittente",
        "remetente",
        "afzender",
    ],
    date: &[
        "sent",
        "date",
        "gesendet",
        "datum",
        "envoyé",
        "enviado",
        "enviado el",
        "enviada em",
        "enviada",
        "fecha",
        "inviato",
        "data",
        "verzonden",
        "wysłano",
        "wysłane",
        "отправлено",
        "дата",
        "发送时间",
        "日期",
        "傳送時間",
        "送信日時",
        "日付",
        "skickat",
        "sendt",
        "gönderildi",
        "tarih",
        "보낸 날짜",
    ],
    subject: &[
        "subject",
        "betreff",
        "objet",
        "asunto",
        "oggetto",
        "assunto",
        "onderwerp",
        "temat",
        "тема",
        "主题",
        "主旨",
        "件名",
        "ämne",
        "emne",
        "konu",
        "제목",
    ],
    other: &[
        "to",
        "cc",
        "bcc",
        "reply-to",
        "importance",
        "attachments",
        "an",
        "à",
        "para",
        "a",
        "aan",
        "do",
        "dw",
        "кому",
        "копия",
        "收件人",
        "收件者",
        "抄送",
        "副本",
        "宛先",
        "till",
        "til",
        "kime",
        "bilgi",
        "받는 사람",
        "kopie",
        "message",
        "message-id",
        "in-reply-to",
        "references",
        "content-type",
        "mime-version",
        "user-agent",
    ],
};

/// Finds the headers of a quoted mail at the beginning of `lines`: `From: …`, `Sent: …`, `To: …`, `Subject: …`. Below a banner, they
/// may stand in any order.
pub fn headers(lines: &[&str], is_below_banner: bool) -> Option<Attribution> {
    let label = |line: &str| -> Option<(String, String)> {
        let line = line.trim().trim_start_matches('*');
        let (label, value) = line.split_once([':', '：'])?;
        let label = label.trim().trim_matches('*').trim().to_lowercase();
        Some((label, value.trim().trim_start_matches('*').trim().to_owned()))
    };
    let is = |labels: &[&str], found: &str| labels.contains(&found);
    let (first, _) = label(lines.first()?)?;
    if !is(LABELS.from, &first) && !is_below_banner {
        return None;
    }
    let (mut from, mut date, mut subject) = (None, None, None);
    let mut others = 0;
    let mut count = 0;
    for line in lines.iter().take(HEADER_LINES_MAX + 1) {
        if line.trim().is_empty() {
            break;
        }
        count += 1;
        match label(line) {
            Some((found, value)) if from.is_none() && is(LABELS.from, &found) => from = Some(value),
            Some((found, value)) if is(LABELS.date, &found) => {
                others += 1;
                date = Some(value);
            }
            Some((found, value)) if is(LABELS.subject, &found) => {
                others += 1;
                subject = Some(value);
            }
            Some((found, _)) if is(LABELS.other, &found) => others += 1,
            // A long list of recipients goes on in the next line.
            _ if others == 0 => return None,
            _ => {}
        }
    }
    let value = from.filter(|from| !from.is_empty())?;
    if others < 2 {
        return None;
    }
    let address = address(&value).map(|(_, address)| address.to_owned());
    let name = value.split(['<', '[', '(']).next().unwrap_or_default();
    let name = name.trim().trim_matches(['"', '\'']).trim();
    let name = (!name.is_empty()).then(|| name.to_owned());
    Some(Attribution {
        author: written(name, address),
        date,
        subject: subject.filter(|subject| !subject.is_empty()),
        is_certain: true,
        lines: count,
    })
}

/// Whether a line stands alone above the headers of a quoted mail: `-----Original Message-----`, a rule, or
/// `Begin forwarded message:`.
pub fn is_banner(line: &str) -> bool {
    let line = line.trim();
    let rule = |letter: char| line.len() >= 20 && line.chars().all(|found| found == letter);
    is_titled(line)
        || rule('_')
        || rule('-')
        || line.ends_with(':') && line.to_lowercase().contains("forwarded message")
        || [
            "Anfang der weitergeleiteten Nachricht:",
            "Début du message réexpédié :",
            "Inizio messaggio inoltrato:",
        ]
        .contains(&line)
}

/// Whether a line has a title between dashes.
pub fn is_titled(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("----") && line.ends_with("----") && line.chars().any(char::is_alphabetic)
}

/// Whether a line stands alone behind a forwarded mail: `----- End forwarded message -----`.
pub fn is_end(line: &str) -> bool {
    let line = line.trim();
    is_titled(line)
        && line.to_lowercase().split_whitespace().any(|word| {
            [
                "end",
                "ende",
                "fin",
                "fine",
                "fim",
                "einde",
                "slut",
                "koniec",
                "конец",
            ]
            .contains(&word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: &str = "Ada King <ada@bees.example>";

    #[test]
    fn introductions_of_many_programs_name_the_author() {
        for line in [
            "On Mon, Mar 4, 2024 at 10:12 AM Ada King <ada@bees.example> wrote:",
            "On 04/03/2024 10:12, Ada King <ada@bees.example> wrote:",
            "On Mon, 4 Mar 2024 10:12:00 +0100, Ada King <ada@bees.example> wrote:",
            "Am Mo., 4. März 2024 um 10:12 Uhr schrieb Ada King <ada@bees.example>:",
            "Le lun. 4 mars 2024 à 10:12, Ada King <ada@bees.example> a écrit :",
            "El lun, 4 mar 2024 a las 10:12, Ada King (<ada@bees.example>) escribió:",
            "Il giorno lun 4 mar 2024 alle ore 10:12 Ada King <ada@bees.example> ha scritto:",
            "Em seg., 4 de mar. de 2024 às 10:12, Ada King <ada@bees.example> escreveu:",
            "Op ma 4 mrt 2024 om 10:12 schreef Ada King <ada@bees.example>:",
            "pon., 4 mar 2024 o 10:12 Ada King <ada@bees.example> napisał(a):",
            "пн, 4 мар. 2024 г. в 10:12, Ada King <ada@bees.example>:",
            "Ada King <ada@bees.example> 于2024年3月4日周一 10:12写道：",
            "2024年3月4日(月) 10:12 Ada King <ada@bees.example>:",
            "Ada King <ada@bees.example>, 4 Mar 2024 Pzt, 10:12 tarihinde şunu yazdı:",
            "Den mån 4 mars 2024 kl 10:12 skrev Ada King <ada@bees.example>:",
            "Quoting Ada King <ada@bees.example>:",
            "* Ada King <ada@bees.example> [2024-03-04 10:12]:",
            "\"Ada King\" <ada@bees.example> writes:",
        ] {
            let found = introduction(&[line]).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(found.author.as_deref(), Some(ADA), "{line}");
        }
        for line in [
            "Ada King wrote:",
            "On Monday Ada King wrote:",
            "Am 04.03.24 um 10:12 schrieb Ada King:",
            "Ada King schrieb am 04.03.24 um 10:12:",
            "On 2024-03-04, Ada King wrote:",
        ] {
            let found = introduction(&[line]).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(found.author.as_deref(), Some("Ada King"), "{line}");
        }
        let broken = [
            "On Mon, Mar 4, 2024 at 10:12 AM Ada King",
            "<ada@bees.example> wrote:",
        ];
        let found = introduction(&broken).expect("two lines");
        assert_eq!((found.author.as_deref(), found.lines), (Some(ADA), 2));
        for line in [
            "Bees hum:",
            "He said",
            "This is what the old book of the bees of London said:",
            "12:30:",
            "",
        ] {
            let found = introduction(&[line]);
            assert!(found.is_none(), "{line}: {found:?}");
        }
    }

    #[test]
    fn headers_of_many_programs_name_the_author() {
        for headers_of in [
            "From: Ada King <ada@bees.example>\nSent: Monday, March 4, 2024 10:12 AM\nTo: Bob\nSubject: Bees",
            "*From:* Ada King <ada@bees.example>\n*Sent:* Monday\n*To:* Bob\n*Subject:* Bees",
            "Von: Ada King <ada@bees.example>\nGesendet: Montag, 4. März 2024 10:12\nAn: Bob\nBetreff: Bienen",
            "De : Ada King <ada@bees.example>\nEnvoyé : lundi 4 mars 2024\nÀ : Bob\nObjet : Abeilles",
            "发件人: Ada King <ada@bees.example>\n发送时间: 2024年3月4日\n收件人: Bob\n主题: 蜜蜂",
            "From: Ada King [mailto:ada@bees.example]\nSent: Monday\nTo: Bob;\n   Cleo\nSubject: x\n",
        ] {
            let lines: Vec<&str> = headers_of.lines().collect();
            let found = headers(&lines, false).unwrap_or_else(|| panic!("{headers_of}"));
            assert_eq!(
                (found.author.as_deref(), found.lines),
                (Some(ADA), lines.len()),
                "{headers_of}"
            );
        }
        for text in [
            "From: the beginning\nbees hummed.",
            "From: x",
            "To: a\nFrom: b\nSubject: c",
        ] {
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(headers(&lines, false), None, "{text}");
        }
        let any_order = [
            "Date: Monday",
            "From: Ada King <ada@bees.example>",
            "To: Bob",
            "Subject: Re: Bees",
            "",
            "x",
        ];
        let found = headers(&any_order, true).expect("headers below a banner");
        assert_eq!((found.author.as_deref(), found.lines), (Some(ADA), 4));
        assert_eq!(found.subject.as_deref(), Some("Re: Bees"));
        for text in [
            "Date: Monday\nTo: Bob\nSubject: x",
            "They hum.\nFrom: x\nTo: y\nSubject: z",
        ] {
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(headers(&lines, true), None, "{text}");
        }
        assert!(
            is_end("----- End forwarded message -----")
                && is_end("----- Ende der weitergeleiteten Nachricht -----")
        );
        assert!(!is_end("----- The weekend -----") && !is_end("End"));
    }
}
