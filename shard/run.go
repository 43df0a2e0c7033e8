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

// ErrNever is in the error of a shard that fails in every attempt. The exit code is 42.
var ErrNever = errors.New("this shard can never succeed")

// ErrStopped is the cause of a shard that was stopped from outside (TERM, USR1). Another attempt
// may succeed. The exit code is 75.
var ErrStopped = errors.New("stopped from outside")

const (
	stagingName  = "_staging"
	receiptsName = "_receipts"
	commitName   = "_commit.json"
	missingName  = receiptsName + "/missing.json" // shards that the result omits
	// A partial commit began: attempts move no more files.
	partialName = stagingName + "/partial"
)

// Receipt lists the files of a shard.
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
	// Already is set if a receipt existed before this attempt, or if another attempt won.
	Already bool `json:"-"`
}

// File is a file of a shard. Its name is relative to the attempt.
type File struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Checksum string `json:"checksum"` // "crc32c:…"
}

// Skipped is an episode that could not be read and was skipped because the job allows it.
type Skipped struct {
	Episode int    `json:"episode"` // index in the source
	Reason  string `json:"reason"`
}

// note is the state of an attempt without a receipt.
type note struct {
	State     string    `json:"state"` // running or failed
	Attempt   string    `json:"attempt"`
	Host      string    `json:"host,omitempty"`
	Started   time.Time `json:"started"`
	Time      time.Time `json:"time"` // time of this note
	Done      int       `json:"done"`
	Of        int       `json:"of"`
	Class     string    `json:"class,omitempty"`
	Error     string    `json:"error,omitempty"`
	Permanent bool      `json:"permanent,omitempty"`
}

func shardName(i int) string            { return fmt.Sprintf("%05d", i) }
func receiptName(i int) string          { return receiptsName + "/" + shardName(i) + ".json" }
func attemptDir(i int, a string) string { return stagingName + "/" + shardName(i) + "/" + a }

// RunOptions configures Run.
type RunOptions struct {
	Tool     string
	Threads  int
	Progress func(robocache.Progress)
	// Heartbeat is the interval at which an attempt rewrites its note. 0 means 30 s.
	Heartbeat time.Duration
}

// attempt is one attempt to run a shard.
type attempt struct {
	manifest *Manifest
	shard    int
	dst      store.Writable
	dir      string // folder of its files in dst
	uri      string // URI of dir, as a destination for writers
	options  RunOptions

	// isReceiptSent is set before the receipt is written. The receipt may exist even if writing it
	// failed.
	isReceiptSent bool

	mu   sync.Mutex
	note note
}

// Run runs one shard of a manifest. If another attempt has a receipt, Run returns that one.
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
	if r, err := m.readReceipt(ctx, dst, shard); r != nil || err != nil {
		return r, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id)
	host, _ := os.Hostname()
	a := &attempt{
		manifest: m,
		shard:    shard,
		dst:      dst,
		options:  opt,
		note: note{
			State:   "running",
			Attempt: hex.EncodeToString(id),
			Host:    host,
			Started: time.Now().UTC(),
			Of:      len(m.Shards[shard].Episodes),
		},
	}
	a.dir = attemptDir(shard, a.note.Attempt)
	a.uri = joinURI(m.Job.Destination, a.dir)
	if err := a.writeNote(ctx); err != nil {
		return nil, err
	}
	r, err := a.runOnce(ctx)
	if err == nil {
		return r, nil
	}
	// Do not use the caller's context, which may have been canceled.
	bg, stop := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer stop()
	if won, rerr := m.readReceipt(bg, dst, shard); rerr == nil && won != nil {
		return a.finishAfter(bg, won), nil
	}
	err = a.classifyError(ctx, err)
	if !a.isReceiptSent { // otherwise they may be the files of the shard, which GC decides
		a.removeFiles(bg)
	}
	a.note.State, a.note.Error = "failed", err.Error()
	a.note.Class, _ = robocache.ClassOf(err)
	a.note.Permanent = errors.Is(err, ErrNever)
	_ = a.writeNote(bg)
	return nil, err
}

