package shard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// ErrNever is in the error of a shard that cannot succeed, however often it is tried: exit code 42.
var ErrNever = errors.New("this shard can never succeed")

// ErrStopped ended a shard from outside (TERM, USR1): another attempt may succeed, exit code 75.
var ErrStopped = errors.New("stopped from outside")

const (
	stagingName  = "_staging"
	receiptsName = "_receipts"
	commitName   = "_commit.json"
	missingName  = receiptsName + "/missing.json" // which shards the result is without
	// a commit of a part began: no attempt brings files to their places behind it
	partialName = stagingName + "/partial"
)

// Receipt says what a shard is made of.
type Receipt struct {
	Manifest string                `json:"manifest_sha256"`
	Shard    int                   `json:"shard"`
	Attempt  string                `json:"attempt"`
	Tool     string                `json:"tool"`
	Files    []File                `json:"files"`
	Bytes    int64                 `json:"bytes"`
	Skipped  []Skipped             `json:"skipped,omitempty"`
	Findings []robocache.Finding   `json:"findings,omitempty"`
	Report   robocache.ShardReport `json:"report"`
	Started  time.Time             `json:"started"`
	Seconds  float64               `json:"seconds"`
	// there was a receipt before this attempt, or another attempt won
	Already bool `json:"-"`
}

// File is a file of a shard, named relative to its attempt.
type File struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Checksum string `json:"checksum"` // "crc32c:…"
}

// Skipped is an episode that could not be read, and was left out because the job allows that.
type Skipped struct {
	Episode int    `json:"episode"` // its index in the source
	Reason  string `json:"reason"`
}

// note is what an attempt says of itself while it has no receipt.
type note struct {
	State     string    `json:"state"` // running, failed
	Attempt   string    `json:"attempt"`
	Host      string    `json:"host,omitempty"`
	Started   time.Time `json:"started"`
	Time      time.Time `json:"time"` // of this note
	Done      int       `json:"done"`
	Of        int       `json:"of"`
	Class     string    `json:"class,omitempty"`
	Error     string    `json:"error,omitempty"`
	Permanent bool      `json:"permanent,omitempty"`
}

func shardName(i int) string            { return fmt.Sprintf("%05d", i) }
func receiptName(i int) string          { return receiptsName + "/" + shardName(i) + ".json" }
func attemptDir(i int, a string) string { return stagingName + "/" + shardName(i) + "/" + a }

// RunOptions are the choices of Run.
type RunOptions struct {
	Tool     string
	Threads  int
	Progress func(robocache.Progress)
	// Heartbeat is how often an attempt says that it lives; 0 = 30 s.
	Heartbeat time.Duration
}

// attempt is one run of one shard.
type attempt struct {
	m     *Manifest
	shard int
	dst   store.Writable
	dir   string // of its files, in dst
	uri   string // the same as a destination of writers
	opt   RunOptions

	// put is true once its receipt was sent: it may be there, whatever the answer was.
	put bool

	mu   sync.Mutex
	note note
}

// Run makes one shard of a manifest. The receipt of another attempt is as good as its own.
func Run(ctx context.Context, m *Manifest, shard int, opt RunOptions) (_ *Receipt, err error) {
	if shard < 0 || shard >= len(m.Shards) {
		return nil, robocache.Misuse("run", nil, "").
			Expected(fmt.Sprintf("a shard from 0 to %d", len(m.Shards)-1), fmt.Sprint(shard))
	}
	dst, err := store.OpenWritable(m.Job.Destination)
	if err != nil {
		return nil, err
	}
	defer store.Close(dst)
	if r, err := m.receipt(ctx, dst, shard); r != nil || err != nil {
		return r, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id)
	host, _ := os.Hostname()
	a := &attempt{
		m:     m,
		shard: shard,
		dst:   dst,
		opt:   opt,
		note: note{
			State:   "running",
			Attempt: hex.EncodeToString(id),
			Host:    host,
			Started: time.Now().UTC(),
			Of:      len(m.Shards[shard].Episodes),
		},
	}
	a.dir = attemptDir(shard, a.note.Attempt)
	a.uri = below(m.Job.Destination, a.dir)
	if err := a.say(ctx); err != nil {
		return nil, err
	}
	r, err := a.run(ctx)
	if err == nil {
		return r, nil
	}
	// Without the caller's context: it may be the one that ended.
	bg, stop := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer stop()
	if won, rerr := m.receipt(bg, dst, shard); rerr == nil && won != nil {
		return a.after(bg, won), nil
	}
	err = a.failed(ctx, err)
	if !a.put { // else they may be the shard's: GC knows
		a.clear(bg)
	}
	a.note.State, a.note.Error = "failed", err.Error()
	a.note.Class, _ = robocache.ClassOf(err)
	a.note.Permanent = errors.Is(err, ErrNever)
	_ = a.say(bg)
	return nil, err
}

