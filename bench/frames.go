package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/goatnote-inc/robocache"
)

const (
	// pixelTolerance is the allowed difference of an RGB value. Two converters may give different
	// values for the same planes.
	pixelTolerance = 2
	// neighbourGap: a frame checks the order only if it differs from both neighbors by more than
	// two conversions can.
	neighbourGap = 2 * pixelTolerance
	// meanTolerance and meanGap are the corresponding limits for peers, as means over a frame.
	// Their converters and scalers differ more.
	meanTolerance, meanGap = 3.0, 0.5
)

// deliveredFrame is a frame that a runner saved.
type deliveredFrame struct {
	frameHeader
	data           []byte
	expectedNumber int // number of the expected frame in the file
}

// readDelivered reads the frames that writeDelivered or a Python runner saved.
func readDelivered(path string) (out []deliveredFrame, err error) {
	defer robocache.Locate(&err, robocache.Where{"file": path})
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return out, err
	}
	defer f.Close()
	for r := bufio.NewReaderSize(f, 1<<20); ; {
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return out, nil
		}
		var d deliveredFrame
		line, err := r.ReadBytes('\n')
		if err != nil {
			return out, err
		}
		if err := json.Unmarshal(line, &d.frameHeader); err != nil {
			return out, robocache.Malformed("load", nil, "delivered frames").WithCause(err)
		}
		n := max(map[string]int{"float32": 4, "uint16": 2}[d.DType], 1) // bytes of one value
		for _, s := range d.Shape {
			n *= s
		}
		d.data = make([]byte, n)
		if _, err := io.ReadFull(r, d.data); err != nil {
			return out, err
		}
		out = append(out, d)
	}
}

