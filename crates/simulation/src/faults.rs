//! Faults: at random moments, nodes die, links break, stores fail, and clocks jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{CLOCK_JUMP_MS_MAX, FAULT_GAP_MS_MAX, FAULT_MS_MAX, SERVERS};
use crate::nodes::{Node, Role};
use crate::store::Trouble;
use crate::world::World;

/// How many kinds of faults there are.
const KINDS: u64 = 6;

/// Makes faults until the task is aborted, and counts them.
pub async fn make(world: Arc<World>, nodes: Vec<Arc<Node>>, count: Arc<AtomicU64>) {
    loop {
        tokio::time::sleep(world.draw_time(FAULT_GAP_MS_MAX)).await;
        let node = nodes[world.draw(nodes.len() as u64) as usize].clone();
        count.fetch_add(1, Ordering::Relaxed);
        // Faults overlap.
        tokio::spawn(make_one(world.clone(), node));
    }
}

async fn make_one(world: Arc<World>, node: Arc<Node>) {
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
            let trouble = match world.happens(500) {
                true => Trouble::Fails,
                false => Trouble::Slow,
            };
            world.note(format_args!(
                "FAULT: the store of {name}: {trouble:?} for {lasts:?}"
            ));
            node.set_trouble(trouble);
            tokio::time::sleep(lasts).await;
            node.set_trouble(Trouble::None);
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

/// Ends all faults that last.
pub fn mend(world: &World, nodes: &[Arc<Node>]) {
    world.network.mend();
    world.wall_clock.set_offset_ms(0);
    for node in nodes {
        node.set_trouble(Trouble::None);
    }
}
