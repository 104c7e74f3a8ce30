use gristmill_model::limits::ERROR_MESSAGE_BYTES_MAX;
use gristmill_model::{JobError, Tag};

use super::*;

fn report() -> Report {
    let mut report = Report::new(LeaseId(7), BatchId(42), 2);
    report.completed = Some(Completed {
        positions: "0-2".parse().unwrap(),
        values: PackedArray::parse("[1, {\"a\": \"\\n\"}, null]").unwrap(),
        durations_us: vec![1, 2, u32::MAX],
    });
    report.failed = vec![FailedJob {
        position: 5,
        error: JobError::new("ValueError", "no").permanent(),
        duration_us: 9,
    }];
    report.released = "7-8".parse().unwrap();
    report.logs = vec![JobLog {
        position: 1,
        text: "one\n".to_owned(),
    }];
    report
}

fn request(reports: Vec<Report>) -> ExchangeRequest {
    ExchangeRequest {
        number: 3,
        attempt: 1,
        acknowledged: 2,
        instance: "abc".to_owned(),
        reports,
        want: Some(Want {
            jobs_max: 10,
            queues: vec!["default".into()],
            kinds: vec![],
            priority_min: None,
        }),
        wait_ms: 5,
    }
}

/// A message with this head and these segments, valid or not.
fn message(head: &str, segments: &[&[u8]]) -> Vec<u8> {
    let mut message = b"GMX1".to_vec();
    message.extend((head.len() as u32).to_le_bytes());
    message.extend(head.as_bytes());
    for segment in segments {
        message.extend((segment.len() as u32).to_le_bytes());
        message.extend(*segment);
    }
    message
}

fn one_report(report: &str) -> String {
    format!(
        r#"{{"number":1,"attempt":1,"acknowledged":0,"instance":"i","reports":[{{"lease":1,"batch":2,"attempt":1,{report}}}]}}"#
    )
}

#[test]
fn a_request_reads_back_as_written() {
    let mut plain = report();
    plain.completed = None;
    plain.logs.clear();
    let request = request(vec![report(), plain, report()]);
    assert_eq!(
        ExchangeRequest::decode(&request.clone().encode()).unwrap(),
        request
    );
}

fn slice() -> LeasedSlice {
    LeasedSlice {
        lease: LeaseId(9),
        batch: BatchId(1),
        kind: "double".into(),
        queue: "default".into(),
        group: None,
        positions: "3-4".parse().unwrap(),
        payloads: PackedArray::parse("[3,\"vier\"]").unwrap(),
        attempt: 1,
        rescues: 0,
        timeout_ms: Some(100),
        priority: 0,
        retry: gristmill_model::RetryPolicy::default(),
        submitted_at: Timestamp(5),
        memos: None,
        deadline: None,
        labels: None,
        traceparent: None,
    }
}

fn response(slices: Vec<LeasedSlice>) -> ExchangeResponse {
    ExchangeResponse {
        instance: "abc".to_owned(),
        exchanged: Exchanged {
            receipts: vec![Receipt {
                accepted: "0-2".parse().unwrap(),
                ..Receipt::default()
            }],
            lease: Some(Lease {
                id: LeaseId(9),
                slices,
            }),
            next_run_at: Some(Timestamp(77)),
            limited: true,
        },
        now: Timestamp(6),
        claim_unknown: true,
        not_claimed: false,
        followed: Some(vec![gristmill_model::Followed::Kind("work".into())]),
    }
}

#[test]
fn an_answer_reads_back_as_written() {
    let response = response(vec![slice(), slice()]);
    assert_eq!(
        ExchangeResponse::decode(&response.clone().encode()).unwrap(),
        response
    );
}

