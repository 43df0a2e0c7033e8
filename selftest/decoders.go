package selftest

import (
	"context"
	"crypto/md5"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

//go:embed clips
var clips embed.FS

// Result is the verdict on one part.
type Result struct {
	Part    string `json:"part"`    // "decoder av1", "kernel reference" …
	Present bool   `json:"present"` // false: Detail says why
	OK      bool   `json:"ok"`
	Detail  string `json:"detail,omitempty"`
	// Info is what Detail says, for machines: vectors, wrong; instructions, threads; device, driver, image.
	Info map[string]string `json:"info,omitempty"`
}

// decoders decodes every embedded clip, in order and at random, and compares each image's planes with the ffmpeg program's.
func decoders(ctx context.Context) []Result {
	names, err := fs.Glob(clips, "clips/*.mp4")
	if err != nil || len(names) == 0 {
		return []Result{{Part: "decoders", Detail: "no clips are embedded"}}
	}
	var out []Result
	for _, n := range names {
		r := Result{Part: "decoder " + strings.TrimSuffix(strings.TrimPrefix(n, "clips/"), ".mp4")}
		backend, err := video.ActiveBackend()
		if r.Present = err == nil; r.Present {
			r.Detail = backend.Name() + " " + backend.Version()
			err = decodeClip(ctx, n)
		}
		if r.OK = err == nil; !r.OK {
			r.Detail = err.Error()
		}
		out = append(out, r)
	}
	return out
}

func decodeClip(ctx context.Context, name string) (err error) {
	defer guard.Into(&err)
	data, sums := guard.Must(clips.ReadFile(name)), guard.Must(clips.ReadFile(strings.TrimSuffix(name, ".mp4")+".md5"))
	want := strings.Fields(string(sums))
	lib := video.NewLibrary(func(context.Context, string) (robocache.Ranged, error) { return memory{data}, nil }, 1<<20)
	defer lib.Close()
	file := guard.Must(lib.Acquire(ctx, name))
	defer file.Release()
	if n := file.Index.NumFrames(); n != len(want) {
		return fmt.Errorf("%d images, want %d", n, len(want))
	}
	pool := video.NewPool(64 << 20)
	defer pool.Close()
	seen := 0
	check := func(number int, pic video.Frame) (err error) {
		defer guard.Into(&err)
		seen++
		sum := md5.Sum(guard.Must(video.ConvertTo(nil, pic, &video.Spec{Pixel: video.YUVPlanes})))
		if got := hex.EncodeToString(sum[:]); got != want[number] {
			return fmt.Errorf("image %d: md5 %s, want %s", number, got, want[number])
		}
		return nil
	}
	for _, numbers := range append([][]int{file.Index.All()}, backwards(len(want))...) {
		guard.Check(pool.Decode(ctx, file, nil, video.Plan(file.Index, numbers), check))
	}
	if seen != 2*len(want) {
		return fmt.Errorf("%d images came out, want %d", seen, 2*len(want))
	}
	return nil
}

// backwards asks for each image alone, last first.
func backwards(n int) [][]int {
	var out [][]int
	for i := n - 1; i >= 0; i-- {
		out = append(out, []int{i})
	}
	return out
}

// memory is a file of embedded bytes.
type memory struct{ data []byte }

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m.data)) || len(p) > len(m.data)-int(off) {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "read past the end"}
	}
	copy(p, m.data[off:])
	return nil
}
func (m memory) Size() int64     { return int64(len(m.data)) }
func (m memory) Version() string { h := md5.Sum(m.data); return hex.EncodeToString(h[:]) }
func (m memory) Close() error    { return nil }
