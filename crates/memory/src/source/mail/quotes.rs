//! The words of a mail, each with the person who wrote them: its sender, or someone who is quoted.

use super::attribution::{
    Attribution, INTRODUCTION_LINES_MAX, headers, introduction, is_banner, is_end, is_titled,
};

/// Depth of quotations at most. Deeper ones count as this deep.
const DEPTH_MAX: usize = 32;

/// Lines of a signature behind a line `--` without its blank at most. Behind more, the line is part of a text.
const SIGNATURE_LINES_MAX: usize = 12;

/// Forwarded mails in forwarded mails at most whose ends are looked for.
const FORWARDS_MAX: usize = 8;

/// Lines behind a rule in which the footer of a mailing list names itself.
const FOOTER_LINES: usize = 4;

/// Words of one person in a mail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    /// Who is said to have written them; `None` for the sender of the mail and for quotations without a name.
    pub author: Option<String>,
    /// The time of the words, as the mail writes it.
    pub date: Option<String>,
    /// The subject of the quoted mail.
    pub subject: Option<String>,
    /// The depth of the quotation: 0 for the words of the sender.
    pub depth: usize,
    /// The words, without the marks of quotations.
    pub text: String,
}

/// Tells the words of a text apart. The words of its sender come first; they may be empty.
///
/// Signatures, the armour of PGP and the footers of mailing lists are left out.
pub fn words(text: &str) -> Vec<Words> {
    let lines: Vec<Line<'_>> = without_armour(text).collect();
    let mut teller = Teller {
        words: vec![Words::default()],
        levels: vec![Some(0)],
        forwards: Vec::new(),
        depth_written: 0,
    };
    let mut at = 0;
    while at < lines.len() {
        at += teller.take(&lines, at);
    }
    for words in &mut teller.words {
        words.text = words.text.trim().to_owned();
    }
    let mut is_sender = true;
    teller
        .words
        .retain(|words| std::mem::take(&mut is_sender) || !words.text.is_empty());
    teller.words
}

/// A line without the marks of its quotation.
#[derive(Debug, Clone, Copy)]
struct Line<'t> {
    depth: usize,
    text: &'t str,
}

impl Line<'_> {
    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Whether it may be an introduction, or the last line of one.
    fn ends_with_colon(&self) -> bool {
        self.text.trim_end().ends_with([':', '：'])
    }

    /// Whether it may begin headers, a banner above them, or a footer.
    fn may_begin_headers(&self) -> bool {
        self.text.trim_start().starts_with(['-', '_']) || self.text.contains([':', '：'])
    }
}

/// The lines of a text without the armour of PGP.
fn without_armour(text: &str) -> impl Iterator<Item = Line<'_>> {
    // What is left out up to its end, and whether the headers of a signed text are being left out.
    let mut armour: Option<&str> = None;
    let mut is_header = false;
    text.lines().filter_map(move |line| {
        let found = line_of(line);
        let line = found.text.trim_end();
        if let Some(end) = armour {
            if line.starts_with("-----END PGP ") && line.contains(end) {
                armour = None;
            }
            return None;
        }
        if line == "-----BEGIN PGP SIGNED MESSAGE-----" {
            is_header = true;
            return None;
        }
        if is_header {
            is_header = !line.is_empty();
            return None;
        }
        if let Some(rest) = line.strip_prefix("-----BEGIN PGP ") {
            let names = ["SIGNATURE", "MESSAGE", "PUBLIC KEY BLOCK"];
            if let Some(name) = names.into_iter().find(|name| rest.starts_with(name)) {
                armour = Some(name);
                return None;
            }
        }
        Some(Line {
            // A signed text has `- ` before lines that begin with a dash.
            text: match found.text.starts_with("- --") {
                true => &found.text[2..],
                false => found.text,
            },
            ..found
        })
    })
}

fn line_of(line: &str) -> Line<'_> {
    let (mut depth, mut rest) = (0, line);
    loop {
        // `> > a` and `>> a` are the same.
        let after = rest.strip_prefix(' ').unwrap_or(rest);
        let Some(inner) = (if depth == 0 { rest } else { after }).strip_prefix('>') else {
            break;
        };
        (depth, rest) = (depth + 1, inner);
    }
    let text = if depth > 0 {
        rest.strip_prefix(' ').unwrap_or(rest)
    } else {
        rest
    };
    Line {
        depth: depth.min(DEPTH_MAX),
        text,
    }
}