// checkFrames compares the saved frames of a runner with a sequential ffmpeg decode. Frames of a
// window of whole epochs are compared by mean difference, because the window may belong to a peer.
// Only these may be resized.
func (r *Runner) checkFrames(ctx context.Context, images []deliveredFrame, o *Outcome) (err error) {
	if len(images) == 0 {
		return nil
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil || r.reference.localRoot == "" {
		o.Note = "frames of a remote set are not compared"
		if err != nil {
			o.Note = "no ffmpeg program to compare frames with"
		}
		return nil
	}
	o.Compared = true
	info := r.reference.dataset.Info()
	byFile, size := map[string][]deliveredFrame{}, map[string][2]int{}
	for _, d := range images {
		if d.Key == "" {
			d.Key = (&Workload{Video: "one"}).selectedCameras(info)[0]
		}
		f := info.Feature(d.Key)
		if f == nil || d.Episode < 0 || d.Episode >= info.Episodes {
			return fmt.Errorf("a frame of %s in episode %d: there is none", d.Key, d.Episode)
		}
		if f.Depth != nil || len(d.Shape) != 3 || d.Shape[0] != 3 || d.DType != "uint8" {
			o.Note = "frames of depth, and of other types than uint8, are not compared"
			continue
		}
		row := max(0, min(d.Row+d.Offset, r.reference.dataset.Len(d.Episode)-1))
		refs := make([]robocache.FrameRef, 1)
		if err := r.reference.dataset.Frames(ctx, d.Key,
			[]robocache.Row{{Episode: d.Episode, Index: row}}, refs); err != nil {
			return err
		}
		if refs[0].Path == "" {
			o.Note = "still images are not compared"
			continue
		}
		d.expectedNumber = refs[0].Ordinal
		byFile[refs[0].Path], size[refs[0].Path] = append(
			byFile[refs[0].Path],
			d,
		), [2]int{
			f.Width,
			f.Height,
		}
	}
	for _, p := range slices.Sorted(maps.Keys(byFile)) {
		if err := o.checkFile(ctx, filepath.Join(r.reference.localRoot, p), p, byFile[p], size[p],
			!r.isTimedWindow); err != nil {
			return err
		}
	}
	return nil
}

// checkFile compares the frames of one file. near selects the comparison by mean difference.
func (o *Outcome) checkFile(
	ctx context.Context,
	path, name string,
	wants []deliveredFrame,
	stored [2]int,
	near bool,
) error {
	size := [2]int{wants[0].Shape[2], wants[0].Shape[1]}
	if size != stored && !near {
		o.Note = "frames are resized: not compared"
		return nil
	}
	var numbers []int
	for _, w := range wants {
		numbers = append(numbers, max(w.expectedNumber-1, 0), w.expectedNumber, w.expectedNumber+1)
	}
	slices.Sort(numbers)
	need, err := decodeFrames(ctx, path, size, size != stored, slices.Compact(numbers))
	for _, w := range wants {
		truth := need[w.expectedNumber]
		if truth == nil {
			return fmt.Errorf("ffmpeg gives no frame %d of %s: %w", w.expectedNumber, name, err)
		}
		most, mean := pixelDistance(w.data, truth)
		wrong, telling := !near && most > pixelTolerance || near && mean > meanTolerance, true
		for _, k := range []int{w.expectedNumber - 1, w.expectedNumber + 1} {
			if n := need[k]; n != nil {
				most, apart := pixelDistance(n, truth)
				telling = telling && (!near && most > neighbourGap || near && apart >= meanGap)
				if near && apart >= meanGap {
					_, other := pixelDistance(w.data, n)
					wrong = wrong || other < mean
				}
			}
		}
		if wrong {
			o.WrongFrames++
			if len(o.WrongWhere) < 5 {
				o.WrongWhere = append(
					o.WrongWhere,
					fmt.Sprintf(
						"%s frame %d (%s, episode %d, row %d)",
						name,
						w.expectedNumber,
						w.Key,
						w.Episode,
						w.Row,
					),
				)
			}
		}
		if wrong || telling {
			o.FramesChecked++
		}
	}
	return nil
}

// decodeFrames decodes frames of a file sequentially with ffmpeg, and scales them if scaled is
// true. numbers must ascend. The result maps numbers to pixels, channels first. The error explains
// why the last frames are missing.
func decodeFrames(
	ctx context.Context,
	path string,
	size [2]int,
	scaled bool,
	numbers []int,
) (_ map[int][]byte, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	args := []string{
		"-nostdin",
		"-v",
		"error",
		"-threads",
		"1",
		"-i",
		path,
		"-map",
		"0:v:0",
		"-fps_mode",
		"passthrough",
	}
	if scaled {
		args = append(args, "-vf", fmt.Sprintf("scale=%d:%d:flags=area", size[0], size[1]))
	}
	cmd := exec.CommandContext(
		ctx,
		"ffmpeg",
		append(args, "-sws_flags", "bilinear", "-pix_fmt", "rgb24", "-f", "rawvideo", "-")...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	from := bufio.NewReaderSize(pipe, 1<<20)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { stop(); _ = cmd.Wait() }() // stop kills ffmpeg
	out, n, next := map[int][]byte{}, size[0]*size[1], 0
	packed := make([]byte, 3*n)
	for _, k := range numbers {
		for ; next <= k; next++ {
			if _, err = io.ReadFull(from, packed); err != nil {
				return out, err
			}
		}
		planes := make([]byte, 3*n)
		for i := range n {
			planes[i], planes[n+i], planes[2*n+i] = packed[3*i], packed[3*i+1], packed[3*i+2]
		}
		out[k] = planes
	}
	return out, nil
}

// pixelDistance returns the largest and the mean difference of two frames.
func pixelDistance(a, b []byte) (most int, mean float64) {
	if len(a) != len(b) {
		return 256, 256
	}
	sum := 0
	for i := range a {
		d := int(a[i]) - int(b[i])
		d = max(d, -d)
		most, sum = max(most, d), sum+d
	}
	return most, float64(sum) / float64(max(len(a), 1))
}
