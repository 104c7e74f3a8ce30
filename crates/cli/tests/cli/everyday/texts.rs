//! Texts and numbers keep their form, and messages and files do not get in each other's way.

use std::process::Stdio;

use crate::workspace::Workspace;

const ECHO: &str = "def main(payload):\n    return payload\n";

#[test]
fn numbers_keep_their_texts_in_keys_tags_and_arguments() {
    let workspace = Workspace::new();
    let items = "{\"id\": 123456789012345678901234567890, \"price\": 1.10, \"far\": 1e400}\n\
                 {\"id\": 123456789012345678901234567891, \"price\": 1.1}\n";
    workspace.write("items.jsonl", items);
    let submitted = workspace.run("submit page --input items.jsonl --key-field id --tag-field price");
    assert!(!submitted.stderr.contains("duplicate"), "{}", submitted.stderr);
    assert_eq!(submitted.expect(0), "1:0\n1:1\n");
    for (condition, count) in [
        ("--key 123456789012345678901234567890", "1\n"),
        ("--tag price=1.10", "1\n"),
        ("--tag price=1.1", "1\n"),
    ] {
        assert_eq!(
            workspace.run(&format!("jobs --count {condition}")).expect(0),
            count,
            "{condition}"
        );
    }
    let printed = workspace.run("run items.jsonl --values --quiet -- echo {id} {price} {far} {}");
    let lines = [
        "123456789012345678901234567890 1.10 1e400 {\"id\": 123456789012345678901234567890, \"price\": 1.10, \"far\": 1e400}",
        "123456789012345678901234567891 1.1 {far} {\"id\": 123456789012345678901234567891, \"price\": 1.1}",
    ];
    let values = lines.map(|line| format!("{}\n", serde_json::json!(line)));
    assert_eq!(printed.expect(0), values.concat());
    let scheduled = workspace.run("schedule put far page --every 1h --key-field a {\"b\":1e400,\"a\":2}");
    scheduled.expect(0);
}

#[test]
fn scripts_get_exact_numbers_or_refuse_them_with_their_place() {
    let workspace = Workspace::new();
    let items =
        "{\"ids\": [7, 9007199254740993]}\n{\"a b\": 1e400}\n{\"id\": 9007199254740991, \"price\": 1.10}\n";
    workspace
        .write("items.jsonl", items)
        .write("exact.mjs", "export const main = (payload) => payload;\n")
        .write(
            "big.mjs",
            "export const bigints = true;\n\
             export const main = ({ ids }) => ids ? [typeof ids[1], ids[1] + 1n] : 2 ** 60;\n",
        )
        .write(
            "text.mjs",
            "export const bigints = 'string';\nexport const main = ({ ids }) => ids ?? null;\n",
        )
        .write(
            "wrong.mjs",
            "export const bigints = 'text';\nexport const main = () => 1;\n",
        )
        .write("exact.py", ECHO);
    let lines = workspace
        .run("run text.mjs items.jsonl --quiet --values --name text")
        .expect(1);
    assert_eq!(lines, "[7,\"9007199254740993\"]\nnull\nnull\n");
    let refused = workspace
        .run("run wrong.mjs items.jsonl --quiet --name wrong")
        .error();
    assert!(
        refused.contains("bigints = 'text': give 'error', 'string', 'bigint'"),
        "{refused}"
    );
    let lines = workspace.run("run exact.mjs items.jsonl --quiet").expect(1);
    let lines: Vec<&str> = lines.lines().collect();
    for (line, parts) in lines.iter().zip([
        ["InexactNumber", "payload.ids[1] is 9007199254740993, which"].as_slice(),
        &["InexactNumber", "payload[\\\"a b\\\"] is 1e400, which is beyond"],
        &["\"value\":{\"id\":9007199254740991,\"price\":1.1}"],
    ]) {
        assert!(
            parts.iter().all(|part| line.contains(part)),
            "{line} has not {parts:?}"
        );
    }
    let lines = workspace
        .run("run big.mjs items.jsonl --quiet --values")
        .expect(1);
    assert_eq!(
        lines,
        "[\"bigint\",9007199254740994]\nnull\n1152921504606846976\n"
    );
    let lines = workspace.run("run exact.py items.jsonl --quiet").expect(1);
    assert!(lines.contains("{\"ids\":[7,9007199254740993]}"), "{lines}");
    assert!(lines.contains("1e400 is beyond the largest float"), "{lines}");
}

#[test]
fn children_and_siblings_of_javascript_have_exact_numbers() {
    let workspace = Workspace::new();
    let script = "export const bigints = true;\n\
        export const main = (payload) => typeof payload === 'bigint'\n\
        \x20 ? gristmill.done(payload, { siblings: payload % 2n === 1n ? [payload + 1n] : [] })\n\
        \x20 : gristmill.spawn({ children: [9007199254740993n], memo: 12345678901234567890n });\n\
        export const finalize = (payload, memo, outcomes) => [memo, outcomes.map((outcome) => outcome.value)];\n";
    workspace
        .write("family.mjs", script)
        .write("items.jsonl", "\"go\"\n");
    let values = workspace
        .run("run family.mjs items.jsonl --quiet --values")
        .expect(0);
    assert_eq!(
        values,
        "[12345678901234567890,[9007199254740993,9007199254740994]]\n"
    );
}

