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

// Grace is how long a process has to end after it was asked to.
const Grace = 30 * time.Second

const terminate = syscall.SIGTERM

// Local runs shards as processes of this machine.
type Local struct {
	Plan
	Jobs    int           // processes at once
	Threads int           // of each, and its cores
	Retries int           // of a shard, beside its first try
	Pause   time.Duration // before the first retry at most; it doubles up to 60 of it
	Partial bool          // commit what there is
	// takes what the processes say, a line at a time, with the shard's number before it
	Stderr io.Writer

	out    sync.Mutex // of Stderr
	mu     sync.Mutex
	states States
	failed *Failed // the first that is given up
}

// States counts what the shards came to.
type States struct {
	Total    int `json:"total"`
	Done     int `json:"done"` // with a receipt, those of earlier runs too
	Running  int `json:"running"`
	Waiting  int `json:"waiting"` // for their first try or the next
	Failed   int `json:"failed"`  // given up
	Findings int `json:"findings"`
	Retries  int `json:"retries"`
	// tries that were no success by exit code; "signal"
	Codes     map[string]int `json:"codes,omitempty"`
	Committed bool           `json:"committed"`
	// Commit is the report of the commit. Its findings are those of the whole job.
	Commit *shard.Committed `json:"commit,omitempty"`
}

// States says where the shards stand; it may be called at any time.
func (l *Local) States() States {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states
	s.Codes = maps.Clone(s.Codes)
	return s
}

func (l *Local) note(f func(s *States)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.states)
}

// Run runs the missing shards and commits. changed is called after each shard that ended, by one
// caller at a time. findings: commit gave 3.
func (l *Local) Run(ctx context.Context, changed func(States)) (findings bool, err error) {
	l.note(func(s *States) {
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
	for _, shard := range l.Missing { // in their order: the first try takes its place here
		if places.Acquire(work, 1) != nil {
			break
		}
		wg.Go(func() {
			if f := l.shard(work, places, shard); f != nil && !l.Partial {
				stop() // S3
			}
			telling.Lock()
			defer telling.Unlock()
			changed(l.States())
		})
	}
	wg.Wait()
	switch {
	case ctx.Err() != nil:
	case l.failed != nil && !l.Partial:
		return false, l.failed
	default:
		findings, err = l.commit(ctx)
	}
	if s := l.States(); ctx.Err() != nil && !s.Committed {
		err = fmt.Errorf(
			"%w with %d of %d shards done and nothing committed; the same command goes on from there",
			ctx.Err(),
			s.Done,
			s.Total,
		)
	}
	return findings, err
}

// shard tries until the shard is done, given up (its failure is the answer) or the work ends. One
// place is held by the caller for it.
func (l *Local) shard(ctx context.Context, places *semaphore.Weighted, shard int) *Failed {
	for try := 1; ; try++ {
		l.note(func(s *States) { s.Waiting--; s.Running++ })
		code, last, err := l.call(
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
		l.note(func(s *States) {
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
			if l.failed == nil {
				l.failed = f
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

// call runs a verb, and returns its code and the last line of its stderr.
func (l *Local) call(
	ctx context.Context,
	stdout io.Writer,
	verb string,
	args ...string,
) (int, string, error) {
	out := &lines{to: l.Stderr, mu: &l.out}
	if verb == "run" {
		out.prefix = "shard " + args[3] + ": "
	}
	c := command(ctx, l.Program, append([]string{verb}, args...)...)
	c.Stdout, c.Stderr = stdout, out
	// the collector of garbage would use all cores, and the other shards wait
	if _, chosen := os.LookupEnv("GOMAXPROCS"); verb == "run" && !chosen {
		c.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(max(l.Threads, 1)))
	}
	err := c.Run()
	out.flush()
	return codeOf(c), lastLine(out.last), err
}

func (l *Local) commit(ctx context.Context) (findings bool, err error) {
	args := []string{"--manifest", l.Manifest, "--json"}
	if l.Partial {
		args = append(args, "--partial")
	}
	var out bytes.Buffer
	code, last, err := l.call(ctx, &out, "commit", args...)
	if code != 0 && code != 3 {
		return false, &Failed{Verb: "commit", Code: code, Last: last, Err: err}
	}
	made := &shard.Committed{}
	if err := json.Unmarshal(out.Bytes(), made); err != nil {
		return false, robocache.Malformed("submit", robocache.Where{"manifest": l.Manifest}, "commit --json gave no report").
			WithCause(err)
	}
	l.note(func(s *States) { s.Committed, s.Commit = true, made })
	return code == 3, nil
}

// lines writes whole lines behind a prefix, and remembers the last.
type lines struct {
	to     io.Writer
	mu     *sync.Mutex
	prefix string
	rest   []byte
	last   string
}

func (w *lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 && len(w.rest) < 1<<16 {
			return len(p), nil
		}
		if i < 0 {
			i = len(w.rest) - 1
		}
		w.put(w.rest[:i+1])
		w.rest = w.rest[i+1:]
	}
}

func (w *lines) put(line []byte) {
	w.last = string(line)
	if w.to != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = w.to.Write(append([]byte(w.prefix), line...))
	}
}

func (w *lines) flush() {
	if len(w.rest) > 0 {
		w.put(append(w.rest, '\n'))
	}
}

// Exec runs another program on this one's streams; its exit code is in the error.
func Exec(ctx context.Context, stdout, stderr io.Writer, program string, args ...string) error {
	c := command(ctx, []string{program}, args...)
	tail := &lines{to: stderr, mu: &sync.Mutex{}}
	c.Stdout, c.Stderr = stdout, tail
	err := c.Run()
	tail.flush()
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case c.ProcessState == nil:
		return robocache.Misuse("submit", robocache.Where{"program": program}, "").WithCause(err)
	}
	return &Failed{Verb: args[1], Code: codeOf(c), Last: lastLine(tail.last), Err: err}
}
