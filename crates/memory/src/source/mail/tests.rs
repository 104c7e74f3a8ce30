//! Mails as whole: headers, bodies, quotations and attached mails.

use super::*;

const MAIL: &str = "From: Ada King <ada@bees.example>\r\nTo: Bob <bob@bees.example>, c@bees.example\r\n\
    Subject: =?utf-8?Q?Bees_=26_drums?=\r\nDate: Mon, 1 May 2023 09:30:00 +0200\r\nMessage-ID: <1@bees.example>\r\n\r\n\
    They hum.\r\n\r\nOn Sunday Bob wrote:\r\n> Do they?\r\n";

fn mail(bytes: &[u8]) -> Vec<Message> {
    read_mail("x.eml", bytes, &ReadOptions::default()).expect("reads")
}

fn mailbox(text: &str) -> Vec<Message> {
    let mails = Mbox::new("x.mbox", text.as_bytes(), &ReadOptions::default());
    mails.map(|item| item.expect("a message")).collect()
}

fn said(messages: &[Message]) -> Vec<(Option<&str>, String)> {
    let said = messages
        .iter()
        .map(|message| (message.speaker.as_deref(), message.text()));
    said.collect()
}

#[test]
fn reads_a_mail() {
    let messages = mail(MAIL.as_bytes());
    let message = &messages[0];
    assert_eq!(message.speaker.as_deref(), Some("Ada King <ada@bees.example>"));
    assert_eq!(message.recipients, ["Bob <bob@bees.example>", "c@bees.example"]);
    assert_eq!(message.subject.as_deref(), Some("Bees & drums"));
    assert_eq!(message.text(), "They hum.");
    let moment = message.moment.expect("a date");
    assert_eq!(moment.at.to_string(), "2023-05-01T07:30:00.000Z");
    assert_eq!(moment.zone_minutes, Some(120));
    assert_eq!(message.id.as_deref(), Some("1@bees.example"));
    assert_eq!(
        said(&messages)[1..],
        [(Some("Bob <bob@bees.example>"), "Do they?".to_owned())]
    );
    let error = read_mail("x.eml", b"", &ReadOptions::default()).expect_err("empty");
    assert!(error.to_string().contains("not a mail"), "{error}");
}

#[test]
fn a_quotation_of_a_mail_in_the_mailbox_is_left_out() {
    let text = "From bob Sun Apr 30 09:30:00 2023\nFrom: Bob <bob@bees.example>\nSubject: Bees & drums\n\
        Message-ID: <0@bees.example>\n\nDo they? I wonder.\n\n\
        From ada Mon May  1 09:30:00 2023\nFrom: Ada King <ada@bees.example>\nSubject: Re: Bees & drums\n\
        In-Reply-To: <0@bees.example>\nMessage-ID: <1@bees.example>\n\n> Do they? I\n> wonder.\n> Elsewhere I asked.\n\nThey hum.\n";
    let messages = mailbox(text);
    assert_eq!(
        said(&messages),
        [
            (Some("Bob <bob@bees.example>"), "Do they? I wonder.".to_owned()),
            (Some("Ada King <ada@bees.example>"), "They hum.".to_owned()),
            (Some("Bob <bob@bees.example>"), "Elsewhere I asked.".to_owned()),
        ]
    );
    assert!(
        messages
            .iter()
            .all(|message| message.thread.as_deref() == Some("0@bees.example"))
    );
    let places: Vec<&str> = messages
        .iter()
        .filter_map(|message| message.place.as_deref())
        .collect();
    assert_eq!(places, ["mail 1", "mail 2", "mail 2, quotation 1"]);
}

