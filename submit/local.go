package submit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/shard"
)

// Grace is the time that a process has to end after SIGTERM.
const Grace = 30 * time.Second

const terminateSignal = syscall.SIGTERM

// Local runs shards as local processes.
type Local struct {
	Plan
	Jobs    int // concurrent processes
	Threads int // threads of each process, and its cores
	Retries int // retries of a shard after the first attempt
	// maximum pause before the first retry; it doubles up to 60 times its value
	Pause   time.Duration
	Partial bool // commit the available shards
	// Stderr receives the stderr of the processes line by line, with the shard's number as a
	// prefix.
	Stderr io.Writer

	stderrLock   sync.Mutex // guards Stderr
	mu           sync.Mutex
	states       States
	firstFailure *Failed // first failure that is not retried
}

// States counts the shards by state.
type States struct {
	Total    int `json:"total"`
	Done     int `json:"done"` // with a receipt, including earlier runs
	Running  int `json:"running"`
	Waiting  int `json:"waiting"` // waiting for the first attempt or a retry
	Failed   int `json:"failed"`  // not retried
	Findings int `json:"findings"`
	Retries  int `json:"retries"`
	// Unsuccessful attempts by exit code or "signal".
	Codes     map[string]int `json:"codes,omitempty"`
	Committed bool           `json:"committed"`
	// Commit is the report of the commit. Its findings are those of the whole job.
	Commit *shard.Committed `json:"commit,omitempty"`
}

// States returns the current counts. Safe for concurrent use.
func (l *Local) States() States {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states
	s.Codes = maps.Clone(s.Codes)
	return s
}

func (l *Local) updateStates(f func(s *States)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.states)
}

// Run runs the missing shards and commits. changed is called after each shard, never concurrently.
// findings reports whether commit returned 3.
func (l *Local) Run(ctx context.Context, changed func(States)) (findings bool, err error) {
	l.updateStates(func(s *States) {
		*s = States{
			Total:   l.Total,
			Done:    l.Total - len(l.Missing),
			Waiting: len(l.Missing),
			Codes:   map[string]int{},
		}
	})
	work, stop := context.WithCancel(ctx)
	defer stop()
	places := semaphore.NewWeighted(int64(max(l.Jobs, 1)))
	var wg sync.WaitGroup
	var telling sync.Mutex
	// in order: a shard acquires its slot for the first attempt here
	for _, shard := range l.Missing {
		if places.Acquire(work, 1) != nil {
			break
		}
		wg.Go(func() {
			if f := l.runShard(work, places, shard); f != nil && !l.Partial {
				stop() // see submit.S3
			}
			telling.Lock()
			defer telling.Unlock()
			changed(l.States())
		})
	}
	wg.Wait()
	switch {
	case ctx.Err() != nil:
	case l.firstFailure != nil && !l.Partial:
		return false, l.firstFailure
	default:
		findings, err = l.commitShards(ctx)
	}
	if s := l.States(); ctx.Err() != nil && !s.Committed {
		err = fmt.Errorf(
			"%w with %d of %d shards done and nothing committed; the same command goes on "+
				"from there",
			ctx.Err(),
			s.Done,
			s.Total,
		)
	}
	return findings, err
}

