//! The cost of a group commit by itself: its committer only replies. Prints the round trip of a lone caller beside the
//! floor (a plain channel there and a oneshot back, measured in the same run), and the throughput of 64 callers.
//!
//! `cargo bench -p gristmill-batching --bench group_commit`

use std::future::Future;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gristmill_batching::{AtomicBatchStats, GroupLimits, Submitter, group_commit};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

const LIMITS: GroupLimits = GroupLimits {
    operations_max: 1_000,
    weight_max: 1 << 20,
    queue_operations_max: 10_000,
    queue_weight_max: 16 << 20,
};
const PAUSE: Duration = Duration::from_millis(2);
const CALLERS: usize = 64;
const OPERATIONS_PER_CALLER: usize = 20_000;
const REPETITIONS: usize = 5;

type Floor = mpsc::Sender<(u64, oneshot::Sender<u64>)>;

fn main() {
    let stats = AtomicBatchStats::new();
    let (submitter, committing) = start(&stats);
    let (floor, serving) = start_floor();
    let one_worker = runtime(1);
    let two_workers = runtime(2);

    println!("round trip of a lone caller           p50 us   p99 us   cpu us");
    println!(" one after the other");
    lone_callers(&submitter, &floor, &one_worker, Pace::Busy);
    println!(" one every 2 ms");
    lone_callers(&submitter, &floor, &one_worker, Pace::Idle);

    println!("{CALLERS} callers together                  operations/s");
    print_rate("floor, tasks", || {
        let floor = floor.clone();
        throughput(&two_workers, move || {
            let floor = floor.clone();
            async move {
                let (sender, receiver) = oneshot::channel();
                floor.send((1, sender)).unwrap();
                receiver.await.unwrap();
            }
        })
    });
    print_rate("group commit, tasks", || {
        let submitter = submitter.clone();
        throughput(&two_workers, move || {
            let submitter = submitter.clone();
            async move {
                submitter.submit(1, 100).await.unwrap();
            }
        })
    });
    print_rate("group commit, threads", || blocking_throughput(&submitter));

    drop((submitter, floor));
    committing.join().unwrap();
    serving.join().unwrap();
    let groups = stats.snapshot().hops.remove("commit").unwrap_or_default();
    println!(
        "groups: {} of {:.1} operations on average, {} at most",
        groups.batches,
        groups.items_mean(),
        groups.items_max
    );
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_time()
        .build()
        .unwrap()
}

fn start(stats: &AtomicBatchStats) -> (Submitter<u64, u64>, JoinHandle<()>) {
    let (submitter, mut committer) = group_commit::<u64, u64>(LIMITS);
    committer.record_into(stats.hop("commit"));
    let committing = std::thread::spawn(move || {
        while let Some(group) = committer.next_group() {
            for (operation, responder) in group {
                responder.reply(operation);
            }
        }
    });
    (submitter, committing)
}

fn start_floor() -> (Floor, JoinHandle<()>) {
    let (sender, receiver) = mpsc::channel::<(u64, oneshot::Sender<u64>)>();
    let serving = std::thread::spawn(move || {
        for (operation, reply) in receiver {
            reply.send(operation).unwrap();
        }
    });
    (sender, serving)
}

/// The pace at which the round trips of a lone caller follow one another.
#[derive(Clone, Copy)]
enum Pace {
    /// Without pauses.
    Busy,
    /// With a pause before each, in which both sides fall asleep.
    Idle,
}

impl Pace {
    fn round_trips(self) -> usize {
        match self {
            Pace::Busy => 50_000,
            Pace::Idle => 1_000,
        }
    }
}

/// Prints the round trips of the floor and of the group commit, for a thread and for a task on a worker thread.
fn lone_callers(submitter: &Submitter<u64, u64>, floor: &Floor, runtime: &Runtime, pace: Pace) {
    blocking_round_trips("floor, thread", pace, || {
        let (sender, receiver) = oneshot::channel();
        floor.send((1, sender)).unwrap();
        receiver.blocking_recv().unwrap()
    });
    blocking_round_trips("group commit, thread", pace, || {
        submitter.submit_blocking(1, 100).unwrap()
    });
    let sender = floor.clone();
    async_round_trips("floor, task", runtime, pace, move || {
        let (reply, receiver) = oneshot::channel();
        sender.send((1, reply)).unwrap();
        async { receiver.await.unwrap() }
    });
    let submitter = submitter.clone();
    async_round_trips("group commit, task", runtime, pace, move || {
        let submitter = submitter.clone();
        async move { submitter.submit(1, 100).await.unwrap() }
    });
}

