package formattest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Fixture is a dataset on which a reader is tested.
type Fixture struct {
	URI     string
	Format  string // registered name of the format
	Options robocache.OpenOptions
	// Episodes bounds how many episodes are read; 0 = 4. Rows bounds how many rows of each stream
	// are read; 0 = 40.
	Episodes, Rows int
	// Undetected disables the check of formattest.F8, because the URI does not determine the
	// format.
	Undetected bool
}

// Run runs the suite.
func Run(t *testing.T, fixtures ...Fixture) {
	for _, f := range fixtures {
		t.Run(f.Format+" "+shortName(f.URI), func(t *testing.T) { run(t, f) })
	}
}

func shortName(uri string) string {
	if len(uri) > 40 {
		return "…" + uri[len(uri)-40:]
	}
	return uri
}

func run(t *testing.T, f Fixture) {
	if f.Episodes == 0 {
		f.Episodes = 4
	}
	if f.Rows == 0 {
		f.Rows = 40
	}
	f.Options.Format = f.Format
	before := runtime.NumGoroutine()
	s := &suite{T: t, f: f, ctx: context.Background(), ds: f.open(t)}
	s.info()
	s.capabilities()
	for _, e := range s.episodes() {
		s.times(e)
		for i := range s.ds.Info().Features {
			s.rows(e, &s.ds.Info().Features[i])
		}
	}
	s.tasks()
	s.strangers()
	s.together()
	s.ended()
	s.detected()
	if t.Failed() {
		_ = s.ds.Close()
		return
	}
	s.closed(before)
}

type suite struct {
	*testing.T
	f   Fixture
	ctx context.Context
	ds  robocache.Dataset
}

func (f *Fixture) open(t *testing.T) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(context.Background(), f.URI, f.Options)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// capabilities checks formattest.F9: each method with the name of a capability is in the struct of
// the dataset.
func (s *suite) capabilities() {
	own := s.ds.Capabilities()
	if own == nil || own != s.ds.Capabilities() {
		s.Fatal("Capabilities returns nil, or another struct at each call")
	}
	fields := reflect.ValueOf(own).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if m := reflect.ValueOf(s.ds).MethodByName(name); m.IsValid() && fields.Field(i).IsNil() {
			s.Errorf("the dataset has the method %s, and not the capability", name)
		}
	}
}

// info checks formattest.F1.
func (s *suite) info() {
	i := s.ds.Info()
	if i.Format != s.f.Format || i.URI == "" {
		s.Errorf("info: format %q, URI %q", i.Format, i.URI)
	}
	seen, clocks := map[string]bool{}, map[string]bool{}
	for k := range i.Features {
		f := &i.Features[k]
		if seen[f.Key] || f.Key == "" {
			s.Errorf("info: key %q twice, or empty", f.Key)
		}
		seen[f.Key], clocks[f.Clock] = true, true
		for at, n := range f.Shape {
			if n < 0 && at > 0 || n < -1 {
				s.Errorf("%s: shape %v", f.Key, f.Shape)
			}
		}
		switch f.Kind {
		case robocache.KindNumeric, robocache.KindPointCloud:
			if f.DType.Size() == 0 {
				s.Errorf("%s: %s of %s", f.Key, f.Kind, f.DType)
			}
			if f.Kind == robocache.KindPointCloud && !f.Ragged() {
				s.Errorf("%s: a point cloud of shape %v", f.Key, f.Shape)
			}
		case robocache.KindImage, robocache.KindVideo, robocache.KindText, robocache.KindEvent:
		default:
			s.Errorf("%s: kind %q", f.Key, f.Kind)
		}
	}
	if i.Clock != "" && !clocks[i.Clock] {
		s.Errorf("info: no stream is on the anchor clock %q", i.Clock)
	}
	var rows int64
	for e := range i.Episodes {
		rows += int64(s.ds.Len(e))
	}
	if rows != i.Frames {
		s.Errorf("info: %d frames, the episodes have %d", i.Frames, rows)
	}
	again := s.f.open(s.T)
	defer again.Close()
	a, _ := json.Marshal(i)
	b, _ := json.Marshal(again.Info())
	if !bytes.Equal(a, b) {
		s.Errorf("info: two openings differ:\n%s\n%s", a, b)
	}
}

// episodes returns the first, the last, and some other episodes.
func (s *suite) episodes() []int {
	n := s.ds.Info().Episodes
	var out []int
	for k := range min(n, s.f.Episodes) {
		out = append(out, k*(n-1)/max(min(n, s.f.Episodes)-1, 1))
	}
	return slices.Compact(out)
}

