//! The memory for bodies of requests. It bounds their bytes over all requests and for each token.
//!
//! A body takes room when its bytes arrive and when they are decompressed, never in advance: a request that announces
//! many bytes and sends none takes no room. The first body of a room, and the first body of each token, may take more
//! than is left, so that bodies cannot wait for one another forever.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::error::ApiError;
use crate::limits::{
    CLIENT_ROOM_BYTES, EXCHANGE_ROOM_BYTES, READ_ASIDE_MAX, REQUEST_BYTES_MAX, REQUEST_DECODED_BYTES_MAX,
    ROOM_WITHIN, SHARE_OF_ROOM, SIGNAL_BYTES_MAX, SIGNAL_ROOM_BYTES,
};

/// The rooms of a server. Bodies that workers send to stay alive never wait for bodies of clients.
#[derive(Debug)]
pub struct Rooms {
    clients: Arc<Room>,
    exchanges: Arc<Room>,
    signals: Arc<Room>,
}

/// The room for bodies of one class.
#[derive(Debug)]
pub struct Room {
    /// The largest body on the wire. Bytes.
    pub wire_bytes_max: usize,
    /// The largest body after decompression. Bytes.
    pub decoded_bytes_max: usize,
    bytes_max: usize,
    taken: Mutex<Taken>,
    freed: Notify,
    aside: Arc<Semaphore>,
}

/// The bytes and bodies in a room.
#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    last: u64,
    bodies: BTreeSet<u64>,
    shares: HashMap<Arc<str>, Share>,
}

/// The bytes and bodies of one token.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    bodies: BTreeSet<u64>,
}

/// The room of one body, until it is dropped.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    token: Arc<str>,
    number: u64,
    bytes: usize,
}

impl Default for Rooms {
    fn default() -> Self {
        let large = |bytes_max| Room::new(REQUEST_BYTES_MAX, REQUEST_DECODED_BYTES_MAX, bytes_max);
        Rooms {
            clients: large(CLIENT_ROOM_BYTES),
            exchanges: large(EXCHANGE_ROOM_BYTES),
            signals: Room::new(SIGNAL_BYTES_MAX, SIGNAL_BYTES_MAX, SIGNAL_ROOM_BYTES),
        }
    }
}

impl Rooms {
    /// The room for bodies of the operation with this path of the router.
    pub fn of(&self, path: &str) -> &Arc<Room> {
        match path.rsplit('/').next() {
            Some("exchange" | "reports") => &self.exchanges,
            Some("heartbeat" | "output" | "children" | "claims" | "workers") => &self.signals,
            _ => &self.clients,
        }
    }
}

impl Room {
    fn new(wire_bytes_max: usize, decoded_bytes_max: usize, bytes_max: usize) -> Arc<Room> {
        Arc::new(Room {
            wire_bytes_max,
            decoded_bytes_max,
            bytes_max,
            taken: Mutex::default(),
            freed: Notify::new(),
            aside: Arc::new(Semaphore::new(READ_ASIDE_MAX)),
        })
    }

    /// A place without bytes for a body of this token.
    pub fn enter(self: &Arc<Self>, token: Arc<str>) -> Place {
        let mut taken = self.lock();
        taken.last += 1;
        let number = taken.last;
        let is_new = taken.bodies.insert(number);
        let share = taken.shares.entry(token.clone()).or_default();
        assert!(
            is_new && share.bodies.insert(number),
            "each body has its own number"
        );
        drop(taken);
        Place {
            room: self.clone(),
            token,
            number,
            bytes: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes for a body if there is room for them.
    fn try_take(&self, place: &Place, bytes: usize) -> bool {
        let mut taken = self.lock();
        let all = taken.bytes + bytes;
        let is_first = taken.bodies.first() == Some(&place.number);
        if all > self.bytes_max && !is_first {
            return false;
        }
        let share = taken.shares.entry(place.token.clone()).or_default();
        let own = share.bytes + bytes;
        let is_first = share.bodies.first() == Some(&place.number);
        if own > self.bytes_max / SHARE_OF_ROOM && !is_first {
            return false;
        }
        assert!(share.bodies.contains(&place.number), "a body in the room grows");
        share.bytes = own;
        taken.bytes = all;
        debug_assert_eq!(
            taken.shares.values().map(|share| share.bytes).sum::<usize>(),
            taken.bytes,
            "the shares of a room add up to its bytes"
        );
        true
    }

    fn give_back(&self, place: &Place, bytes: usize, leaves: bool) {
        let mut taken = self.lock();
        assert!(
            bytes <= taken.bytes && bytes <= place.bytes,
            "a room of {} bytes cannot get {bytes} back",
            taken.bytes
        );
        taken.bytes -= bytes;
        if leaves {
            taken.bodies.remove(&place.number);
        }
        if let Some(share) = taken.shares.get_mut(&place.token) {
            assert!(
                bytes <= share.bytes,
                "a token with {} bytes cannot give {bytes} back",
                share.bytes
            );
            share.bytes -= bytes;
            if leaves {
                share.bodies.remove(&place.number);
                if share.bodies.is_empty() {
                    assert_eq!(share.bytes, 0, "a token without bodies has no bytes");
                    taken.shares.remove(&place.token);
                }
            }
        }
        assert!(!taken.bodies.is_empty() || taken.bytes == 0, "an empty room");
        drop(taken);
        self.freed.notify_waiters();
    }
}

impl Place {
    /// The room that the place is in.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Takes room for more bytes. Waits a while if there is none.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        if !self.room.try_take(self, bytes) {
            self.wait_for(bytes).await?;
        }
        self.bytes += bytes;
        Ok(())
    }

