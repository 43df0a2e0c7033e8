package edit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache/internal/crash"
)

// The checksums of a dataset of up to wholeBytes cover whole files. In a larger dataset they cover
// evenly spaced blocks of each file, because reading all of it would make a small edit slow.
const (
	wholeBytes   = 8 << 30
	sampleBlocks = 64
	sampleBytes  = 64 << 10
)

// checksumFile is a file below a folder with its checksum.
type checksumFile struct {
	fs.FileInfo
	path string
	sum  string // size, modification time and SHA-256 as text
}

// checksums returns the size, modification time and checksum of every file below a folder, by path.
func checksums(dir string) (map[string]string, error) {
	var files []*checksumFile
	var total int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, &checksumFile{FileInfo: info, path: path})
		total += info.Size()
		return nil
	})
	if err != nil {
		return nil, err
	}
	sampled := total > wholeBytes
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range files {
		g.Go(crash.Func("edit", func() error { return f.sumContents(sampled) }))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range files {
		rel, err := filepath.Rel(dir, f.path)
		if err != nil {
			return nil, err
		}
		out[rel] = f.sum
	}
	return out, nil
}

// sumContents computes the checksum of a file, or of the target of a link. If sampled is set, it
// covers blocks of a large file instead of the whole file.
func (f *checksumFile) sumContents(sampled bool) error {
	h := sha256.New()
	if f.Mode().IsRegular() {
		in, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := hashFile(h, in, f.Size(), sampled); err != nil {
			return err
		}
	} else {
		target, _ := os.Readlink(f.path)
		fmt.Fprint(h, target)
	}
	f.sum = fmt.Sprintf(
		"%d %d %s",
		f.Size(),
		f.ModTime().UnixNano(),
		hex.EncodeToString(h.Sum(nil)[:16]),
	)
	return nil
}

// hashFile adds a file of size bytes to a hash: all of it, or evenly spaced blocks and the last
// one.
func hashFile(h io.Writer, in *os.File, size int64, sampled bool) error {
	step := size / sampleBlocks
	if !sampled || step <= sampleBytes {
		_, err := io.Copy(h, in)
		return err
	}
	for k := range int64(sampleBlocks) {
		if _, err := io.Copy(h, io.NewSectionReader(in, k*step, sampleBytes)); err != nil {
			return err
		}
	}
	_, err := io.Copy(h, io.NewSectionReader(in, size-sampleBytes, sampleBytes))
	return err
}