// runShard runs a shard until it is done, fails finally, or ctx ends. It returns the failure, if
// any. The caller has acquired one slot for the first attempt.
func (l *Local) runShard(ctx context.Context, places *semaphore.Weighted, shard int) *Failed {
	for try := 1; ; try++ {
		l.updateStates(func(s *States) { s.Waiting--; s.Running++ })
		code, last, err := l.runVerb(
			ctx,
			io.Discard,
			"run",
			"--manifest",
			l.Manifest,
			"--shard",
			strconv.Itoa(shard),
			"--threads",
			strconv.Itoa(max(l.Threads, 1)),
		)
		places.Release(1)
		f := &Failed{Verb: "run", Shard: shard, Code: code, Tries: try, Last: last, Err: err}
		again := false
		l.updateStates(func(s *States) {
			s.Running--
			switch {
			case code == 0 || code == 3:
				s.Done++
				s.Findings += code / 3
				f = nil
				return
			case ctx.Err() != nil: // it was asked to stop
				s.Waiting++
				f = nil
				return
			}
			key := "signal"
			if code >= 0 {
				key = strconv.Itoa(code)
			}
			s.Codes[key]++
			if again = try <= l.Retries && !slices.Contains(Final, code); again {
				s.Waiting++
				s.Retries++
				return
			}
			s.Failed++
			if l.firstFailure == nil {
				l.firstFailure = f
			}
		})
		if !again {
			return f
		}
		pause := rand.N(min(l.Pause<<min(try-1, 6), 60*l.Pause) + 1)
		slog.Warn(
			"a shard is tried again",
			"run",
			l.ID,
			"shard",
			shard,
			"tries",
			try,
			"exit_code",
			code,
			"pause_s",
			pause.Seconds(),
		)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if places.Acquire(ctx, 1) != nil {
			return nil
		}
	}
}

// runVerb runs a verb. It returns the exit code and the last line of stderr.
func (l *Local) runVerb(
	ctx context.Context,
	stdout io.Writer,
	verb string,
	args ...string,
) (int, string, error) {
	out := &lineWriter{target: l.Stderr, mu: &l.stderrLock}
	if verb == "run" {
		out.prefix = "shard " + args[3] + ": "
	}
	c := newCommand(ctx, l.Program, append([]string{verb}, args...)...)
	c.Stdout, c.Stderr = stdout, out
	// Otherwise the garbage collector would use all cores and slow down other shards.
	if _, chosen := os.LookupEnv("GOMAXPROCS"); verb == "run" && !chosen {
		c.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(max(l.Threads, 1)))
	}
	err := c.Run()
	out.flushRest()
	return exitCode(c), lastLine(out.last), err
}

func (l *Local) commitShards(ctx context.Context) (findings bool, err error) {
	args := []string{"--manifest", l.Manifest, "--json"}
	if l.Partial {
		args = append(args, "--partial")
	}
	var out bytes.Buffer
	code, last, err := l.runVerb(ctx, &out, "commit", args...)
	if code != 0 && code != 3 {
		return false, &Failed{Verb: "commit", Code: code, Last: last, Err: err}
	}
	made := &shard.Committed{}
	if err := json.Unmarshal(out.Bytes(), made); err != nil {
		return false, robocache.Malformed("submit", robocache.Where{
			"manifest": l.Manifest,
		}, "commit --json gave no report").
			WithCause(err)
	}
	l.updateStates(func(s *States) { s.Committed, s.Commit = true, made })
	return code == 3, nil
}

// lineWriter writes whole lines with a prefix and remembers the last one.
type lineWriter struct {
	target io.Writer
	mu     *sync.Mutex
	prefix string
	rest   []byte
	last   string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 && len(w.rest) < 1<<16 {
			return len(p), nil
		}
		if i < 0 {
			i = len(w.rest) - 1
		}
		w.writeLine(w.rest[:i+1])
		w.rest = w.rest[i+1:]
	}
}

func (w *lineWriter) writeLine(line []byte) {
	w.last = string(line)
	if w.target != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = w.target.Write(append([]byte(w.prefix), line...))
	}
}

func (w *lineWriter) flushRest() {
	if len(w.rest) > 0 {
		w.writeLine(append(w.rest, '\n'))
	}
}

// Exec runs another program with the given streams. The error contains its exit code.
func Exec(ctx context.Context, stdout, stderr io.Writer, program string, args ...string) error {
	c := newCommand(ctx, []string{program}, args...)
	tail := &lineWriter{target: stderr, mu: &sync.Mutex{}}
	c.Stdout, c.Stderr = stdout, tail
	err := c.Run()
	tail.flushRest()
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case c.ProcessState == nil:
		return robocache.Misuse("submit", robocache.Where{"program": program}, "").WithCause(err)
	}
	return &Failed{Verb: args[1], Code: exitCode(c), Last: lastLine(tail.last), Err: err}
}
