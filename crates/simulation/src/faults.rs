//! Faults: at random moments, nodes die, links break, stores fail, and clocks jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_store::Store;

use crate::limits::{CLOCK_JUMP_MS_MAX, FAULT_GAP_MS_MAX, FAULT_MS_MAX, HANG, SERVERS};
use crate::nodes::{Node, Role};
use crate::store::{FaultyStore, Trouble};
use crate::world::World;

/// The number of kinds of faults.
const KINDS: u64 = 7;

/// Makes faults until the task is aborted, and counts them.
pub async fn make(
    world: Arc<World>,
    nodes: Vec<Arc<Node>>,
    observer: Arc<FaultyStore>,
    count: Arc<AtomicU64>,
) {
    loop {
        tokio::time::sleep(world.draw_time(FAULT_GAP_MS_MAX)).await;
        let node = nodes[world.draw(nodes.len() as u64) as usize].clone();
        count.fetch_add(1, Ordering::Relaxed);
        // Faults may overlap.
        tokio::spawn(make_one(world.clone(), node, observer.clone()));
    }
}

async fn make_one(world: Arc<World>, node: Arc<Node>, observer: Arc<FaultyStore>) {
    let lasts = world.draw_time(FAULT_MS_MAX);
    let name = &node.name;
    match world.draw(KINDS) {
        0 | 1 => {
            world.note(format_args!("FAULT: {name} is killed"));
            node.kill();
        }
        2 => {
            let server = 1 + world.draw(SERVERS as u64) as usize;
            world.note(format_args!(
                "FAULT: {name} is cut off from {server} for {lasts:?}"
            ));
            world.network.set_cut(name, server, true);
            tokio::time::sleep(lasts).await;
            world.network.set_cut(name, server, false);
        }
        3 => {
            world.note(format_args!(
                "FAULT: the messages of {name} are slow for {lasts:?}"
            ));
            world.network.set_slow(name, true);
            tokio::time::sleep(lasts).await;
            world.network.set_slow(name, false);
        }
        4 if node.role != Role::Agent => {
            let trouble = if world.happens(500) {
                Trouble::Fails
            } else {
                Trouble::Slow
            };
            world.note(format_args!(
                "FAULT: the store of {name}: {trouble:?} for {lasts:?}"
            ));
            node.set_trouble(trouble);
            tokio::time::sleep(lasts).await;
            node.set_trouble(Trouble::None);
        }
        5 if node.role == Role::Worker => {
            world.note(format_args!(
                "FAULT: claims and reports of {name} hang for {HANG:?}"
            ));
            let Some(store) = node.store() else { return };
            store.set_trouble(Trouble::Hangs);
            let is_forgotten = is_forgotten_within(HANG, name, &*observer).await;
            // Another fault may have replaced the trouble, or may have killed the worker.
            let hung_to_the_end = store.set_trouble(Trouble::None) == Trouble::Hangs
                && node.store().is_some_and(|now| Arc::ptr_eq(&now, &store));
            if hung_to_the_end && !is_forgotten {
                world.require(Err(format!(
                    "{name} keeps its jobs, although it cannot report for {HANG:?}"
                )));
            }
        }
        _ => {
            let most_ms = CLOCK_JUMP_MS_MAX.cast_signed();
            let offset_ms = world.draw(2 * CLOCK_JUMP_MS_MAX).cast_signed() - most_ms;
            world.note(format_args!(
                "FAULT: the clock of the store's machine is wrong by {offset_ms} ms"
            ));
            world.wall_clock.set_offset_ms(offset_ms);
            tokio::time::sleep(lasts).await;
            world.wall_clock.set_offset_ms(0);
        }
    }
}

/// Reports whether the store forgets the worker of this name within a time. The store then gives its jobs to others.
/// The function returns at the moment of forgetting, or at the end of the time.
async fn is_forgotten_within(time: Duration, name: &str, store: &dyn Store) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok(workers) = store.workers().await
            && workers.iter().all(|row| row.worker.name != name)
        {
            return true;
        }
    }
    false
}

/// Ends all lasting faults.
pub fn mend(world: &World, nodes: &[Arc<Node>]) {
    world.network.mend();
    world.wall_clock.set_offset_ms(0);
    for node in nodes {
        node.set_trouble(Trouble::None);
    }
}
