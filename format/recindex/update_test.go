package recindex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// lineFormat is a format whose recordings are files NAME.rec with one line of text.
const lineFormat = "recindex-test"

// filesRead counts the recordings that lineFormat read.
var filesRead atomic.Int64

// lineSet is a dataset of lineFormat. Robot holds the lines of all recordings.
type lineSet struct {
	robocache.Dataset
	info robocache.Info
}

func (d *lineSet) Info() *robocache.Info { return &d.info }
func (d *lineSet) Close() error          { return nil }

func init() {
	robocache.Register(robocache.Format{
		Name: lineFormat,
		Detect: func(context.Context, string, robocache.OpenOptions) (bool, error) {
			return false, nil
		},
		Open: openLines,
	})
}

// openLines opens a dataset of lineFormat.
func openLines(
	ctx context.Context, uri string, opt robocache.OpenOptions,
) (robocache.Dataset, error) {
	st, err := store.OpenFor(uri, opt)
	if err != nil {
		return nil, err
	}
	defer store.Close(st)
	list, err := st.List(ctx, "")
	if err != nil {
		return nil, err
	}
	isIndex := func(e store.Entry) bool { return e.Name == Name }
	s, err := Begin(ctx, st, opt, slices.ContainsFunc(list, isIndex))
	if err != nil {
		return nil, err
	}
	d := &lineSet{info: robocache.Info{Format: lineFormat}}
	for _, e := range list {
		if !strings.HasSuffix(e.Name, ".rec") {
			continue
		}
		d.info.Episodes++
		if p, ok := s.Lookup("line", e.Name, e.Size, e.Version); ok {
			d.info.Robot += string(p.Own)
			continue
		}
		filesRead.Add(1)
		line, err := store.ReadFile(ctx, st, e.Name, 1<<20)
		if err != nil {
			return nil, err
		}
		d.info.Robot += string(line)
		s.Record("line", e, func() *Payload {
			return &Payload{Shared: [][]byte{[]byte("schema")}, Own: line}
		})
	}
	d.info.Findings = s.Finish()
	return d, nil
}

// writeLine writes a recording that was modified an hour ago.
func writeLine(t testing.TB, dir, name, line string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	return path
}

var lineOptions = robocache.OpenOptions{Format: lineFormat}

// openText returns the lines of a dataset, the number of recordings that were read, and the codes of
// the findings.
func openText(
	t testing.TB,
	uri string,
	opt robocache.OpenOptions,
) (text string, read int64, codes string) {
	t.Helper()
	before := filesRead.Load()
	ds, err := robocache.Open(t.Context(), uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ds.Info().Findings {
		codes += f.Code
	}
	return ds.Info().Robot, filesRead.Load() - before, codes
}

// update runs Update.
func update(t testing.TB, uri string, opt robocache.OpenOptions) *Report {
	t.Helper()
	r, err := Update(t.Context(), uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ix.C5, ix.C9: new, changed and removed recordings are noticed, and Update reads only those.
func TestUpdateNoticesChanges(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		writeLine(t, dir, fmt.Sprintf("%d.rec", i), fmt.Sprint(i))
	}
	if r := update(t, dir, lineOptions); r.Added != 4 || r.Recordings != 4 || r.Bytes == 0 {
		t.Fatalf("%+v", r)
	}
	if text, read, codes := openText(
		t,
		dir,
		lineOptions,
	); text != "0123" || read != 0 ||
		codes != "" {
		t.Fatalf("%q, %d read, findings %s", text, read, codes)
	}
	// The same size and another modification time.
	path := writeLine(t, dir, "1.rec", "X")
	later := time.Now().Add(-30 * time.Minute)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	writeLine(t, dir, "5.rec", "5")
	if err := os.Remove(filepath.Join(dir, "2.rec")); err != nil {
		t.Fatal(err)
	}
	text, read, codes := openText(t, dir, lineOptions)
	if text != "0X35" || read != 2 || codes != "index-behind" {
		t.Fatalf("%q, %d read, findings %s", text, read, codes)
	}
	before := filesRead.Load()
	r := update(t, dir, lineOptions)
	if r.Added != 1 || r.Changed != 1 || r.Removed != 1 || r.Recordings != 4 {
		t.Fatalf("%+v", r)
	}
	if n := filesRead.Load() - before; n != 2 {
		t.Errorf("%d recordings were read, want 2", n)
	}
	if text, read, codes := openText(
		t,
		dir,
		lineOptions,
	); text != "0X35" || read != 0 ||
		codes != "" {
		t.Fatalf("%q, %d read, findings %s", text, read, codes)
	}
	if r := update(t, dir, lineOptions); r.Added+r.Changed+r.Removed != 0 {
		t.Errorf("an update without changes: %+v", r)
	}
}

// ix.C8: a file that was modified just now is recorded only when its version is final.
func TestUpdateWaitsForVersions(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.rec"), []byte("a"), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := (&Report{}).openRecording(t.Context(), dir, filepath.Join(dir, Name), lineOptions)
	if err != nil || s.unsettled != 1 || len(s.pending) != 0 {
		t.Fatalf("%v: %d unsettled, %d pending", err, s.unsettled, len(s.pending))
	}
	if r := update(t, dir, lineOptions); r.Added != 1 {
		t.Errorf("%+v", r)
	}
}

// The index of a folder that cannot be written is another file.
func TestUpdateWritesElsewhere(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "set.index")
	writeLine(t, dir, "a.rec", "a")
	opt := lineOptions
	opt.RecordingIndex = out
	update(t, dir, opt)
	if _, read, _ := openText(t, dir, lineOptions); read != 1 {
		t.Errorf("an index in another place is used")
	}
	if _, read, _ := openText(t, dir, opt); read != 0 {
		t.Errorf("the index is not used")
	}
	update(t, dir, lineOptions)
	opt.RecordingIndex = Off
	if _, read, _ := openText(t, dir, opt); read != 1 {
		t.Errorf("the index is used, although it is off")
	}
	opt.RecordingIndex = filepath.Join(dir, "missing")
	if _, err := robocache.Open(t.Context(), dir, opt); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("a missing index: %v", err)
	}
	opt.RecordingIndex = filepath.Join(dir, "no folder", "x")
	_, err := Update(t.Context(), dir, opt)
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// A file that is no index is neither used nor overwritten.
func TestUpdateKeepsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	writeLine(t, dir, "a.rec", "a")
	path := filepath.Join(dir, Name)
	for _, content := range []string{"x", strings.Repeat("no index ", 10)} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if text, read, codes := openText(t, dir, lineOptions); text != "a" || read != 1 ||
			codes != "index-ignored" {
			t.Errorf("%q, %d read, findings %s", text, read, codes)
		}
		if _, err := Update(
			t.Context(),
			dir,
			lineOptions,
		); !errors.Is(
			err,
			robocache.ErrMalformed,
		) {
			t.Errorf("Update: %v", err)
		}
		if now, _ := os.ReadFile(path); string(now) != content {
			t.Errorf("the file was overwritten: %q", now)
		}
	}
}