#[test]
fn quotes_in_rows_keep_their_texts_or_are_refused_with_their_lines() {
    let workspace = Workspace::new();
    workspace
        .write("echo.py", ECHO)
        .write("a.tsv", "id\ttitle\n1\t\"Heroes\" live\n2\t\"unfinished\n3\tc\n")
        .write("open.csv", "id,title\n1,a\n2,\"unfinished\n3,c\n4,d\n")
        .write("torn.csv", "id,title\n1,a\n2,\"unfinished\n3,c\n4,\"fine\"\n")
        .write(
            "behind.csv",
            "id,title\n1,6\" pipe\n2,\"Heroes\" live\n3,\"two\nlines\"\n",
        )
        .write("semicolons.csv", "id;title\n1;\"a;b\"\n")
        .write("bars.csv", "id|title\n1|'a|b'\n")
        .write("wide.csv", [0xff, 0xfe, b'i', 0, b'd', 0, b'\n', 0]);
    let run = |arguments: &str| workspace.run(&format!("run echo.py --quiet --values {arguments}"));
    let rows = |titles: &[&str]| -> String {
        let row = |(id, title)| format!("{}\n", serde_json::json!({"id": format!("{id}"), "title": title}));
        (1..).zip(titles).map(row).collect()
    };
    assert_eq!(
        run("a.tsv").expect(0),
        rows(&["\"Heroes\" live", "\"unfinished", "c"])
    );
    assert!(
        run("a.tsv --quote \" --name quoted")
            .error()
            .contains("a.tsv:3: a quote opens here and is not closed")
    );
    assert!(
        run("open.csv")
            .error()
            .contains("open.csv:3: a quote opens here and is not closed")
    );
    assert_eq!(
        run("open.csv --quote none --restart").expect(0),
        rows(&["a", "\"unfinished", "c", "d"])
    );
    let torn = run("torn.csv").error();
    assert!(
        torn.contains("torn.csv:3: ") && torn.contains("closes it 2 lines below"),
        "{torn}"
    );
    let behind = workspace.run("run echo.py --quiet behind.csv").expect(1);
    let behind: Vec<&str> = behind.lines().collect();
    assert!(behind[0].ends_with(r#""title":"6\" pipe"}}"#), "{behind:?}");
    assert!(
        behind[1].contains("behind.csv:3: text follows the closing quote"),
        "{behind:?}"
    );
    assert!(behind[2].ends_with(r#""title":"two\nlines"}}"#), "{behind:?}");
    assert_eq!(run("semicolons.csv").expect(0), rows(&["a;b"]));
    assert_eq!(run("bars.csv --delimiter | --quote '").expect(0), rows(&["a|b"]));
    assert!(run("wide.csv").error().contains("`iconv -f utf-16 -t utf-8`"));
    assert!(
        run("echo.py --format lines --delimiter ;")
            .error()
            .contains("is for csv and tsv")
    );
    let both = run("a.tsv semicolons.csv").error();
    assert!(both.contains("different formats"), "{both}");
}

#[test]
fn an_input_or_store_is_refused_as_output_under_any_name() {
    let workspace = Workspace::new();
    workspace.write("echo.py", ECHO).write("items.jsonl", "1\n");
    std::fs::hard_link(workspace.path("items.jsonl"), workspace.path("hard.jsonl")).unwrap();
    std::os::unix::fs::symlink("new.db", workspace.path("link")).unwrap();
    workspace.run("submit page 1 --store other.db").expect(0);
    let other = std::fs::read(workspace.path("other.db")).unwrap();
    for (arguments, says) in [
        ("run echo.py items.jsonl --output hard.jsonl", "is the input"),
        (
            "run echo.py items.jsonl --output new.db --store new.db",
            "is the store",
        ),
        (
            "run echo.py items.jsonl --output link --store new.db",
            "is the store",
        ),
        (
            "run echo.py items.jsonl --output new.db-wal --store new.db",
            "belongs to the store",
        ),
        (
            "run echo.py items.jsonl --output other.db --store new.db",
            "is a SQLite database",
        ),
        (
            "results --batch 1 --output other.db --store other.db",
            "is the store",
        ),
    ] {
        let error = workspace.run(arguments).error();
        assert!(error.contains(says), "{arguments}: {error}");
    }
    let mut piped = workspace.command("run echo.py --output items.jsonl");
    let input = std::fs::File::open(workspace.path("items.jsonl")).unwrap();
    let ended = crate::workspace::Ended::from(piped.stdin(input).output().unwrap());
    assert!(ended.error().contains("is the input"));
    assert_eq!(workspace.read("items.jsonl"), "1\n");
    assert!(!workspace.path("new.db").exists(), "nothing was made");
    assert_eq!(std::fs::read(workspace.path("other.db")).unwrap(), other);
}

/// With a closed standard error the reader is gone. A full one takes no bytes.
#[test]
fn a_closed_or_full_standard_error_changes_no_exit_status() {
    let workspace = Workspace::new();
    workspace.write("echo.py", ECHO).write("items.jsonl", "1\n\nx\n");
    let full = || Stdio::from(std::fs::File::create("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    for arguments in [
        "run echo.py items.jsonl --output out.jsonl --restart",
        "submit page --input items.jsonl",
        "jobs --state expired",
        "tags none",
        "queues",
        "workers",
        "show 99:0",
        "logs 99:0",
        "results --batch 99",
        "worker echo.py --drain",
        "check",
        "runs",
        "schedule list",
        "no-such-command",
    ] {
        let heard = workspace.run(arguments);
        for stderr in [full(), closed()] {
            let mut command = workspace.command(arguments);
            command.env("GRISTMILL_LOG", "trace").stderr(stderr);
            let ended = command.output().unwrap();
            assert_eq!(ended.status.code(), heard.code, "{arguments}: {}", heard.stderr);
        }
    }
    assert_eq!(workspace.read("out.jsonl").lines().count(), 2);
}