/// Keys and tags of jobs 2 to 4 of a batch.
fn labels() -> JobLabels {
    let keys = PackedArray::parse(r#"["two","three",null]"#).unwrap();
    let tag = Tag {
        positions: Some("2,4".parse().unwrap()),
        ..Tag::all("page", "a")
    };
    JobLabels::new("2-4".parse().unwrap(), Some(keys), vec![tag]).unwrap()
}

#[test]
fn a_slice_travels_with_the_keys_and_tags_of_its_own_jobs() {
    let slice = LeasedSlice {
        group: Some("acme".into()),
        deadline: Some(Timestamp(99)),
        labels: Some(Arc::new(labels())),
        traceparent: Some(gristmill_model::TraceParent {
            trace_id: 10,
            span_id: 11,
        }),
        ..slice()
    };
    let mut response = response(vec![self::slice(), slice.clone(), self::slice()]);
    let read = ExchangeResponse::decode(&response.clone().encode()).unwrap();
    let own = Arc::new(labels().select(&slice.positions).unwrap());
    assert_eq!((own.key_of(3).as_deref(), own.key_of(2)), (Some("three"), None));
    let lease = response.exchanged.lease.as_mut().unwrap();
    lease.slices[1].labels = Some(own);
    assert_eq!(read, response);
}

#[test]
fn wrong_keys_and_tags_are_refused_with_their_jobs() {
    let head = |labelled: bool| {
        let labelled = if labelled { r#","labelled":true"# } else { "" };
        format!(
            r#"{{"instance":"i","receipts":[],"now":1,"lease":{{"id":9,"slices":[{{"batch":1,"kind":"k","queue":"q",
            "positions":"3-4","attempt":1,"rescues":0,"submitted_at":5{labelled}}}]}}}}"#
        )
    };
    let payloads = b"[1\n,2]";
    let plain = ExchangeResponse::decode(&message(&head(false), &[payloads])).unwrap();
    assert_eq!(plain.exchanged.lease.unwrap().slices[0].labels, None);
    for (labelled, segments, says) in [
        (
            true,
            &[&payloads[..]][..],
            "names 2 segments, but the message has 1",
        ),
        (
            false,
            &[payloads, b"{}"],
            "names 1 segments, but the message has 2",
        ),
        (true, &[payloads, b"{\"keys\":[\"a\"]}"], "1 keys for 2 jobs"),
        (true, &[payloads, b"{\"keys\":[1,2]}"], "key 0 is not a string"),
        (
            true,
            &[payloads, b"{\"tags\":[[\"t\",\"v\",\"2\"]]}"],
            "the tag `t` is of other jobs",
        ),
        (
            true,
            &[payloads, b"{\"tags\":3}"],
            "not an object of keys and tags",
        ),
        (true, &[payloads, b"\xff"], "not UTF-8"),
    ] {
        let error = ExchangeResponse::decode(&message(&head(labelled), segments))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error} does not say `{says}`");
        if segments.len() == 2 && labelled {
            assert!(error.contains("batch 1, positions 3-4"), "{error}");
        }
    }
    let older = head(false).replace(r#""queue":"q","#, "");
    let error = ExchangeResponse::decode(&message(&older, &[payloads])).unwrap_err();
    assert!(error.to_string().contains("missing field `queue`"), "{error}");
}

#[test]
fn foreign_values_must_be_one_array_with_a_value_for_each_position() {
    let head = one_report(r#""completed":"0-1""#);
    let durations = [0; 8];
    for (values, durations, says) in [
        (&b"[1]"[..], &durations[..], "1 values"),
        (b"[1,2,3]", &durations, "3 values"),
        (b"[1,2]", &durations[..4], "1 durations"),
        (b"[1,2]", &durations[..7], "32-bit"),
        (b"[1,2", &durations, "not a JSON array"),
        (b"[1,2]]", &durations, "not a JSON array"),
        (b"[1,2][3]", &durations, "not a JSON array"),
        (b"{\"a\":1}", &durations, "not a JSON array"),
        (b"[1,nul]", &durations, "not a JSON array"),
        (b"[1,\"\\ud800\"]", &durations, "item 1"),
        (b"[1,\"\0\"]", &durations, "not a JSON array"),
        (b"[1,\"\xff\"]", &durations, "UTF-8"),
        (b"", &durations, "not a JSON array"),
    ] {
        let error = ExchangeRequest::decode(&message(&head, &[values, durations]))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error} does not say `{says}`");
    }
    let spaced = ExchangeRequest::decode(&message(&head, &[b" [ 1 ,\n [\n2 ] ] ", &durations])).unwrap();
    assert_eq!(
        spaced.reports[0].completed.as_ref().unwrap().values.as_str(),
        "[1\n,[ 2 ]]"
    );
}

#[test]
fn a_request_with_wrong_parts_is_refused_with_their_place() {
    for (head, segments, says) in [
        ("{}".to_owned(), 0, "number"),
        ("[]".to_owned(), 0, "head is invalid"),
        (
            one_report(r#""completed":"0-1""#),
            0,
            "names 2 segments, but the message has 0",
        ),
        (
            one_report(r#""released":"0-1""#),
            2,
            "names 0 segments, but the message has 2",
        ),
        (one_report(r#""completed":"5-1""#), 2, "positions"),
        (one_report(r#""completed":"0-99999""#), 2, "positions"),
        (
            one_report(
                r#""released":"1","failed":[{"position":1,"error":{"type":"E","message":"m"},"duration_us":1}]"#,
            ),
            0,
            "twice",
        ),
        (
            one_report(
                r#""failed":[{"position":4000000000,"error":{"type":"E","message":"m"},"duration_us":1}]"#,
            ),
            0,
            "position 4000000000",
        ),
        (
            one_report(r#""released":"1","logs":[{"position":2,"text":"x"}]"#),
            0,
            "logs",
        ),
    ] {
        let segments = vec![&b"[]"[..]; segments];
        let error = ExchangeRequest::decode(&message(&head, &segments))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error} does not say `{says}`");
    }
}

#[test]
fn foreign_texts_are_cut_and_lose_their_nul_characters() {
    let mut long = report();
    long.failed[0].error.message = "x\0".repeat(ERROR_MESSAGE_BYTES_MAX);
    long.failed[0].error.traceback = Some("\0end".to_owned());
    long.logs[0].text = "é".repeat(LOG_BYTES_MAX) + "\0";
    let read = ExchangeRequest::decode(&request(vec![long]).encode())
        .unwrap()
        .reports
        .remove(0);
    let error = &read.failed[0].error;
    assert!(error.message.len() < ERROR_MESSAGE_BYTES_MAX + 10 && error.permanent);
    assert_eq!(error.traceback.as_deref(), Some("\u{fffd}end"));
    assert_eq!(read.logs[0].text.len(), LOG_BYTES_MAX);
}