fn blocking_round_trips(name: &str, pace: Pace, mut round_trip: impl FnMut() -> u64) {
    let (_never, silence) = mpsc::channel::<()>();
    let mut run = |_| {
        if let Pace::Idle = pace {
            let _ = silence.recv_timeout(PAUSE);
        }
        let start = Instant::now();
        round_trip();
        start.elapsed()
    };
    (0..pace.round_trips() / 10).for_each(|warm_up| _ = run(warm_up));
    let cpu_before = cpu_time();
    let durations = (0..pace.round_trips()).map(run).collect();
    print_round_trip(name, durations, cpu_time() - cpu_before);
}

fn async_round_trips<O>(
    name: &str,
    runtime: &Runtime,
    pace: Pace,
    round_trip: impl Fn() -> O + Send + 'static,
) where
    O: Future<Output = u64> + Send,
{
    // The tasks run on a worker thread, as in a server, and not on the thread that waits for the runtime.
    let run = runtime.spawn(async move {
        let mut durations = Vec::new();
        let mut cpu_before = Duration::ZERO;
        for number in 0..pace.round_trips() + pace.round_trips() / 10 {
            if number == pace.round_trips() / 10 {
                durations.clear();
                cpu_before = cpu_time();
            }
            if let Pace::Idle = pace {
                tokio::time::sleep(PAUSE).await;
            }
            let start = Instant::now();
            round_trip().await;
            durations.push(start.elapsed());
        }
        (durations, cpu_time() - cpu_before)
    });
    let (durations, cpu_time) = runtime.block_on(run).unwrap();
    print_round_trip(name, durations, cpu_time);
}

fn print_round_trip(name: &str, mut durations: Vec<Duration>, cpu_time: Duration) {
    durations.sort_unstable();
    let at = |percent: usize| durations[durations.len() * percent / 100].as_nanos() as f64 / 1_000.0;
    let cpu_us = cpu_time.as_nanos() as f64 / 1_000.0 / durations.len() as f64;
    println!("  {name:<32} {:>8.1} {:>8.1} {cpu_us:>8.1}", at(50), at(99));
}

/// The processor time of all threads of this process, which spinning would increase.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("schedstat")).ok());
    Duration::from_nanos(
        stats
            .map(|stat| stat.split(' ').next().unwrap().parse::<u64>().unwrap())
            .sum(),
    )
}

/// Operations a second of all callers as tasks.
fn throughput<F, O>(runtime: &Runtime, operation: F) -> f64
where
    F: Fn() -> O + Clone + Send + 'static,
    O: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let operation = operation.clone();
            runtime.spawn(async move {
                for _ in 0..OPERATIONS_PER_CALLER {
                    operation().await;
                }
            })
        })
        .collect();
    for caller in callers {
        runtime.block_on(caller).unwrap();
    }
    (CALLERS * OPERATIONS_PER_CALLER) as f64 / start.elapsed().as_secs_f64()
}

/// Operations a second of all callers as threads.
fn blocking_throughput(submitter: &Submitter<u64, u64>) -> f64 {
    const OPERATIONS_PER_THREAD: usize = OPERATIONS_PER_CALLER / 10;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                for _ in 0..OPERATIONS_PER_THREAD {
                    submitter.submit_blocking(1, 100).unwrap();
                }
            });
        }
    });
    (CALLERS * OPERATIONS_PER_THREAD) as f64 / start.elapsed().as_secs_f64()
}

fn print_rate(name: &str, mut run: impl FnMut() -> f64) {
    run();
    let mut rates: Vec<f64> = (0..REPETITIONS).map(|_| run()).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "  {name:<32} {:>10.0} (median of {REPETITIONS})",
        rates[REPETITIONS / 2]
    );
}
