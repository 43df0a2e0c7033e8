package shard

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Collected is the result of GC.
type Collected struct {
	Attempts int   `json:"attempts"`
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"`
	Kept     int   `json:"running_attempts_kept"`
}

// GC removes staged files that no receipt names: those of attempts that lost, failed or died. It
// keeps an attempt of a shard without a receipt if its note is newer than age, because the attempt
// may be running.
func GC(ctx context.Context, m *Manifest, age time.Duration) (_ *Collected, err error) {
	defer crash.Recover("shard", &err)
	dst, err := store.OpenWritable(m.Job.Destination)
	if err != nil {
		return nil, err
	}
	defer store.Close(dst)
	// List the files and running attempts first and the receipts afterwards. An attempt that ends
	// in between then has its receipt.
	list, err := dst.List(ctx, stagingName)
	if err != nil {
		return nil, err
	}
	living := map[string]bool{}
	for _, e := range list {
		shard, attempt := attemptOf(e.Name)
		if name, note := strings.CutSuffix(attempt, ".json"); note &&
			isAlive(ctx, dst, e.Name, age) {
			living[shard+"/"+name] = true
		}
	}
	sizes, err := listSizes(ctx, dst, receiptsName)
	if err != nil {
		return nil, err
	}
	receipts, _, err := m.readReceipts(ctx, dst, sizes)
	if err != nil {
		return nil, err
	}
	named := map[string]string{} // shard → attempt
	for _, r := range receipts {
		named[shardName(r.Shard)] = r.Attempt
	}
	result, err := m.readCommitted(ctx, dst)
	if err != nil {
		return nil, err
	}
	committed := result != nil
	if committed { // the committed files have their final names
		for shard := range named {
			named[shard] = "none"
		}
		{
			sharding, err := m.outputSharding()
			if err != nil {
				return nil, err
			}
			name := sharding.Unfinished
			if name != "" { // may be left by an attempt that started during the commit
				_ = dst.Remove(ctx, name)
			}
		}
	}
	out := &Collected{}
	for attempt := range living {
		if shard, _, _ := strings.Cut(attempt, "/"); named[shard] != "" {
			delete(living, attempt) // it lost, or its note is no longer needed
		}
	}
	out.Kept = len(living)
	attempts := map[string]bool{}
	for _, e := range list {
		shard, attempt := attemptOf(e.Name)
		name := strings.TrimSuffix(attempt, ".json")
		if shard == "" && !committed || shard != "" && named[shard] == name ||
			living[shard+"/"+name] {
			continue
		}
		if err := dst.Remove(ctx, e.Name); err != nil {
			return nil, err
		}
		attempts[shard+"/"+name] = true
		out.Files, out.Bytes = out.Files+1, out.Bytes+e.Size
	}
	if l, ok := dst.(*store.Local); ok { // unfinished files of killed processes
		if _, err := l.Sweep(ctx, age); err != nil {
			return nil, err
		}
	}
	out.Attempts = len(attempts)
	removeEmpty(joinURI(m.Job.Destination, stagingName))
	return out, nil
}

// attemptOf splits the name of a file below _staging.
func attemptOf(name string) (shard, attempt string) {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) < 3 || parts[0] != stagingName {
		return "", ""
	}
	return parts[1], parts[2]
}

// isAlive reports whether a note belongs to a running attempt.
func isAlive(ctx context.Context, st store.Store, name string, age time.Duration) bool {
	b, err := store.ReadFile(ctx, st, name, 1<<20)
	var n note
	return err == nil && json.Unmarshal(b, &n) == nil && n.State == "running" &&
		time.Since(n.Time) < age
}
