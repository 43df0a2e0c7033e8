package shard

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Collected says what GC removed.
type Collected struct {
	Attempts int   `json:"attempts"`
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"`
	Kept     int   `json:"running_attempts_kept"`
}

// GC removes the staging that no receipt names: of attempts that lost, failed or died. An attempt
// at a shard without a receipt that was heard of within age is left alone: it may be running.
func GC(ctx context.Context, m *Manifest, age time.Duration) (_ *Collected, err error) {
	defer crash.Recover("shard", &err)
	dst, err := store.OpenWritable(m.Job.Destination)
	if err != nil {
		return nil, err
	}
	defer store.Close(dst)
	// First what lies there and who lives, then the receipts: an attempt that ends meanwhile has
	// one by then.
	list, err := dst.List(ctx, stagingName)
	if err != nil {
		return nil, err
	}
	living := map[string]bool{}
	for _, e := range list {
		shard, attempt := attemptOf(e.Name)
		if name, note := strings.CutSuffix(attempt, ".json"); note && alive(ctx, dst, e.Name, age) {
			living[shard+"/"+name] = true
		}
	}
	listedValue, err := listed(ctx, dst, receiptsName)
	if err != nil {
		return nil, err
	}
	receipts, _, err := m.receipts(ctx, dst, listedValue)
	if err != nil {
		return nil, err
	}
	named := map[string]string{} // shard → attempt
	for _, r := range receipts {
		named[shardName(r.Shard)] = r.Attempt
	}
	committedValue, err := m.committed(ctx, dst)
	if err != nil {
		return nil, err
	}
	committed := committedValue != nil
	if committed { // its files have their places
		for shard := range named {
			named[shard] = "none"
		}
		{
			sharding, err := m.sharding()
			if err != nil {
				return nil, err
			}
			name := sharding.Unfinished
			if name != "" { // of an attempt that began beside the commit
				_ = dst.Remove(ctx, name)
			}
		}
	}
	out := &Collected{}
	for attempt := range living {
		if shard, _, _ := strings.Cut(attempt, "/"); named[shard] != "" {
			delete(living, attempt) // it lost, or needs its note no more
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
	removeEmpty(below(m.Job.Destination, stagingName))
	return out, nil
}

// attemptOf takes the name of a file below _staging apart.
func attemptOf(name string) (shard, attempt string) {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) < 3 || parts[0] != stagingName {
		return "", ""
	}
	return parts[1], parts[2]
}

// alive says whether a note is of an attempt that runs.
func alive(ctx context.Context, st store.Store, name string, age time.Duration) bool {
	b, err := store.ReadFile(ctx, st, name, 1<<20)
	var n note
	return err == nil && json.Unmarshal(b, &n) == nil && n.State == "running" &&
		time.Since(n.Time) < age
}
