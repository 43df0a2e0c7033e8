package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/loader"
)

// truth is what each frame of a set must be, as a hash: taken once from a plain pass in file order, each frame of which was
// compared with a sequential decode by the ffmpeg program. From then on a frame must be those bits, whatever order, cache,
// pool, store and number of threads it comes through.
type truth struct {
	seed     maphash.Seed
	natural  []uint64            // by sample, at the stored size
	other    map[string][]uint64 // by kind of pixels: the first time counts, and all that follow must agree; 0: not seen
	compared int                 // frames compared with ffmpeg
}

// makeTruth reads the set once. Without ffmpeg nothing is compared, and the pass itself is the truth.
func makeTruth(ctx context.Context, ds robocache.Dataset, root string, w Workload) (t *truth, err error) {
	defer guard.Into(&err)
	cameras := w.cameras(ds.Info())
	if len(cameras) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench soak", Msg: "a set without video: there are no frames to check"}
	}
	w.Shuffle, w.Workers = "file", 1
	ld, _ := w.loader(ctx, ds)
	defer ld.Close()
	t = &truth{seed: maphash.MakeSeed(), natural: make([]uint64, ld.Samples()), other: map[string][]uint64{}}
	_, noFFmpeg := exec.LookPath("ffmpeg")
	var video *fileFrames
	defer func() { video.close() }()
	for {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		guard.Check(err)
		rows := guard.Must(ld.Rows(b.Indices))
		refs := make([]robocache.FrameRef, len(rows))
		guard.Check(ds.Frames(ctx, cameras[0], rows, refs))
		p := b.Tensor(cameras[0])
		each := len(p.Data) / b.Rows
		for i, s := range b.Indices {
			got, ref := p.Data[i*each:(i+1)*each], refs[i]
			t.natural[s] = maphash.Bytes(t.seed, got)
			if noFFmpeg != nil || ref.Path == "" || root == "" || p.Shape[1] != 3 {
				continue
			}
			if video == nil || video.name != ref.Path || video.next > ref.Ordinal {
				video.close()
				video = openFrames(ctx, filepath.Join(root, ref.Path), ref.Path, [2]int{p.Shape[3], p.Shape[2]}, false)
			}
			if most, _ := distance(got, guard.Must(video.at(ref.Ordinal))); most > pixelTolerance {
				guard.Fail(fmt.Errorf("%s frame %d is not what ffmpeg decodes (episode %d, row %d)", ref.Path, ref.Ordinal, rows[i].Episode, rows[i].Index))
			}
			t.compared++
		}
		b.Release()
	}
}

// check compares the first frame of each sample of a batch; kind names what decides the pixels beside the sample.
func (t *truth) check(b *loader.Batch, camera, kind string) {
	p := b.Tensor(camera)
	each := len(p.Data) / b.Rows
	want := t.natural
	if kind != "" {
		if t.other[kind] == nil {
			t.other[kind] = make([]uint64, len(t.natural))
		}
		want = t.other[kind]
	}
	for i, s := range b.Indices {
		one := p.Data[i*each : (i+1)*each]
		if len(p.Shape) == 5 {
			one = one[:each/p.Shape[1]] // of a window, the anchor's
		}
		h := maphash.Bytes(t.seed, one)
		if want[s] == 0 && kind != "" {
			want[s] = h
		}
		if h != want[s] {
			guard.Fail(fmt.Errorf("sample %d has other pixels than in the plain pass", s))
		}
	}
}