#[test]
fn a_bad_mail_does_not_end_the_mailbox() {
    let text = "a note before the mails\n\nFrom ada Mon May  1 09:30:00 2023\nSubject: x\n\nHum.\n\n\
        From bob Tue May  2 09:30:00 2023\n\nNo headers.\n\n\
        From cleo Tue May  2 09:30:00 2023\nX-Mozilla-Status: 0009\nSubject: gone\n\nGone.\n\n\
        From dan Tue May  2 09:31:00 2023\nSubject: y\n\n\n";
    let items: Vec<Item> = Mbox::new("x.mbox", text.as_bytes(), &ReadOptions::default()).collect();
    let told: Vec<String> = items
        .iter()
        .map(|item| item.as_ref().map_or_else(ToString::to_string, Message::text))
        .collect();
    assert!(
        told[0].starts_with("x.mbox, mail 1 at line 1: it is not a mail"),
        "{told:?}"
    );
    assert_eq!(told[1..], ["Hum.", "No headers.", "y"]);
    let headerless = items[2].as_ref().expect("a message");
    assert_eq!(headerless.speaker.as_deref(), Some("bob"));
    assert_eq!(
        headerless.moment.map(|moment| moment.at.to_string()).as_deref(),
        Some("2023-05-02T09:30:00.000Z")
    );
}

#[test]
fn all_texts_are_read_in_order() {
    let apple = "From: a@b\nSubject: x\nContent-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain\n\nOne.\n\
        --x\nContent-Type: image/png\nContent-Transfer-Encoding: base64\nContent-Disposition: inline; filename=a.png\n\niVBO\n\
        --x\nContent-Type: text/plain\n\nTwo.\n--x\nContent-Type: text/plain\nContent-Disposition: attachment; filename=b.log\n\nLog.\n\
        --x\nContent-Type: message/rfc822\n\nFrom: Cleo <c@d>\nSubject: inner\nContent-Type: text/plain; charset=iso-8859-1\n\
        Content-Transfer-Encoding: quoted-printable\n\nSch=F6n.\n--x--\n";
    let messages = mail(apple.as_bytes());
    assert_eq!(
        said(&messages),
        [
            (Some("a@b"), "One.\n\nTwo.".to_owned()),
            (Some("Cleo <c@d>"), "Schön.".to_owned())
        ]
    );
    let alternative = "From: a@b\nContent-Type: multipart/alternative; boundary=x\n\n--x\nContent-Type: text/html\n\n<p>HTML</p>\n\
        --x\nContent-Type: text/plain\n\nPlain.\n--x\nContent-Type: text/calendar\n\nBEGIN:VEVENT\nSUMMARY:Hum\nDTSTART:20230501T0930Z\n\
        END:VEVENT\n--x--\n";
    assert_eq!(
        mail(alternative.as_bytes())[0].text(),
        "Plain.\n\nHum\nBegins: 20230501T0930Z"
    );
    let empty_plain = alternative.replace("Plain.", " ").replace("BEGIN:VEVENT", "x");
    assert_eq!(mail(empty_plain.as_bytes())[0].text(), "HTML");
    let html = "From: a@b\nContent-Type: text/html; charset=windows-1251\n\n\
        <div>&#1073;<br></div><div>On Mon, Mar 4, 2024 at 10:12 AM Ada &lt;<a href=x>ada@b</a>&gt; wrote:<br></div>\
        <blockquote>Hum.</blockquote>";
    assert_eq!(
        said(&mail(html.as_bytes())),
        [
            (Some("a@b"), "б".to_owned()),
            (Some("Ada <ada@b>"), "Hum.".to_owned())
        ]
    );
}

#[test]
fn old_headers_and_hidden_addresses_are_read() {
    let mut old = b"From: ada at bees.example (Ada King)\nSubject: ".to_vec();
    old.extend(encoding_rs::WINDOWS_1251.encode("Пчёлы жужжат").0.iter());
    old.extend(b"\nDate: Mon, 1 May 2023 09:30:00 +0200\n\nHum.\n");
    let messages = mail(&old);
    assert_eq!(messages[0].subject.as_deref(), Some("Пчёлы жужжат"));
    assert_eq!(
        messages[0].speaker.as_deref(),
        Some("Ada King <ada@bees.example>")
    );
    assert!(
        is_mail(b"Received: x\nSubject: y\n\n")
            && !is_mail(b"Subject: y\nTo: z\n\n")
            && !is_mail(b"Ada: Hi\nBob: Ho\n")
    );
}
