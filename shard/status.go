package shard

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
	"golang.org/x/sync/errgroup"
)

// Status is the state of a manifest's shards according to receipts and notes.
type Status struct {
	Run      string         `json:"run"` // name of the plan in logs
	Total    int            `json:"total"`
	Done     int            `json:"done"`
	Running  int            `json:"running"`
	Failed   int            `json:"failed"`
	Lost     int            `json:"lost"` // started, but without a note for ten minutes
	ByClass  map[string]int `json:"failed_by_class,omitempty"`
	Never    Episodes       `json:"never,omitempty"` // failed permanently
	Missing  Episodes       `json:"missing,omitempty"`
	Array    string         `json:"array,omitempty"` // missing shards as an option of sbatch
	Episodes int            `json:"num_episodes"`
	Frames   int64          `json:"num_frames"`
	Bytes    int64          `json:"bytes"`
	Skipped  int            `json:"skipped"`
	// warnings and errors of the plan and of finished shards
	Findings   int      `json:"findings"`
	ETASeconds float64  `json:"eta_seconds,omitempty"`
	Committed  bool     `json:"committed"`
	Errors     []string `json:"errors,omitempty"` // first error of each class
}

// quietLimit is the age of a note up to which its attempt counts as running.
const quietLimit = 10 * time.Minute

// StatusOf reads the state of the shards.
func StatusOf(ctx context.Context, m *Manifest) (_ *Status, err error) {
	defer crash.Recover("shard", &err)
	s := &Status{Run: m.Run(), Total: len(m.Shards), ByClass: map[string]int{}}
	st, err := store.Open(m.Job.Destination)
	if errors.Is(err, robocache.ErrNotFound) {
		for i := range m.Shards {
			s.Missing = append(s.Missing, i)
		}
		s.Array = arrayOption(s.Missing)
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close(st)
	sizes, err := listSizes(ctx, st, receiptsName)
	if err != nil {
		return nil, err
	}
	receipts, missing, err := m.readReceipts(ctx, st, sizes)
	if err != nil {
		return nil, err
	}
	committed, err := m.readCommitted(ctx, st)
	if err != nil {
		return nil, err
	}
	s.Committed = committed != nil
	s.Done, s.Missing, s.Array = len(receipts), missing, arrayOption(missing)
	var seconds float64
	var bytes, left int64
	for _, r := range receipts {
		s.Episodes, s.Frames = s.Episodes+r.Report.Episodes, s.Frames+r.Report.Frames
		s.Bytes, s.Skipped = s.Bytes+r.Bytes, s.Skipped+len(r.Skipped)
		seconds, bytes = seconds+r.Seconds, bytes+m.Shards[r.Shard].Bytes+1
	}
	for _, f := range m.allFindings(receipts) {
		if f.Severity != robocache.SeverityInfo {
			s.Findings++
		}
	}
	last := map[int]note{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(16)
	entries, err := st.List(ctx, stagingName)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		shard, attempt := attemptOf(e.Name)
		i, err := strconv.Atoi(shard)
		if _, there := slices.BinarySearch(missing, i); err != nil || !there ||
			strings.Count(e.Name, "/") != 2 || !strings.HasSuffix(attempt, ".json") {
			continue
		}
		g.Go(func() error {
			b, err := store.ReadFile(ctx, st, e.Name, 1<<20)
			var n note
			if err == nil && json.Unmarshal(b, &n) == nil {
				mu.Lock()
				defer mu.Unlock()
				if n.Time.After(last[i].Time) {
					last[i] = n
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	for _, i := range missing {
		left += m.Shards[i].Bytes + 1
		switch n, ok := last[i]; {
		case !ok:
		case n.State == "failed":
			s.Failed++
			if s.ByClass[n.Class]++; s.ByClass[n.Class] == 1 {
				s.Errors = append(s.Errors, n.Error)
			}
			if n.Permanent {
				s.Never = append(s.Never, i)
			}
		case time.Since(n.Time) > quietLimit:
			s.Lost++
		default:
			s.Running++
		}
	}
	if seconds > 0 && bytes > 0 {
		s.ETASeconds = seconds / float64(bytes) * float64(left) / float64(max(1, s.Running))
	}
	return s, nil
}

// arrayOption returns an option of sbatch.
func arrayOption(shards Episodes) string {
	if len(shards) == 0 {
		return ""
	}
	text, _ := shards.MarshalText()
	return "--array=" + string(text)
}