// failed says of an error whether another attempt may succeed.
func (a *attempt) failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); ctx.Err() != nil {
		if errors.Is(cause, ErrStopped) {
			return robocache.Temporary("run", robocache.Where{"shard": a.shard}, "").
				WithCause(cause)
		}
		return ctx.Err()
	}
	err = robocache.At(err, robocache.Where{"shard": a.shard})
	for _, class := range []error{robocache.ErrMalformed, robocache.ErrUnsupported, robocache.ErrMisuse, robocache.ErrNotFound} {
		if errors.Is(err, class) && !errors.Is(err, robocache.ErrTemporary) &&
			!errors.Is(err, robocache.ErrResourceLimit) {
			return &never{err}
		}
	}
	return err
}

// never is an error that another attempt would meet again.
type never struct{ error }

func (n *never) Unwrap() []error { return []error{ErrNever, n.error} }

// run makes the shard's files, and the receipt.
func (a *attempt) run(ctx context.Context) (r *Receipt, err error) {
	defer crash.Recover("run", &err)
	if err := a.m.unchanged(ctx); err != nil {
		return r, err
	}
	live := a.live(ctx)
	defer live()
	{
		sharding, err := a.m.sharding()
		if err != nil {
			return r, err
		}
		name := sharding.Unfinished
		if name != "" {
			if err := store.Put(ctx, a.dst, name, nil); err != nil {
				return r, err
			}
		}
	}
	src, err := openSource(ctx, &a.m.Job)
	if err != nil {
		return r, err
	}
	defer src.Close()
	r = &Receipt{
		Manifest: a.m.id,
		Shard:    a.shard,
		Attempt:  a.note.Attempt,
		Tool:     a.opt.Tool,
		Files:    []File{},
		Started:  a.note.Started,
	}
	jobOfValue, err := jobOf(a.m.Job.Name)
	if err != nil {
		return r, err
	}
	if err := jobOfValue.run(ctx, a, src, r); err != nil {
		return r, err
	}
	if err := a.files(ctx, r); err != nil {
		return r, err
	}
	live() // not before: to GC an attempt that says nothing is dead
	r.Seconds = time.Since(r.Started).Seconds()
	a.put = true
	encodedValue, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	err = store.PutNew(ctx, a.dst, receiptName(a.shard), encodedValue)
	if !errors.Is(err, store.ErrExists) {
		if err == nil {
			if err := a.publish(ctx, r); err != nil {
				return r, err
			}
			a.forget(ctx)
		}
		return r, err
	}
	won, failed := a.m.receipt(ctx, a.dst, a.shard)
	if failed != nil {
		return r, failed
	}
	if won == nil {
		return nil, err
	}
	return a.after(ctx, won), nil
}

// after tidies up where there is a receipt: the attempt's own, where the answer to it was lost, or
// that of another, which makes its files garbage.
func (a *attempt) after(ctx context.Context, won *Receipt) *Receipt {
	a.forget(ctx)
	if won.Already = won.Attempt != a.note.Attempt; won.Already {
		a.clear(ctx)
	}
	return won
}

