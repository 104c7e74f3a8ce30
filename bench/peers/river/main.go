// River, through pgx. It takes an order as JSON, the only argument, and answers with one line of JSON.
//
// Settings: bulk inserts by COPY (InsertManyFast); 2,000 workers and a fetch at once after the last for a drain, 100 for
// latencies; no pause between notifications of inserts where latencies are measured. An order may say how many workers a
// drain has and how long each job sleeps.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A worker that needs longer hangs.
const patience = 300 * time.Second

type order struct {
	Work          string  `json:"work"`
	URL           string  `json:"url"`
	Jobs          int     `json:"jobs"`
	WarmUpJobs    int     `json:"warm_up_jobs"`
	BatchJobs     int     `json:"batch_jobs"`
	Callers       int     `json:"callers"`
	RatePerSecond float64 `json:"rate_per_second"`
	SleepMs       float64 `json:"sleep_ms"`
	WorkersMax    int     `json:"workers_max"`
}

// Job has 100 bytes of JSON.
type Job struct {
	ID  string `json:"id"`
	To  string `json:"to"`
	Pad string `json:"pad"`
}

// Kind names the worker.
func (Job) Kind() string { return "noop" }

func job(number int) Job {
	return Job{ID: fmt.Sprintf("%08d", number), To: "user@example.com", Pad: strings.Repeat("x", 50)}
}

type worker struct {
	river.WorkerDefaults[Job]
	begin func(Job)
}

func (w *worker) Work(_ context.Context, job *river.Job[Job]) error {
	w.begin(job.Args)
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pool(ctx context.Context, url string, connections int) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(url)
	check(err)
	config.MaxConns = int32(connections)
	made, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	return made
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func inserter(pool *pgxpool.Pool, cooldown time.Duration) *river.Client[pgx.Tx] {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{FetchCooldown: cooldown, Logger: quiet()})
	check(err)
	return client
}

func runner(pool *pgxpool.Pool, workersMax int, cooldown time.Duration, begin func(Job)) *river.Client[pgx.Tx] {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{begin: begin})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     cooldown,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            quiet(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workersMax}},
		Workers:           workers,
	})
	check(err)
	return client
}

func insertMany(ctx context.Context, client *river.Client[pgx.Tx], o order, first, count int) {
	for from := first; from < first+count; from += o.BatchJobs {
		until := min(from+o.BatchJobs, first+count)
		params := make([]river.InsertManyParams, 0, until-from)
		for number := from; number < until; number++ {
			params = append(params, river.InsertManyParams{Args: job(number)})
		}
		_, err := client.InsertManyFast(ctx, params)
		check(err)
	}
}

func answer(fields map[string]any) {
	line, err := json.Marshal(fields)
	check(err)
	fmt.Println(string(line))
	os.Exit(0)
}

func rate(jobs int, began time.Time) {
	answer(map[string]any{"jobs": jobs, "seconds": time.Since(began).Seconds()})
}

func submitBatches(ctx context.Context, o order) {
	client := inserter(pool(ctx, o.URL, 4), 100*time.Millisecond)
	insertMany(ctx, client, o, 0, o.WarmUpJobs)
	began := time.Now()
	insertMany(ctx, client, o, o.WarmUpJobs, o.Jobs)
	rate(o.Jobs, began)
}

func drain(ctx context.Context, o order) {
	looks := pool(ctx, o.URL, 1)
	sender := inserter(pool(ctx, o.URL, 4), 100*time.Millisecond)
	insertMany(ctx, sender, o, 0, o.Jobs)
	for _, statement := range []string{"VACUUM ANALYZE river_job", "CHECKPOINT"} {
		_, err := looks.Exec(ctx, statement)
		check(err)
	}
	var done atomic.Int64
	all := make(chan struct{})
	client := runner(pool(ctx, o.URL, 20), cmp.Or(o.WorkersMax, 2_000), 2*time.Millisecond, func(Job) {
		time.Sleep(time.Duration(o.SleepMs * float64(time.Millisecond)))
		if done.Add(1) == int64(o.Jobs) {
			close(all)
		}
	})
	began := time.Now()
	check(client.Start(ctx))
	select {
	case <-all:
	case <-time.After(patience):
		check(fmt.Errorf("%d of %d jobs ran", done.Load(), o.Jobs))
	}
	for left := 1; left > 0; {
		check(looks.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&left))
	}
	rate(o.Jobs, began)
}

func submitSingle(ctx context.Context, o order) {
	client := inserter(pool(ctx, o.URL, o.Callers), 100*time.Millisecond)
	all := func(first, count int) {
		var next atomic.Int64
		var callers sync.WaitGroup
		for range o.Callers {
			callers.Go(func() {
				for {
					number := int(next.Add(1)) - 1
					if number >= count {
						return
					}
					_, err := client.Insert(ctx, job(first+number), nil)
					check(err)
				}
			})
		}
		callers.Wait()
	}
	all(0, o.WarmUpJobs)
	began := time.Now()
	all(o.WarmUpJobs, o.Jobs)
	rate(o.Jobs, began)
}

func latency(ctx context.Context, o order) {
	count := o.WarmUpJobs + o.Jobs
	sent, begun := make([]time.Time, count), make([]time.Time, count)
	var left sync.WaitGroup
	left.Add(count)
	client := runner(pool(ctx, o.URL, 10), 100, time.Millisecond, func(job Job) {
		now := time.Now()
		number, err := strconv.Atoi(job.ID)
		check(err)
		begun[number] = now
		left.Done()
	})
	check(client.Start(ctx))
	time.Sleep(time.Second)
	sender := inserter(pool(ctx, o.URL, 4), time.Millisecond)
	ticks := time.NewTicker(time.Duration(float64(time.Second) / o.RatePerSecond))
	for number := range count {
		<-ticks.C
		sent[number] = time.Now()
		_, err := sender.Insert(ctx, job(number), nil)
		check(err)
	}
	left.Wait()
	found := make([]float64, 0, o.Jobs)
	for number := o.WarmUpJobs; number < count; number++ {
		found = append(found, begun[number].Sub(sent[number]).Seconds()*1e3)
	}
	slices.Sort(found)
	at := func(share float64) float64 { return found[int(float64(len(found)-1)*share+0.5)] }
	answer(map[string]any{"samples": len(found), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)})
}

func main() {
	ctx := context.Background()
	var o order
	check(json.Unmarshal([]byte(os.Args[1]), &o))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool(ctx, o.URL, 2)), nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	works := map[string]func(context.Context, order){
		"submit_batches": submitBatches, "drain": drain, "submit_single": submitSingle, "latency": latency,
	}
	works[o.Work](ctx, o)
}
