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
func makeTruth(ctx context.Context, ds robocache.Dataset, root string, w Workload) (*truth, error) {
	w.Shuffle, w.Cache, w.ImageSize, w.Window, w.Workers = "file", "", "", 0, 1
	cfg, err := w.config(ds.Info())
	if err != nil {
		return nil, err
	}
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return nil, err
	}
	defer ld.Close()
	cameras := w.cameras(ds.Info())
	if len(cameras) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench soak", Msg: "a set without video: there are no frames to check"}
	}
	t := &truth{seed: maphash.MakeSeed(), natural: make([]uint64, ld.Samples()), other: map[string][]uint64{}}
	_, lookErr := exec.LookPath("ffmpeg")
	var video *fileFrames
	defer func() { video.close() }()
	refs := make([]robocache.FrameRef, 0, w.BatchSize)
	for {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		rows, err := ld.Rows(b.Indices)
		if err != nil {
			return nil, err
		}
		refs = refs[:len(rows)]
		if err := ds.Frames(ctx, cameras[0], rows, refs); err != nil {
			return nil, err
		}
		p := b.Tensor(cameras[0])
		each := len(p.Data) / b.Rows
		for i, s := range b.Indices {
			got := p.Data[i*each : (i+1)*each]
			t.natural[s] = maphash.Bytes(t.seed, got)
			if lookErr != nil || refs[i].Path == "" || root == "" || p.Shape[1] != 3 {
				continue
			}
			if video == nil || video.name != refs[i].Path || video.next > refs[i].Ordinal {
				video.close()
				if video, err = openFrames(ctx, filepath.Join(root, refs[i].Path), refs[i].Path, [2]int{p.Shape[3], p.Shape[2]}, false); err != nil {
					return nil, err
				}
			}
			want, err := video.at(refs[i].Ordinal)
			if err != nil {
				return nil, err
			}
			if most, _ := distance(got, want); most > pixelTolerance {
				return nil, fmt.Errorf("%s frame %d is not what ffmpeg decodes (episode %d, row %d)", refs[i].Path, refs[i].Ordinal, rows[i].Episode, rows[i].Index)
			}
			t.compared++
		}
		b.Release()
	}
}

// check compares the first frame of each sample of a batch; kind names what decides the pixels beside the sample.
func (t *truth) check(b *loader.Batch, camera, kind string) error {
	p := b.Tensor(camera)
	each := len(p.Data) / b.Rows
	want := t.natural
	if kind != "" {
		if want = t.other[kind]; want == nil {
			want = make([]uint64, len(t.natural))
			t.other[kind] = want
		}
	}
	for i, s := range b.Indices {
		one := p.Data[i*each : (i+1)*each]
		if len(p.Shape) == 5 {
			one = one[:each/p.Shape[1]] // of a window, the anchor's
		}
		h := maphash.Bytes(t.seed, one)
		if want[s] == 0 && kind != "" {
			want[s] = h
			continue
		}
		if h != want[s] {
			return fmt.Errorf("sample %d has other pixels than in the plain pass", s)
		}
	}
	return nil
}