// publish gives the files of the shard their names in the result, where these do not hang on other
// shards: workers are many. What it does not come to, Commit does.
func (a *attempt) publish(ctx context.Context, r *Receipt) error {
	f, err := a.m.sharding()
	if err != nil {
		return err
	}
	if f.Place != nil {
		return nil
	}
	// in this order: the marker goes when there is a commit. What was left out of a result must not
	// come into it
	for _, name := range []string{partialName, commitName} {
		if _, err := a.dst.Stat(ctx, name); !errors.Is(err, robocache.ErrNotFound) {
			return nil
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, file := range r.Files {
		if f.Kept(file.Name) {
			g.Go(func() error { return store.Move(ctx, a.dst, a.dir+"/"+file.Name, file.Name) })
		}
	}
	_ = g.Wait()
	removeEmpty(a.uri)
	return nil
}

// files lists what the attempt wrote, with checksums.
func (a *attempt) files(ctx context.Context, r *Receipt) error {
	listValue, err := a.dst.List(ctx, a.dir)
	if err != nil {
		return err
	}
	for _, e := range listValue {
		f, err := checksum(ctx, a.dst, e.Name)
		if err != nil {
			return err
		}
		f.Name = strings.TrimPrefix(e.Name, a.dir+"/")
		r.Files = append(r.Files, f)
		r.Bytes += f.Size
	}
	return nil
}

// checksum reads a file for its size and checksum.
func checksum(ctx context.Context, st store.Store, name string) (_ File, err error) {
	defer robocache.LocateIn(&err, "file", name)
	f, err := st.Open(ctx, name)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	sumOfValue, err := sumOf(ctx, f)
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Size: f.Size(), Checksum: sumOfValue}, nil
}

func sumOf(ctx context.Context, f robocache.Ranged) (string, error) {
	table, sum := crc32.MakeTable(crc32.Castagnoli), uint32(0)
	if err := store.EachBlock(
		ctx,
		f,
		func(b []byte) error { sum = crc32.Update(sum, table, b); return nil },
	); err != nil {
		return "", err
	}
	return fmt.Sprintf("crc32c:%08x", sum), nil
}

// progress records how far the job is: in its note as episodes, if the job counts those.
func (a *attempt) progress(p robocache.Progress) {
	a.mu.Lock()
	if a.note.Done, a.note.Of = p.Episodes, p.TotalEpisodes; p.TotalEpisodes == 0 {
		a.note.Done, a.note.Of = int(p.Done), int(p.Total)
	}
	a.mu.Unlock()
	if a.opt.Progress != nil {
		a.opt.Progress(p)
	}
}

// live writes the note again and again until it is called off.
func (a *attempt) live(ctx context.Context) func() {
	every := a.opt.Heartbeat
	if every <= 0 {
		every = 30 * time.Second
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for t := time.NewTicker(every); ; {
			select {
			case <-end:
				t.Stop()
				return
			case <-t.C:
				_ = crash.Func("run", func() error {
					_ = a.say(ctx)
					return nil
				})()
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}

// say writes the note.
func (a *attempt) say(ctx context.Context) error {
	a.mu.Lock()
	a.note.Time = time.Now().UTC()
	b, err := json.Marshal(&a.note)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	return store.Put(ctx, a.dst, a.dir+".json", b)
}

func (a *attempt) forget(ctx context.Context) {
	_ = a.dst.Remove(context.WithoutCancel(ctx), a.dir+".json")
}

// clear removes what the attempt wrote.
func (a *attempt) clear(ctx context.Context) {
	list, _ := a.dst.List(ctx, a.dir)
	for _, e := range list {
		_ = a.dst.Remove(ctx, e.Name)
	}
	removeEmpty(a.uri)
}

// receipt reads that of a shard; nil where there is none.
func (m *Manifest) receipt(ctx context.Context, st store.Store, shard int) (_ *Receipt, err error) {
	name := receiptName(shard)
	b, err := store.ReadFile(ctx, st, name, 1<<30)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Receipt{Already: true}
	if err := m.read(name, b, shard, r); err != nil {
		return nil, err
	}
	return r, nil
}

// planned returns how many episodes of the result a shard was planned to make.
func (m *Manifest) planned(shard int) int {
	end := m.Episodes
	if shard+1 < len(m.Shards) {
		end = m.Shards[shard+1].FirstEpisode
	}
	return end - m.Shards[shard].FirstEpisode
}

// read checks a receipt, which may be a stranger's.
func (m *Manifest) read(name string, b []byte, shard int, r *Receipt) error {
	bad := func(msg string, err error) error {
		return robocache.Malformed("receipt", robocache.Where{"file": name}, "%s", msg).
			WithCause(err).WithHint("remove it, and run the shard again")
	}
	if err := json.Unmarshal(b, r); err != nil {
		if err := bad("it cannot be read", err); err != nil {
			return err
		}
	}
	if r.Manifest != m.id {
		return robocache.Misuse("receipt", robocache.Where{"file": name}, "the destination holds shards of another manifest").
			WithHint("choose an empty destination, or the manifest that was run here")
	}
	if r.Shard != shard {
		if err := bad(fmt.Sprintf("it is of shard %d", r.Shard), nil); err != nil {
			return err
		}
	}
	if b, err := hex.DecodeString(r.Attempt); err != nil || len(b) != 8 {
		if err := bad("its attempt has no name", nil); err != nil {
			return err
		}
	}
	for _, f := range r.Files {
		if clean, err := store.CleanName(
			f.Name,
		); err != nil || clean != f.Name ||
			strings.HasPrefix(f.Name, "_") {
			if err := bad(fmt.Sprintf("a file named %q", f.Name), err); err != nil {
				return err
			}
		}
	}
	if s := &m.Shards[shard]; r.Report.Episodes < 0 || r.Report.Frames < 0 ||
		r.Report.Episodes > m.planned(shard) ||
		r.Report.Frames > s.Frames {
		if err := bad("more episodes or frames than were planned", nil); err != nil {
			return err
		}
	} else if len(
		r.Skipped,
	) == 0 &&
		r.Report.Frames != s.Frames {
		if err := bad(
			fmt.Sprintf(
				"%d frames of %d that were planned, and no episode that was left out",
				r.Report.Frames,
				s.Frames,
			),
			nil,
		); err != nil {
			return err
		}
	}
	slices.SortFunc(r.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return nil
}