/// Reads lines, and keeps who speaks at each depth.
struct Teller {
    words: Vec<Words>,
    /// The words that the lines of each depth belong to.
    levels: Vec<Option<usize>>,
    /// The depths of the forwarded mails that have not ended, each with the levels before it.
    forwards: Vec<(usize, Vec<Option<usize>>)>,
    /// The depth of the last line that was written.
    depth_written: usize,
}

impl Teller {
    /// Takes the line at `at`, or several that belong together. Returns their number.
    fn take(&mut self, lines: &[Line<'_>], at: usize) -> usize {
        let line = lines[at];
        let mut next = lines[at..].iter().take(INTRODUCTION_LINES_MAX);
        // Most lines are plain words, and are no beginning of anything.
        let is_plain = !line.may_begin_headers() && !next.any(Line::ends_with_colon);
        if is_plain && !is_signature(lines, at) && !is_device_line(line.text) {
            self.write(line);
            return 1;
        }
        let same: Vec<&str> = lines[at..]
            .iter()
            .take(26)
            .take_while(|next| next.depth == line.depth)
            .map(|line| line.text)
            .collect();
        if let Some(taken) = self.header(&same, line.depth) {
            return taken;
        }
        if is_end(line.text)
            && let Some((_, levels)) = self.forwards.pop_if(|(depth, _)| *depth == line.depth)
        {
            self.levels = levels;
            return 1;
        }
        if let Some(found) = introduction(&same) {
            let behind = lines[at + found.lines..].iter().find(|line| !line.is_empty());
            let taken = found.lines;
            match behind {
                Some(next) if next.depth > line.depth => {
                    self.begin(next.depth, found);
                    return taken;
                }
                // Some programs quote without marks, to the end.
                Some(_) if found.is_certain && found.author.is_some() && begins_with_date(line.text) => {
                    self.begin(line.depth, found);
                    return taken;
                }
                None if found.is_certain => return taken,
                _ => {}
            }
        }
        if is_footer(&same) || is_signature(lines, at) {
            return self.skip_signature(lines, at);
        }
        if is_device_line(line.text)
            && lines[at + 1..]
                .iter()
                .find(|line| !line.is_empty())
                .is_none_or(|next| {
                    next.depth != line.depth || introduction(&[next.text]).is_some() || is_banner(next.text)
                })
        {
            return 1;
        }
        self.write(line);
        1
    }

    /// Takes the headers of a quoted mail, and the banner above them.
    fn header(&mut self, lines: &[&str], depth: usize) -> Option<usize> {
        let mut begin = 0;
        if is_banner(lines.first()?) {
            begin += 1;
            // There may be a rule, a banner, and empty lines.
            while lines
                .get(begin)
                .is_some_and(|line| begin < 5 && (line.trim().is_empty() || is_banner(line)))
            {
                begin += 1;
            }
        }
        let found = headers(lines.get(begin..)?, begin > 0)?;
        let taken = begin + found.lines;
        if lines[..begin].iter().any(|line| is_titled(line)) {
            if self.forwards.len() == FORWARDS_MAX {
                self.forwards.remove(0);
            }
            self.forwards.push((depth, self.levels.clone()));
        }
        self.begin(depth, found);
        Some(taken)
    }

    /// Lets the lines of a depth belong to someone else from now on.
    fn begin(&mut self, depth: usize, found: Attribution) {
        self.words.push(Words {
            author: found.author,
            date: found.date,
            subject: found.subject,
            depth: depth.max(1),
            text: String::new(),
        });
        self.levels.resize(depth, None);
        self.levels.push(Some(self.words.len() - 1));
    }

    fn write(&mut self, line: Line<'_>) {
        if self.levels.len() <= line.depth {
            self.levels.resize(line.depth + 1, None);
        }
        let words = match self.levels[line.depth] {
            Some(words) => words,
            None => {
                self.words.push(Words {
                    depth: line.depth,
                    ..Words::default()
                });
                self.levels[line.depth] = Some(self.words.len() - 1);
                self.words.len() - 1
            }
        };
        let text = &mut self.words[words].text;
        // What stood between two quotations belongs to others.
        if self.depth_written != line.depth && !text.is_empty() && !text.ends_with("\n\n") {
            text.push('\n');
        }
        self.depth_written = line.depth;
        if line.is_empty() && (text.is_empty() || text.ends_with("\n\n")) {
            return;
        }
        text.push_str(line.text.trim_end());
        text.push('\n');
    }

    /// Passes over a signature or footer: up to the next line of another depth, or the next quotation.
    fn skip_signature(&self, lines: &[Line<'_>], at: usize) -> usize {
        let depth = lines[at].depth;
        let mut taken = 1;
        while let Some(line) = lines
            .get(at + taken)
            .filter(|line| line.depth == depth || line.is_empty())
        {
            let rest: Vec<&str> = lines[at + taken..]
                .iter()
                .take(26)
                .take_while(|next| next.depth == depth)
                .map(|line| line.text)
                .collect();
            let is_introduction = introduction(&rest).is_some_and(|found| found.is_certain);
            if is_introduction || is_banner(line.text) && !is_footer(&rest) || headers(&rest, false).is_some()
            {
                break;
            }
            taken += 1;
        }
        taken
    }
}

/// Whether a line begins as introductions do that have no quotation marks behind them.
fn begins_with_date(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let has_digit = line.chars().any(|letter| letter.is_ascii_digit());
    has_digit && first.chars().count() <= 12
}

/// Whether a signature begins here.
fn is_signature(lines: &[Line<'_>], at: usize) -> bool {
    match lines[at].text {
        "-- " => true,
        "--" => {
            let depth = lines[at].depth;
            let behind = lines[at + 1..].iter().take_while(|line| line.depth == depth);
            behind.take(SIGNATURE_LINES_MAX + 1).count() <= SIGNATURE_LINES_MAX
        }
        _ => false,
    }
}

/// Whether the footer of a mailing list or of its digest begins here: a rule, and a line that tells how to leave.
fn is_footer(lines: &[&str]) -> bool {
    let Some(first) = lines.first().map(|line| line.trim()) else {
        return false;
    };
    let is_rule = first.len() >= 20
        && (first.bytes().all(|byte| byte == b'_') || first.bytes().all(|byte| byte == b'-'));
    let tells = |line: &&&str| {
        let line = line.to_lowercase();
        let words = [
            "mailing list",
            "unsubscribe",
            "listinfo",
            "subscribed to",
            "list archive",
            "digest footer",
        ];
        words.iter().any(|words| line.contains(words))
            || line.starts_with("end of ") && line.contains("digest")
    };
    is_rule && lines.iter().skip(1).take(FOOTER_LINES).any(|line| tells(&line))
}

/// Whether a line names the program or the device that sent the mail.
fn is_device_line(line: &str) -> bool {
    let line = line.trim();
    let begins = [
        "Sent from my ",
        "Sent from Mail for ",
        "Get Outlook for ",
        "Von meinem iPhone gesendet",
        "Gesendet von meinem ",
        "Envoyé de mon ",
        "Enviado desde mi ",
        "Inviato da iPhone",
        "Verstuurd vanaf mijn ",
    ];
    line.len() <= 80 && begins.iter().any(|begin| line.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(Option<String>, String)> {
        words(text)
            .into_iter()
            .map(|words| (words.author, words.text))
            .collect()
    }

    fn expected(words: &[(Option<&str>, &str)]) -> Vec<(Option<String>, String)> {
        let owned = |(author, text): &(Option<&str>, &str)| (author.map(str::to_owned), (*text).to_owned());
        words.iter().map(owned).collect()
    }

    #[test]
    fn quotations_belong_to_their_authors() {
        let inline = "On 2024-03-04, Ada King <ada@bees.example> wrote:\n> On Sunday, Bob wrote:\n>> Do they?\n> They hum.\n\
            \nI know.\n\n> All day.\n\nReally?\n-- \nCleo\nThe hive";
        assert_eq!(
            told(inline),
            expected(&[
                (None, "I know.\n\nReally?"),
                (Some("Ada King <ada@bees.example>"), "They hum.\n\nAll day."),
                (Some("Bob"), "Do they?"),
            ])
        );
        let outlook = "Fine.\n\nSent from my iPhone\n\n________________________________\nFrom: Ada King <ada@bees.example>\n\
            Sent: Monday, March 4, 2024 10:12 AM\nTo: Cleo\nSubject: Bees\n\nThey hum.\n\n-----Original Message-----\nFrom: Bob\n\
            Sent: Sunday\nTo: Ada\nSubject: Bees\n\nDo they?\n";
        assert_eq!(
            told(outlook),
            expected(&[
                (None, "Fine."),
                (Some("Ada King <ada@bees.example>"), "They hum."),
                (Some("Bob"), "Do they?"),
            ])
        );
        let forward = "See below.\n\n---------- Forwarded message ---------\nFrom: Ada King <ada@bees.example>\n\
            Date: Mon, Mar 4, 2024 at 10:12 AM\nSubject: Bees\nTo: Bob\n\n\nThey hum.\n";
        assert_eq!(
            told(forward),
            expected(&[
                (None, "See below."),
                (Some("Ada King <ada@bees.example>"), "They hum.")
            ])
        );
        let unmarked =
            "Fine.\n\nOn Mon, Mar 4, 2024 at 10:12 AM Ada King <ada@bees.example> wrote:\n\nThey hum.\n";
        assert_eq!(
            told(unmarked),
            expected(&[
                (None, "Fine."),
                (Some("Ada King <ada@bees.example>"), "They hum.")
            ])
        );
        assert_eq!(told("> Who?\nI.\n"), expected(&[(None, "I."), (None, "Who?")]));
    }

    #[test]
    fn a_forwarded_mail_ends_and_a_digest_has_many() {
        let mutt = "Read this.\n\n----- Forwarded message from Ada King <ada@bees.example> -----\n\nDate: Mon, 4 Mar 2024 10:12:00 +0100\n\
            From: Ada King <ada@bees.example>\nTo: Bob\nSubject: Bees\n\nOn Sunday, Bob wrote:\n> Do they?\n\nThey hum.\n\n\
            ----- End forwarded message -----\n\nIs it true?\n";
        assert_eq!(
            told(mutt),
            expected(&[
                (None, "Read this.\n\nIs it true?"),
                (Some("Ada King <ada@bees.example>"), "They hum."),
                (Some("Bob"), "Do they?"),
            ])
        );
        let rule = "-".repeat(30);
        let digest = format!(
            "Today's Topics:\n\n   1. Honey (Ada King)\n\n{}\n\nMessage: 1\nDate: Fri, 27 Nov 2026 09:30:00 +0100\n\
             From: Ada King <ada@bees.example>\nSubject: [Hives] Honey\nMessage-ID: <h1@bees.example>\n\nIt is dark.\n\n\n{rule}\n\n\
             Message: 2\nDate: Fri, 27 Nov 2026 09:40:00 +0100\nFrom: Bob <b@bees.example>\nTo: a@b\nSubject: [Hives] Wax\n\n\
             Who buys it?\n\n{rule}\n\nSubject: Digest Footer\n\n{}\nHives mailing list\n\n{rule}\n\n\
             End of Hives Digest, Vol 3, Issue 7\n***********************************\n",
            "-".repeat(70),
            "_".repeat(47)
        );
        assert_eq!(
            told(&digest),
            expected(&[
                (None, "Today's Topics:\n\n   1. Honey (Ada King)"),
                (Some("Ada King <ada@bees.example>"), "It is dark."),
                (Some("Bob <b@bees.example>"), "Who buys it?"),
            ])
        );
        let subjects: Vec<Option<String>> = words(&digest).into_iter().map(|words| words.subject).collect();
        assert_eq!(subjects[1].as_deref(), Some("[Hives] Honey"));
        let endless = "----- Forwarded message -----\nFrom: a@b\nTo: c\nSubject: d\n\nx\n".repeat(100);
        assert_eq!(told(&endless).len(), 101, "with an empty text of its sender");
    }

    #[test]
    fn signatures_armour_and_footers_are_left_out() {
        let signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nBees hum.\n- -- \nAda\n\
            -----BEGIN PGP SIGNATURE-----\nabc\n-----END PGP SIGNATURE-----\n";
        assert_eq!(told(signed), expected(&[(None, "Bees hum.")]));
        let listed = "Bees hum.\n_______________________________________________\nBees mailing list\nhttps://bees.example/listinfo\n";
        assert_eq!(told(listed), expected(&[(None, "Bees hum.")]));
        let apache = "Bees hum.\n\n---------------------------------------------------------------------\n\
            To unsubscribe, e-mail: dev-unsubscribe@bees.example\n";
        assert_eq!(told(apache), expected(&[(None, "Bees hum.")]));
        let top = "Fine.\n-- \nAda\n\nOn 2024-03-04, Bob <b@bees.example> wrote:\n> Hum?\n";
        assert_eq!(
            told(top),
            expected(&[(None, "Fine."), (Some("Bob <b@bees.example>"), "Hum?")])
        );
        let list = "One of\n--\nmany";
        assert_eq!(told(&(list.to_owned() + &"\nlines".repeat(20))).len(), 1);
        assert!(
            told(&(list.to_owned() + &"\nlines".repeat(20)))[0]
                .1
                .contains("many")
        );
        assert_eq!(
            told("From: a list\nof words\nTo: no one"),
            expected(&[(None, "From: a list\nof words\nTo: no one")])
        );
    }
}