    async fn wait_for(&self, bytes: usize) -> Result<(), ApiError> {
        let until = Instant::now() + ROOM_WITHIN;
        loop {
            let mut freed = std::pin::pin!(self.room.freed.notified());
            // From here on, the future notices each release.
            freed.as_mut().enable();
            if self.room.try_take(self, bytes) {
                return Ok(());
            }
            if timeout_at(until, freed).await.is_err() {
                let mebibytes = self.room.bytes_max >> 20;
                return Err(ApiError::TooMany {
                    what: "the server holds as many bytes of requests as it has room for",
                    limit: format!(
                        "{mebibytes} MiB in all, and {} MiB for one token",
                        mebibytes / SHARE_OF_ROOM
                    ),
                    retry_after_s: 1,
                });
            }
        }
    }

    /// Keeps these bytes and gives back the rest.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.room.give_back(self, less, false);
        self.bytes -= less;
    }

    /// Waits for a turn to read a large body outside of the event loop.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let turn = self.room.aside.clone().acquire_owned().await;
        turn.map_err(|_| ApiError::Stopping)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.give_back(self, self.bytes, true);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    fn room() -> Arc<Room> {
        Room::new(4 * MIB, 4 * MIB, 9 * MIB)
    }

    /// Reports whether there is room now, without a wait.
    fn grows(place: &mut Place, bytes: usize) -> bool {
        place
            .grow(bytes)
            .now_or_never()
            .is_some_and(|grown| grown.is_ok())
    }

    #[tokio::test]
    async fn a_token_has_its_share_and_leaves_the_rest_to_others() {
        let room = room();
        let mut own: Vec<Place> = (0..4).map(|_| room.enter("one".into())).collect();
        assert!(grows(&mut own[0], MIB) && grows(&mut own[1], 2 * MIB));
        assert!(!grows(&mut own[1], 1), "the share is 3 MiB");
        assert!(grows(&mut own[0], 2 * MIB), "its first body arrives all the same");
        let mut other = room.enter("other".into());
        assert!(grows(&mut other, 3 * MIB));
        drop(own.remove(0));
        assert!(grows(&mut own[0], 2 * MIB), "it is the first one now");
        own.clear();
        drop(other);
        let taken = room.lock();
        assert_eq!((taken.bytes, taken.bodies.len(), taken.shares.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_room_but_not_forever() {
        let room = room();
        let (mut first, mut second) = (room.enter("one".into()), room.enter("one".into()));
        first.grow(3 * MIB).await.unwrap();
        let refused = second.grow(1).await.unwrap_err();
        assert!(refused.to_string().contains("3 MiB for one token"), "{refused}");
        let (grown, ()) = tokio::join!(second.grow(MIB), async { first.shrink_to(MIB) });
        grown.unwrap();
    }

    #[test]
    fn workers_have_room_of_their_own() {
        let rooms = Rooms::default();
        let is = |path: &str, room: &Arc<Room>| Arc::ptr_eq(rooms.of(path), room);
        assert!(is("/api/v1/jobs", &rooms.clients) && is("/api/v1/jobs/stream", &rooms.clients));
        assert!(is("/api/v1/workers/{worker}/exchange", &rooms.exchanges));
        assert!(is("/api/v1/reports", &rooms.exchanges));
        assert!(is("/api/v1/workers/{worker}/heartbeat", &rooms.signals));
        assert!(is("/api/v1/workers", &rooms.signals));
    }
}