// times checks formattest.F2.
func (s *suite) times(e int) {
	own, err := s.ds.Times(s.ctx, e, "")
	if err != nil {
		s.Fatalf("episode %d: times: %v", e, err)
	}
	if len(own) != s.ds.Len(e) {
		s.Errorf("episode %d: %d timestamps, %d rows", e, len(own), s.ds.Len(e))
	}
	ep, err := s.ds.Episode(s.ctx, e)
	if err != nil || ep.Length != s.ds.Len(e) || ep.Position != e ||
		ep.Index != s.ds.Info().EpisodeIndex(e) {
		s.Errorf("episode %d: %+v, %v; its index is %d", e, ep, err, s.ds.Info().EpisodeIndex(e))
	}
	i := s.ds.Info()
	byClock := map[string][]int64{"": own, i.Clock: own}
	for k := range i.Features {
		f := &i.Features[k]
		t, err := s.ds.Times(s.ctx, e, f.Key)
		if err != nil {
			s.Errorf("episode %d: times of %s: %v", e, f.Key, err)
			continue
		}
		if !slices.IsSorted(t) {
			s.Errorf("episode %d: timestamps of %s go back", e, f.Key)
		}
		if have, ok := byClock[f.Clock]; ok && !slices.Equal(have, t) {
			s.Errorf(
				"episode %d: %s has other timestamps (%d) than its clock %q (%d)",
				e,
				f.Key,
				len(t),
				f.Clock,
				len(have),
			)
		}
		byClock[f.Clock] = t
		if len(t) > 0 {
			t[0]++ // the slice belongs to the caller (formattest.F4)
			again, _ := s.ds.Times(s.ctx, e, f.Key)
			t[0]--
			if !slices.Equal(again, t) {
				s.Errorf("episode %d: timestamps of %s are shared with the caller", e, f.Key)
			}
		}
	}
}

// some returns rows of a stream: runs and single rows in random order, some of them twice.
func (s *suite) some(e int, key string) []robocache.Row {
	t, err := s.ds.Times(s.ctx, e, key)
	if err != nil || len(t) == 0 {
		return nil
	}
	r := rand.New(rand.NewPCG(uint64(e), uint64(len(key))))
	var rows []robocache.Row
	for k := range min(s.f.Rows, 2*len(t)) {
		at := r.IntN(len(t))
		if k%4 != 0 && k > 0 {
			at = min(rows[k-1].Index+1, len(t)-1)
		}
		rows = append(rows, robocache.Row{Episode: e, Index: at})
	}
	rows = append(
		rows,
		robocache.Row{Episode: e, Index: 0},
		robocache.Row{Episode: e, Index: len(t) - 1},
	)
	return rows
}

// tasks checks that each row has a task text, if the dataset has tasks.
func (s *suite) tasks() {
	if len(s.ds.Info().Tasks) == 0 || s.ds.Info().Episodes == 0 || s.ds.Len(0) == 0 {
		return
	}
	text, err := s.ds.Text(s.ctx, "task", []robocache.Row{{Episode: 0, Index: 0}})
	if err != nil || len(text) != 1 {
		s.Errorf("task of the first row: %q, %v", text, err)
	}
	ep, err := s.ds.Episode(s.ctx, 0)
	if err != nil || len(ep.Tasks) == 0 {
		s.Errorf("the dataset has tasks, its first episode has %q, %v", ep.Tasks, err)
	}
}

// together checks formattest.F6.
func (s *suite) together() {
	want := s.content()
	var wg sync.WaitGroup
	for range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if got := s.content(); got != want {
				s.Error("goroutines that read together get other bytes than one alone")
			}
		}()
	}
	wg.Wait()
}

// ended checks the first half of formattest.F7.
func (s *suite) ended() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	i := s.ds.Info()
	for k := range i.Features {
		f := &i.Features[k]
		if i.Episodes == 0 {
			return
		}
		rows := s.some(0, f.Key)
		if len(rows) == 0 {
			continue
		}
		done := make(chan error, 1)
		go func() { _, err := s.read(ctx, f, rows); done <- err }()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) && class(err) == nil {
				s.Errorf("%s under an ended context: %v", f.Key, err)
			}
		case <-time.After(20 * time.Second):
			s.Fatalf("%s: a read under an ended context does not return", f.Key)
		}
	}
}

// closed checks the second half of formattest.F7.
func (s *suite) closed(before int) {
	i := s.ds.Info()
	if err := s.ds.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	_ = s.ds.Close()
	for k := range i.Features {
		if i.Episodes > 0 && s.ds.Len(0) > 0 {
			// an error or a correct result, but no panic
			_, _ = s.read(s.ctx, &i.Features[k], []robocache.Row{{}})
		}
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	s.Errorf(
		"%d goroutines before, %d after Close:\n%s",
		before,
		runtime.NumGoroutine(),
		stacks[:runtime.Stack(stacks, true)],
	)
}

// detected checks formattest.F8.
func (s *suite) detected() {
	if s.f.Undetected {
		return
	}
	for _, name := range robocache.Formats() {
		f, err := robocache.FormatNamed(name)
		if err != nil {
			s.Fatal(err)
		}
		ok, err := f.Detect(s.ctx, s.f.URI, robocache.OpenOptions{})
		if ok != (name == s.f.Format) || ok && err != nil {
			s.Errorf("format %s: detected %v, %v", name, ok, err)
		}
	}
}

func class(err error) error {
	for _, c := range []error{
		robocache.ErrNotFound,
		robocache.ErrMalformed,
		robocache.ErrUnsupported,
		robocache.ErrResourceLimit,
		robocache.ErrTemporary,
		robocache.ErrMisuse,
	} {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}
