package bench

import (
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// folder is the set's local folder; "" where it is remote.
func (s *Suite) folder() string {
	if p, ok := strings.CutPrefix(s.URI, "file://"); ok {
		return p
	}
	if strings.Contains(s.URI, "://") {
		return ""
	}
	return s.URI
}

// know learns of the set what results are held against: its samples, the files of its video, and the mean of the bytes that a lone sample wants: packets
// from the governing key frames to the wanted ones, and its rows. Samples of one batch share some of it, so a loader may read less.
func (s *Suite) know(ctx context.Context, ds robocache.Dataset) (err error) {
	defer guard.Into(&err)
	s.machine, s.rows = report.ThisMachine(s.Program), s.Base.rowBytes(ds.Info())
	s.ref = guard.Must(newReference(ds, s.folder(), &s.Base))
	list, cameras, seen := guard.Must(s.Base.episodes(ds.Info())), s.Base.cameras(ds.Info()), map[string]bool{}
	one := make([]robocache.FrameRef, 1)
	for _, key := range cameras {
		for _, e := range list {
			if ds.Len(e) > 0 && ds.Frames(ctx, key, []robocache.Row{{Episode: e}}, one) == nil {
				seen[one[0].Path] = true
			}
		}
	}
	s.files = len(seen)
	// Only video lies in files beside; a recording or an HDF5 file is no folder of such.
	var st store.Store
	if len(cameras) > 0 {
		st = guard.Must(store.Open(s.URI))
		defer store.Close(st)
	}
	lib := video.NewLibrary(func(ctx context.Context, path string) (robocache.Ranged, error) { return st.Open(ctx, path) }, 64<<20)
	defer lib.Close()
	probes, count, total := 200, 0, int64(0)
	if s.folder() == "" {
		probes = 40
	}
	rng := rand.New(rand.NewPCG(1, 2))
	if err := guard.Try(func() {
		for range probes {
			e := list[rng.IntN(len(list))]
			if ds.Len(e) == 0 {
				continue
			}
			count++
			row := rng.IntN(ds.Len(e))
			rows, refs := make([]robocache.Row, max(s.Base.Window, 1)), make([]robocache.FrameRef, max(s.Base.Window, 1))
			for k := range rows {
				rows[k] = robocache.Row{Episode: e, Index: min(row+k, ds.Len(e)-1)}
			}
			for _, c := range cameras {
				guard.Check(ds.Frames(ctx, c, rows, refs))
				total += packetBytes(ctx, lib, refs)
			}
		}
	}); err != nil {
		s.note = "bytes_needed_per_sample: " + err.Error()
	} else if count > 0 {
		mean := float64(total)/float64(count) + s.rows
		s.alone = &mean
	}
	return nil
}

func packetBytes(ctx context.Context, lib *video.Library, refs []robocache.FrameRef) (n int64) {
	byFile := map[string][]int{}
	for _, r := range refs {
		if r.Path != "" {
			byFile[r.Path] = append(byFile[r.Path], r.Ordinal)
		}
	}
	for path, numbers := range byFile {
		f := guard.Must(lib.Acquire(ctx, path))
		slices.Sort(numbers)
		for _, g := range video.Plan(f.Index, slices.Compact(numbers)) {
			for d := g.Start; d <= g.End; d++ {
				n += int64(f.Index.Sample(d).Size)
			}
		}
		f.Release()
	}
	return n
}

// preparePages brings the page cache into the state that was asked for, and says what was achieved.
func (s *Suite) preparePages(facts *runFacts) {
	files, bytes, err := filesBelow(s.folder())
	cold := s.CacheState == "cold"
	switch {
	case err != nil:
	case cold:
		err = evict(files)
	case bytes < report.Kilobytes("MemAvailable")<<10/2:
		err = warm(files)
	}
	guard.Check(err)
	facts.resident, facts.known = resident(files)
	if facts.known && (cold && facts.resident < 0.01 || !cold && facts.resident > 0.99) {
		facts.state = s.CacheState
	}
}

// filesBelow are the regular files of a local set.
func filesBelow(dir string) (files []string, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		i, err := d.Info()
		if err == nil {
			files, bytes = append(files, p), bytes+i.Size()
		}
		return err
	})
	return files, bytes, robocache.At(err, robocache.Where{"dataset": dir})
}

// VideoFiles finds the mp4 files below the folders given; files stand for themselves.
func VideoFiles(args []string) (out []string, err error) {
	for _, a := range args {
		files, _, err := filesBelow(a)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f == a || filepath.Ext(f) == ".mp4" {
				out = append(out, f)
			}
		}
	}
	if len(out) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "bench decode", Where: robocache.Where{"file": args[0]}, Msg: "no .mp4 here"}
	}
	return out, nil
}

// eachFile opens file after file.
func eachFile(files []string, do func(f *os.File) error) error {
	for _, p := range files {
		f, err := os.Open(p)
		if err == nil {
			err = do(f)
			f.Close()
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
	}
	return nil
}

// warm reads the files once, so that the page cache holds what it can.
func warm(files []string) error {
	return eachFile(files, func(f *os.File) error { _, err := io.Copy(io.Discard, f); return err })
}

// evict asks the kernel to drop the files' pages. Pages that another process maps stay: resident says what was achieved.
func evict(files []string) error {
	return eachFile(files, func(f *os.File) error {
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// resident is the share of the files' pages that the page cache holds.
func resident(files []string) (float64, bool) {
	have, all, page := 0, 0, os.Getpagesize()
	err := eachFile(files, func(f *os.File) error {
		st, err := f.Stat()
		if err != nil || st.Size() == 0 {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer unix.Munmap(m)
		vec := make([]byte, (len(m)+page-1)/page)
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0]))); errno != 0 {
			return errno
		}
		for _, v := range vec {
			have += int(v & 1)
		}
		all += len(vec)
		return nil
	})
	return float64(have) / float64(max(all, 1)), err == nil && all > 0
}
