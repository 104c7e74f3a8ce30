//! Frames between agents and servers.

use gristmill_protocol::{ExchangeRequest, ExchangeResponse};

/// Data that can be read is the same after another round trip.
pub fn read(data: &[u8]) {
    if let Ok(request) = ExchangeRequest::decode(data) {
        let again = ExchangeRequest::decode(&request.clone().encode());
        assert_eq!(again.expect("reads its own frame"), request);
    }
    if let Ok(response) = ExchangeResponse::decode(data) {
        let again = ExchangeResponse::decode(&response.clone().encode());
        assert_eq!(again.expect("reads its own frame"), response);
    }
}