// classifyError wraps an error that every attempt would repeat in a permanentError.
func (a *attempt) classifyError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); ctx.Err() != nil {
		if errors.Is(cause, ErrStopped) {
			return robocache.Temporary("run", robocache.Where{"shard": a.shard}, "").
				WithCause(cause)
		}
		return ctx.Err()
	}
	err = robocache.At(err, robocache.Where{"shard": a.shard})
	for _, class := range []error{
		robocache.ErrMalformed,
		robocache.ErrUnsupported,
		robocache.ErrMisuse,
		robocache.ErrNotFound,
	} {
		if errors.Is(err, class) && !errors.Is(err, robocache.ErrTemporary) &&
			!errors.Is(err, robocache.ErrResourceLimit) {
			return &permanentError{err}
		}
	}
	return err
}

// permanentError is an error that another attempt would repeat.
type permanentError struct{ error }

func (n *permanentError) Unwrap() []error { return []error{ErrNever, n.error} }

// runOnce writes the shard's files and the receipt.
func (a *attempt) runOnce(ctx context.Context) (r *Receipt, err error) {
	defer crash.Recover("run", &err)
	if err := a.manifest.checkUnchanged(ctx); err != nil {
		return r, err
	}
	stopHeartbeat := a.startHeartbeat(ctx)
	defer stopHeartbeat()
	{
		sharding, err := a.manifest.outputSharding()
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
	src, err := openSource(ctx, &a.manifest.Job)
	if err != nil {
		return r, err
	}
	defer src.Close()
	r = &Receipt{
		Manifest: a.manifest.id,
		Shard:    a.shard,
		Attempt:  a.note.Attempt,
		Tool:     a.options.Tool,
		Files:    []File{},
		Started:  a.note.Started,
	}
	kind, err := findJob(a.manifest.Job.Name)
	if err != nil {
		return r, err
	}
	if err := kind.run(ctx, a, src, r); err != nil {
		return r, err
	}
	if err := a.listFiles(ctx, r); err != nil {
		return r, err
	}
	stopHeartbeat() // stop the heartbeat only now, because GC treats an attempt without one as dead
	r.Seconds = time.Since(r.Started).Seconds()
	a.isReceiptSent = true
	encoded, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	err = store.PutNew(ctx, a.dst, receiptName(a.shard), encoded)
	if !errors.Is(err, store.ErrExists) {
		if err == nil {
			if err := a.publishFiles(ctx, r); err != nil {
				return r, err
			}
			a.removeNote(ctx)
		}
		return r, err
	}
	won, failed := a.manifest.readReceipt(ctx, a.dst, a.shard)
	if failed != nil {
		return r, failed
	}
	if won == nil {
		return nil, err
	}
	return a.finishAfter(ctx, won), nil
}

// finishAfter cleans up if there is a receipt. If the receipt is from another attempt, the files of
// this one are removed. Otherwise the response to its own receipt was lost.
func (a *attempt) finishAfter(ctx context.Context, won *Receipt) *Receipt {
	a.removeNote(ctx)
	if won.Already = won.Attempt != a.note.Attempt; won.Already {
		a.removeFiles(ctx)
	}
	return won
}

// publishFiles gives the files of the shard their final names if these do not depend on other
// shards, because many workers can do this in parallel. Commit moves the remaining files.
func (a *attempt) publishFiles(ctx context.Context, r *Receipt) error {
	f, err := a.manifest.outputSharding()
	if err != nil {
		return err
	}
	if f.Place != nil {
		return nil
	}
	// The order matters, because the partial marker is removed after the commit. Files that a
	// result omits must not be added to it.
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

// listFiles lists the written files with checksums.
func (a *attempt) listFiles(ctx context.Context, r *Receipt) error {
	entries, err := a.dst.List(ctx, a.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := checksumFile(ctx, a.dst, e.Name)
		if err != nil {
			return err
		}
		f.Name = strings.TrimPrefix(e.Name, a.dir+"/")
		r.Files = append(r.Files, f)
		r.Bytes += f.Size
	}
	return nil
}

// checksumFile returns the size and checksum of a file.
func checksumFile(ctx context.Context, st store.Store, name string) (_ File, err error) {
	defer robocache.LocateIn(&err, "file", name)
	f, err := st.Open(ctx, name)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	sum, err := rangedChecksum(ctx, f)
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Size: f.Size(), Checksum: sum}, nil
}

func rangedChecksum(ctx context.Context, f robocache.Ranged) (string, error) {
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

// recordProgress updates the progress in the note. It counts episodes if the job does.
func (a *attempt) recordProgress(p robocache.Progress) {
	a.mu.Lock()
	if a.note.Done, a.note.Of = p.Episodes, p.TotalEpisodes; p.TotalEpisodes == 0 {
		a.note.Done, a.note.Of = int(p.Done), int(p.Total)
	}
	a.mu.Unlock()
	if a.options.Progress != nil {
		a.options.Progress(p)
	}
}

// startHeartbeat rewrites the note periodically. The returned function stops it.
func (a *attempt) startHeartbeat(ctx context.Context) func() {
	every := a.options.Heartbeat
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
					_ = a.writeNote(ctx)
					return nil
				})()
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}

