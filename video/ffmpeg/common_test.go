//go:build cgo

package ffmpeg

import (
	"bufio"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video"
)

// diskFile is a Ranged over a local file.
type diskFile struct {
	*os.File
	size int64
}

func (d diskFile) ReadAt(_ context.Context, p []byte, off int64) error {
	n, err := d.File.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
func (d diskFile) Size() int64     { return d.size }
func (d diskFile) Version() string { return "1" }

func openDisk(_ context.Context, path string) (robocache.Ranged, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return diskFile{f, st.Size()}, nil
}

// root returns the root of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("no go.mod above the test")
		}
		dir = up
	}
}

// dataDir returns the folder of the real test data.
func dataDir(t testing.TB) string {
	t.Helper()
	return realdata.Dir(t)
}

// acquire opens and indexes a file until the test ends.
func acquire(t testing.TB, path string) *video.File {
	t.Helper()
	lib := video.NewLibrary(openDisk, 0)
	f, err := lib.Acquire(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Release()
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newPool(t testing.TB, budget int64) *video.Pool {
	p := video.NewPool(budget)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// readMD5 returns the hashes of a framemd5 file, in presentation order.
func readMD5(t testing.TB, r io.Reader) []string {
	t.Helper()
	var sums []string
	s := bufio.NewScanner(r)
	for s.Scan() {
		if line := s.Text(); !strings.HasPrefix(line, "#") {
			cols := strings.Split(line, ",")
			sums = append(sums, strings.TrimSpace(cols[len(cols)-1]))
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return sums
}

// images decodes groups and returns the bytes of every frame by frame number, in the form of spec.
func images(
	t testing.TB,
	p *video.Pool,
	f *video.File,
	ordinals []int,
	spec video.Spec,
) map[int][]byte {
	t.Helper()
	got := map[int][]byte{}
	err := p.Decode(
		context.Background(),
		f,
		nil,
		video.Plan(f.Index, ordinals),
		func(k int, pic video.Frame) error {
			n, err := pic.Bytes(&spec)
			if err != nil {
				return err
			}
			if got[k] != nil {
				t.Errorf("%s: ordinal %d delivered twice", f.Path, k)
			}
			got[k] = make([]byte, n)
			return pic.Convert(&spec, got[k])
		},
	)
	if err != nil {
		t.Fatalf("%s %v: %v", f.Path, ordinals, err)
	}
	return got
}

func sum(b []byte) string {
	h := md5.Sum(b)
	return hex.EncodeToString(h[:])
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// checkSums decodes a file in sequence, frame by frame and by random sets, and compares the planes
// with ffmpeg's hashes.
func checkSums(t *testing.T, path string, want []string, singles, plans int) {
	t.Helper()
	checkSets(
		t,
		path,
		want,
		append([][]int{upTo(len(want))}, randomSets(len(want), singles, plans)...),
	)
}

// randomSets returns single frames, all n of them if singles allows, and small sets.
func randomSets(n, singles, plans int) (sets [][]int) {
	r := newRand(7)
	for i := range singles {
		k := i
		if singles < n {
			k = r.IntN(n)
		}
		sets = append(sets, []int{k})
	}
	for range plans {
		set := make([]int, 2+r.IntN(9))
		for i := range set {
			set[i] = r.IntN(n)
		}
		sets = append(sets, set)
	}
	return sets
}

func checkSets(t *testing.T, path string, want []string, sets [][]int) {
	t.Helper()
	f := acquire(t, path)
	if n := f.Index.NumFrames(); n != len(want) {
		t.Fatalf("%s: the index has %d frames, ffmpeg %d", path, n, len(want))
	}
	p := newPool(t, 0)
	for _, ordinals := range sets {
		got := images(t, p, f, ordinals, video.Spec{Pixel: video.YUVPlanes})
		for _, k := range ordinals {
			if s := sum(got[k]); s != want[k] {
				t.Fatalf("%s: frame %d is not ffmpeg's (set %v)", filepath.Base(path), k, ordinals)
			}
		}
	}
}

func isUnsupported(err error) bool { return errors.Is(err, robocache.ErrUnsupported) }
