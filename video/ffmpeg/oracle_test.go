//go:build cgo

package ffmpeg

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// ffmpeg.F2: the frames of real files, compared with ffmpeg's hashes.
func TestOracle(t *testing.T) {
	dir := dataDir(t)
	tables, err := filepath.Glob(filepath.Join(dir, "*", "oracle", "*.framemd5"))
	if err != nil || len(tables) == 0 {
		t.Skipf("no oracle/*.framemd5 below %s", dir)
	}
	// Files of one dataset come from one encoder: the shortest is decoded in sequence, and single
	// frames of the others.
	shortest := map[string]string{}
	size := map[string]int64{}
	for _, table := range tables {
		set := filepath.Dir(filepath.Dir(table))
		if st, err := os.Stat(table); err == nil && (shortest[set] == "" || st.Size() < size[set]) {
			shortest[set], size[set] = table, st.Size()
		}
	}
	singles, plans := 6, 4
	switch {
	case exhaustive():
		singles, plans = 25, 25
	case testing.Short():
		singles, plans = 2, 1
	}
	t.Logf(
		"%d of %d files in sequence, at most 300 frames; %d frames alone and %d random plans of "+
			"each (ROBOCACHE_EXHAUSTIVE=1: all whole, 25 and 25)",
		len(shortest),
		len(tables),
		singles,
		plans,
	)
	for _, table := range tables {
		set := filepath.Dir(filepath.Dir(table))
		name := strings.TrimSuffix(filepath.Base(table), ".framemd5")
		t.Run(filepath.Base(set)+"/"+name, func(t *testing.T) {
			t.Parallel()
			path := mp4Of(t, set, name)
			r, err := os.Open(table)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			want := readMD5(t, r)
			sets := append(randomSets(len(want), singles, plans), []int{0, len(want) - 1})
			switch {
			case exhaustive():
				sets = append(sets, upTo(len(want)))
			case shortest[set] == table:
				sets = append(sets, upTo(min(300, len(want))))
			}
			checkSets(t, path, want, sets)
		})
	}
}

// mp4Of returns the video that a hash table belongs to. Its name is the path with _ or __ for
// separators.
func mp4Of(t *testing.T, set, name string) string {
	t.Helper()
	plain := func(s string) string {
		s = strings.TrimSuffix(strings.ReplaceAll(s, string(filepath.Separator), "_"), ".mp4")
		return strings.ReplaceAll(s, "__", "_")
	}
	found := ""
	_ = filepath.WalkDir(
		filepath.Join(set, "videos"),
		func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".mp4") {
				return nil
			}
			rel, _ := filepath.Rel(set, path)
			want := plain(strings.TrimSuffix(name, ".mp4"))
			if p := plain(rel); p == want || strings.HasSuffix(p, "_"+want) ||
				matchesV21(rel, want) {
				found = path
			}
			return nil
		},
	)
	if found == "" {
		t.Skipf("no video for table %s", name)
	}
	return found
}

// matchesV21 reports whether a name has the camera and file of a path that has chunk and camera in
// the other order.
func matchesV21(rel, name string) bool {
	camera := filepath.Base(filepath.Dir(rel))
	file := strings.TrimSuffix(filepath.Base(rel), ".mp4")
	return camera+"_"+file == name
}
