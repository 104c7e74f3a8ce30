//! The reading of frames, for `fuzz/`.

use std::time::Instant;

use gristmill_model::Positions;

use crate::answers::Said;
use crate::protocol::{Frame, read_frame};
use crate::stream::Stream;

/// The number of jobs that the process got.
const JOBS: u32 = 8;

/// Reads frames up to the first incomplete or invalid one.
pub fn read_frames(mut bytes: &[u8]) {
    let now = Instant::now();
    let mut stream = Stream::new(now);
    stream.push(1, &Positions::all(JOBS / 2), false, None, now);
    stream.push(2, &Positions::all(JOBS / 2), false, None, now);
    while let Ok(Some((frame, length))) = read_frame(bytes, 0) {
        bytes = &bytes[length..];
        if let Frame::Outcomes(mut frame) = frame
            && let Ok(said) = Said::read(&mut frame, &stream, &|_| "fuzz".into())
        {
            let answered: usize = said.answers.iter().map(|(_, answers)| answers.count()).sum();
            assert!(answered <= JOBS as usize);
        }
    }
}
