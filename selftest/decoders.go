package selftest

import (
	"context"
	"crypto/md5"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

//go:embed clips
var clips embed.FS

// Result is the verdict on one part.
type Result struct {
	Part    string `json:"part"`    // such as "decoder av1" or "kernel reference"
	Present bool   `json:"present"` // if false, Detail gives the reason
	OK      bool   `json:"ok"`
	Detail  string `json:"detail,omitempty"`
	// Info is Detail for programs. Its keys are vectors, wrong, instructions, threads, device,
	// driver and image.
	Info map[string]string `json:"info,omitempty"`
}

// testDecoders decodes every embedded clip on the host and on the engines of the first GPU.
func testDecoders(ctx context.Context) []Result {
	names, err := fs.Glob(clips, "clips/*.mp4")
	if err != nil || len(names) == 0 {
		return []Result{{Part: "decoders", Detail: "no clips are embedded"}}
	}
	var out []Result
	host, none := video.ActiveBackend()
	for _, n := range names {
		out = append(out, testDecoder(ctx, "decoder ", n, host, none))
	}
	device, err := video.OpenDevice(0)
	if err != nil {
		return append(out, Result{Part: "engine nvdec", Detail: err.Error()})
	}
	for _, n := range names {
		// No engine supports the other codecs.
		if none := device.Supports(video.Codec(codecOf(n))); none == nil {
			out = append(out, testDecoder(ctx, "engine ", n, device, nil))
		}
	}
	return out
}

func codecOf(clip string) string {
	return strings.TrimSuffix(strings.TrimPrefix(clip, "clips/"), ".mp4")
}

// testDecoder returns the verdict on how back end b decodes a clip. none is the reason if there is
// no back end.
func testDecoder(ctx context.Context, part, clip string, b video.Backend, none error) Result {
	r := Result{Part: part + codecOf(clip), Present: none == nil}
	err := none
	if r.Present {
		r.Detail = b.Name() + " " + b.Version()
		err = decodeClip(ctx, clip, b)
	}
	if errors.Is(err, robocache.ErrUnsupported) {
		r.Present = false // the engine does not support frames of this size
	}
	if r.OK = err == nil; !r.OK {
		r.Detail = err.Error()
	}
	return r
}

// decodeClip decodes a clip in order and at random. It compares the planes of each frame with the
// output of ffmpeg.
func decodeClip(ctx context.Context, name string, b video.Backend) (err error) {
	data, err := clips.ReadFile(name)
	if err != nil {
		return err
	}
	sums, err := clips.ReadFile(strings.TrimSuffix(name, ".mp4") + ".md5")
	if err != nil {
		return err
	}
	want := strings.Fields(string(sums))
	lib := video.NewLibrary(
		func(context.Context, string) (robocache.Ranged, error) { return memoryFile{data}, nil },
		1<<20,
	)
	defer lib.Close()
	file, err := lib.Acquire(ctx, name)
	if err != nil {
		return err
	}
	defer file.Release()
	if n := file.Index.NumFrames(); n != len(want) {
		return fmt.Errorf("%d frames, want %d", n, len(want))
	}
	pool := video.NewPoolOf(b, 64<<20)
	defer pool.Close()
	seen := 0
	check := func(number int, pic video.Frame) (err error) {
		seen++
		convertTo, err := video.ConvertTo(nil, pic, &video.Spec{Pixel: video.YUVPlanes})
		if err != nil {
			return err
		}
		sum := md5.Sum(convertTo)
		if got := hex.EncodeToString(sum[:]); got != want[number] {
			return fmt.Errorf("frame %d: md5 %s, want %s", number, got, want[number])
		}
		return nil
	}
	for _, numbers := range append([][]int{file.Index.All()}, reverseOrder(len(want))...) {
		if err := pool.Decode(ctx, file, nil, video.Plan(file.Index, numbers), check); err != nil {
			return err
		}
	}
	if seen != 2*len(want) {
		return fmt.Errorf("%d frames came out, want %d", seen, 2*len(want))
	}
	return nil
}

// reverseOrder returns one request per frame, the last frame first.
func reverseOrder(n int) [][]int {
	var out [][]int
	for i := n - 1; i >= 0; i-- {
		out = append(out, []int{i})
	}
	return out
}

// memoryFile is a file of embedded bytes.
type memoryFile struct{ data []byte }

func (m memoryFile) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m.data)) || len(p) > len(m.data)-int(off) {
		return robocache.Malformed("", nil, "read past the end")
	}
	copy(p, m.data[off:])
	return nil
}
func (m memoryFile) Size() int64     { return int64(len(m.data)) }
func (m memoryFile) Version() string { h := md5.Sum(m.data); return hex.EncodeToString(h[:]) }
func (m memoryFile) Close() error    { return nil }