// ix.C10: the records of writers that run at once are all in the log.
func TestUpdateByManyWriters(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 8 {
				writeLine(t, dir, fmt.Sprintf("%d-%d.rec", w, i), ".")
				if _, err := Update(context.Background(), dir, lineOptions); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	l, err := Find(t.Context(), dir, lineOptions)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(l.Path)
	if err != nil || l.end != int64(len(b)) || l.Len() != 32 {
		t.Errorf("%v: %d of %d bytes, %d recordings", err, l.end, len(b), l.Len())
	}
	if text, read, _ := openText(t, dir, lineOptions); len(text) != 32 || read != 0 {
		t.Errorf("%d recordings, %d read", len(text), read)
	}
}

// ix.C13
func TestUpdateCompacts(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 100<<10)
	at := time.Now().Add(-time.Hour)
	most := int64(0)
	var first, last *Report
	for i := range 40 {
		path := writeLine(t, dir, "a.rec", fmt.Sprint(i)+long)
		if err := os.Chtimes(path, at, at.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		last = update(t, dir, lineOptions)
		if i == 0 {
			first = last
		}
		most = max(most, last.Bytes)
	}
	if most > 3<<20 {
		t.Errorf("the log grew to %d bytes", most)
	}
	if last.Position.Log != first.Position.Log || last.Position.Sequence != 40 {
		t.Errorf("position %+v, first %+v", last.Position, first.Position)
	}
	if text, read, _ := openText(t, dir, lineOptions); read != 0 || text != "39"+long {
		t.Errorf("%d read", read)
	}
}

// killedDir is the variable with the folder that the process of TestUpdateIsKilled updates.
const killedDir = "RECINDEX_TEST_KILLED"

// ix.C10: writers that are killed at any time lose no record that was complete, and leave a log that
// the next writer continues.
func TestUpdateIsKilled(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		for i := 0; ; i++ {
			writeLine(t, dir, fmt.Sprintf("%d-%d.rec", os.Getpid(), i%20), fmt.Sprint(i))
			update(t, dir, lineOptions)
		}
	}
	if testing.Short() {
		t.Skip("200 kills")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	whole, torn := []byte(nil), 0
	for kill := range 200 {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUpdateIsKilled$")
		c.Env = append(os.Environ(), killedDir+"="+dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
			if info, err := os.Stat(path); err == nil && info.Size() > int64(len(whole)) {
				break // the writer runs
			}
		}
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		_ = c.Process.Kill()
		_ = c.Wait()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < headerSize {
			torn++
			continue
		}
		l, err := parseLog(b)
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		if !bytes.HasPrefix(b, whole) {
			t.Fatalf("kill %d: records that were complete are gone", kill)
		}
		if whole = slices.Clone(b[:l.end]); l.end < int64(len(b)) {
			torn++
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.rec"))
		if text, _, _ := openText(t, dir, lineOptions); len(files) > 0 && text == "" {
			t.Fatalf("kill %d: no recordings", kill)
		}
		if kill%20 == 19 { // another process deletes recordings
			for _, f := range files[len(files)/2:] {
				_ = os.Remove(f)
			}
		}
	}
	t.Logf("%d of 200 kills left a cut record; %d bytes", torn, len(whole))
	update(t, dir, lineOptions)
	if _, read, codes := openText(t, dir, lineOptions); read != 0 || codes != "" {
		t.Errorf("%d read, findings %s", read, codes)
	}
}