// writeNote writes the note.
func (a *attempt) writeNote(ctx context.Context) error {
	a.mu.Lock()
	a.note.Time = time.Now().UTC()
	b, err := json.Marshal(&a.note)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	return store.Put(ctx, a.dst, a.dir+".json", b)
}

func (a *attempt) removeNote(ctx context.Context) {
	_ = a.dst.Remove(context.WithoutCancel(ctx), a.dir+".json")
}

// removeFiles removes the files of the attempt.
func (a *attempt) removeFiles(ctx context.Context) {
	list, _ := a.dst.List(ctx, a.dir)
	for _, e := range list {
		_ = a.dst.Remove(ctx, e.Name)
	}
	removeEmpty(a.uri)
}

// readReceipt reads the receipt of a shard. It returns nil if there is none.
func (m *Manifest) readReceipt(
	ctx context.Context,
	st store.Store,
	shard int,
) (_ *Receipt, err error) {
	name := receiptName(shard)
	b, err := store.ReadFile(ctx, st, name, 1<<30)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Receipt{Already: true}
	if err := m.parseReceipt(name, b, shard, r); err != nil {
		return nil, err
	}
	return r, nil
}

// plannedEpisodes returns the number of episodes of the result that a shard was planned to write.
func (m *Manifest) plannedEpisodes(shard int) int {
	end := m.Episodes
	if shard+1 < len(m.Shards) {
		end = m.Shards[shard+1].FirstEpisode
	}
	return end - m.Shards[shard].FirstEpisode
}

// parseReceipt parses and checks a receipt from an untrusted source.
func (m *Manifest) parseReceipt(name string, b []byte, shard int, r *Receipt) error {
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
		return robocache.Misuse("receipt", robocache.Where{
			"file": name,
		}, "the destination holds shards of another manifest").
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
		if clean, err := store.CleanName(f.Name); err != nil || clean != f.Name ||
			strings.HasPrefix(f.Name, "_") {
			if err := bad(fmt.Sprintf("a file named %q", f.Name), err); err != nil {
				return err
			}
		}
	}
	if s := &m.Shards[shard]; r.Report.Episodes < 0 || r.Report.Frames < 0 ||
		r.Report.Episodes > m.plannedEpisodes(shard) ||
		r.Report.Frames > s.Frames {
		if err := bad("more episodes or frames than were planned", nil); err != nil {
			return err
		}
	} else if len(r.Skipped) == 0 && r.Report.Frames != s.Frames {
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
